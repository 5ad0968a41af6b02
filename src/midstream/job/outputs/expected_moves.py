"""What the optimizer expects the rows of a query to take between slots in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.checkpoint.records import summed
from midstream.job.job import Job
from midstream.job.queries.running_query import RunningQuery
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.sites.topology import Topology, topology_of


@dataclass(frozen=True, slots=True)
class Expected:
    """The rows that move in a batch, and the bytes between sites, by pair."""

    rows: float
    bytes: Mapping[str, float]


def topology_now(job: Job) -> Topology | None:
    """Where the slots of a job are, and the links between them; None for a job without sites."""
    return job.watchers.located.topology(job.state.slots, job.state.settings.links)


def watched(job: Job, query: RunningQuery, topology: Topology | None) -> Estimator | None:
    """What estimates what plans of a query cost, by what was seen of its streams; None if nothing was."""
    watcher = job.watchers.by_query.get(query.name)
    if watcher is None or not watcher.observed.streams:
        return None
    prices = job.watchers.constants.by_tick(query.plan.domain)
    return Estimator(watcher.observed, query.plan.emission, prices, True, topology)


def expected_moves(job: Job, query: RunningQuery) -> Expected | None:
    """What is expected of the running plan of a query, if it is watched."""
    topology = topology_now(job) or topology_of({}, job.state.slots)
    estimator = watched(job, query, topology)
    if estimator is None or not estimator.statistics.batch_ticks:
        return None
    cost, ticks = estimator.cost(query.plan.logical), estimator.statistics.batch_ticks
    sizes = {} if cost.transfers is None else topology.by_name(cost.transfers)
    return Expected(cost.moved * ticks, {_named(*pair): size * ticks for pair, size in sizes.items()})


def sent_by_site(job: Job, sent: Mapping[str, int]) -> dict[str, int]:
    """Bytes from slot to slot in a batch, as they are counted, by pair of sites."""
    topology = topology_now(job) or topology_of({}, job.state.slots)
    ends = (([int(slot) for slot in pair.split(" to ")], size) for pair, size in sent.items())
    known = ((pair, size) for pair, size in ends if max(pair) < len(topology.slots))
    return summed((_named(*(topology.slots[slot] for slot in pair)), size) for pair, size in known)


def _named(sender: str, receiver: str) -> str:
    if sender == receiver:
        return "slot to slot" + (f" at {sender}" if sender else "")
    return f"{sender or 'elsewhere'} to {receiver or 'elsewhere'}"
