"""The watchers of a job's queries, and what they have learned of where slots are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from midstream.adaptation.cost_corrections import corrected
from midstream.adaptation.plan_changes import Decision
from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name
from midstream.checkpoint.process import this_process
from midstream.job.adaptivity import Watcher, Way
from midstream.job.migrations.migrating import MigrationAsked
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.sites import ChangedLinks, Located, Measuring
from midstream.job.task.reports import SampleRequest
from midstream.optimizer.cost import Constants
from midstream.optimizer.plans import plan_query
from midstream.optimizer.sites.links import links_from_json, links_to_json

if TYPE_CHECKING:
    from midstream.job.batch import Batch
    from midstream.job.state import JobState


@dataclass(slots=True)
class Watchers:
    """The watchers of a session's queries."""

    by_query: dict[str, Watcher] = field(default_factory=dict)
    seconds: float = 0.0
    """What seeing the last batch took."""
    constants: Constants = field(default_factory=Constants)
    """What plans are weighed by where the session runs."""
    priced_by: tuple[Constants, Mapping[str, Any]] | None = None
    """The constants of the cluster, and what trials found of them, that these follow from."""
    began: tuple[int, float] | None = None
    """The last batch that was decided about, and when it began."""
    located: Located = field(default_factory=Located)
    """Where slots are."""
    measuring: Measuring = field(default_factory=Measuring)
    """What links were measured to take."""

    def watch(self, query: RunningQuery, policy: Policy | None) -> None:
        """Watches a query from its next batch on; without a policy as what had its name was watched, if it was."""
        if policy is None and query.name in self.by_query:
            policy = self.by_query[query.name].policy
        if policy is not None:
            self.by_query[query.name] = Watcher(query, policy.priced(self.constants))

    def unwatch(self, name: str | None) -> None:
        """Watches a query no more; None stands for all."""
        self.by_query = {} if name is None else {q: one for q, one in self.by_query.items() if q != name}

    def reprice(self, constants: Constants, costs: Mapping[str, Any]) -> None:
        """Weighs plans by a cluster's constants as trials have corrected them, but for queries that have their own."""
        if self.priced_by == (constants, costs):
            return
        self.priced_by = constants, costs
        before, self.constants = self.constants, corrected(constants, costs)
        for watcher in self.by_query.values():
            watcher.reprice(before, self.constants)

    def restore(self, before: Manifest | None, queries: Mapping[str, RunningQuery]) -> None:
        """Restores every watcher from the last manifest."""
        batch_id = None if before is None else before.batch_id
        for name, watcher in self.by_query.items():
            if watcher.as_of != batch_id and name in queries:
                kept = None if before is None else before.account(name).knowledge
                watcher.go_on(batch_id, kept, queries[name].plan)

    def requests(self, batch_id: int, slots: int) -> tuple[SampleRequest, ...]:
        """What slots are to look at in a batch."""
        asked = (watcher.request(batch_id, slots) for watcher in self.by_query.values())
        return tuple(request for request in asked if request is not None)

    def after(self, batch: Batch, way: Way, links: ChangedLinks = ()) -> dict[str, Any]:
        """What the manifest of a batch that was run is to keep, by query; `links` were changed while the job ran."""
        started = this_process().monotonic()
        before = {} if batch.before is None else batch.before.accounts
        topology = self.located.topology(batch.slots.count, links) if self.located.sites else None
        if topology is not None:
            self.measuring.see(batch.reports, topology)
        kept = {}
        for name in batch.queries:
            watcher = self.by_query.get(name)
            if watcher is None:
                known = before[name].knowledge if name in before else None
                if known is not None:
                    kept[name] = {**known, "mode": "off", "wish": None, "decided": None}
                continue
            if batch.incoming.has_rows:
                watcher.adaptive.decider.topology = topology
                watcher.see(batch, way, copy_name(name) in batch.queries)
            kept[name] = watcher.kept()
        self.seconds = this_process().monotonic() - started
        return kept

    def measured(self, links: ChangedLinks) -> list[list[Any]] | None:
        """What the next manifest is to say of links, if some were measured to be others than is known."""
        found = self.measuring.news(self.located.links(links)) if self.measuring.off else {}
        return links_to_json({**links_from_json(links), **found}) if found else None

    def wishes(self, state: JobState) -> Iterator[MigrationAsked]:
        """What queries, and slots of them, are to go over to."""
        for name, watcher in self.by_query.items():
            if name not in state.queries or name in state.faults.stopped:
                continue
            query, wish = state.queries[name], watcher.wish
            if query.migration is not None:
                continue
            if wish is not None and copy_name(name) not in state.queries and query.plan.text == wish["plan"]:
                yield _asked(state, query, wish, verify=watcher.adaptive.verify, observed=watcher.observed)
            for slot, wanted in watcher.slot_wishes.items():
                own = query.in_slot(slot)
                if slot < state.slots and own.migration is None and own.plan.text == wanted["plan"]:
                    yield _asked(state, query, wanted, slots=[slot], observed=watcher.observed)

    def interval(self, batch: Batch) -> float:
        """How many seconds after the last batch one began; of the first one that was seen, what it took."""
        before, self.began = self.began, (batch.batch_id, batch.started)
        return batch.job_seconds if before is None or before[0] >= batch.batch_id else batch.started - before[1]

    def decided(self, query: str) -> list[Decision]:
        """What was decided about a query lately."""
        watcher = self.by_query.get(query)
        plan_of = None if watcher is None else watcher.adaptive.decider.plan_of
        return [] if watcher is None or plan_of is None else [Decision.of(d, plan_of) for d in watcher.decisions]

    @property
    def columns(self) -> Iterator[tuple[str, str]]:
        """The columns of streams that watchers look at."""
        for watcher in self.by_query.values():
            for source in watcher.sources.values():
                yield from ((source.stream, column) for column in source.read)


def _asked(state: JobState, query: RunningQuery, wish: Mapping[str, Any], **more: Any) -> MigrationAsked:
    target = state.target(query, plan_query(query.plan.query, wish["target"], query.emit_every))
    return MigrationAsked(query.name, target, wish["strategy"], wish["reason"], **more)


def readers_of(queries: Mapping[str, RunningQuery], declaration: StreamDeclaration, column: str) -> list[str]:
    """The queries that read a column of a stream."""
    alone = ((name, needed_columns({name: query}, [declaration])) for name, query in queries.items())
    return [name for name, [(_, columns)] in alone if column in columns]


def needed_columns(
    queries: Mapping[str, RunningQuery], streams: Iterable[StreamDeclaration], watchers: Watchers | None = None
) -> list[tuple[StreamDeclaration, list[str]]]:
    """Streams with their columns that queries read or that are watched, and their times."""
    wanted = defaultdict[str, set[str]](set)
    for stream, column in () if watchers is None else watchers.columns:
        wanted[stream].add(column)
    for source in (source for query in queries.values() for source in query.sources_read):
        names = source.schema.names
        wanted[source.stream.name].update(name.removeprefix(f"{source.stream.alias}.") for name in names)
    return [(d, [name for name in d.columns.names if name == d.time or name in wanted[d.name]]) for d in streams]
