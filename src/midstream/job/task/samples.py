"""What a slot looks at for adaptive queries: some rows of each stream, and what its operators did.

Looking must never be what makes a batch fail: where an expression cannot be computed for some row, there is no look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import pyarrow as pa

from midstream.adaptation.sampling import PAIRED, Choice, Sample, Sampler, choose, put_together
from midstream.adaptation.timings import Timings
from midstream.adaptation.wanted_statistics import WantedStatistics
from midstream.algebra.declarations import UserFunction
from midstream.checkpoint.process import this_process
from midstream.errors import MidstreamError
from midstream.operators.base import Work
from midstream.operators.elements import Ticks
from midstream.operators.shared_graph import SharedGraph

Samples = dict[tuple[str, str], Sample]
"""Looks by query and alias."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """What is to be looked at for a query: `sources` are its streams and their columns by alias.

    Rows are chosen by the salt, the same in all slots; a slot looks at no more than `most` rows of a stream.
    """

    query: str
    wanted: WantedStatistics
    functions: Mapping[str, UserFunction]
    sources: Mapping[str, tuple[str, tuple[str, ...]]]
    salt: int
    most: int

    def sample(self, alias: str, rows: pa.RecordBatch, choice: Choice) -> Sample | None:
        """A look at the chosen ones of a stream's rows."""
        _, names = self.sources[alias]
        own = rows.select([name for name in names if name in rows.schema.names])
        width = own.nbytes / rows.num_rows
        chosen = own.take(pa.array(choice.places)).rename_columns([f"{alias}.{name}" for name in own.schema.names])
        try:
            sample = Sampler(self.wanted, self.functions).sample(alias, chosen, width)
        except (MidstreamError, pa.ArrowException):
            return None
        sample.priorities, sample.complete_to = choice.priorities, choice.complete_to
        if sample.paired is not None:
            selections = len(self.wanted.selections.get(alias, ()))
            sample.paired_priorities = choice.priorities[sample.passed >= selections][:PAIRED]
        return sample


def sampled(requests: Sequence[SampleRequest], stream: str, rows: pa.RecordBatch, ticks: Ticks) -> Samples:
    """Looks at the rows of a stream for all queries that ask for it; rows are in order of time."""
    samples: Samples = {}
    choices: dict[tuple[int, int], Choice] = {}
    for request in requests:
        for alias, (name, _) in request.sources.items():
            if name != stream:
                continue
            way = (request.salt, request.most)
            if way not in choices:
                choices[way] = choose(ticks, *way)
            sample = request.sample(alias, rows, choices[way])
            if sample is not None:
                samples[request.query, alias] = sample
    return samples


def add_samples(samples: Samples, more: Samples) -> None:
    """Adds looks at more rows of the same batch: a slot may get them in pieces."""
    for place, sample in more.items():
        samples[place] = put_together([samples[place], sample]) if place in samples else sample


@dataclass(slots=True)
class OperatorReport:
    """What an operator did and keeps in a slot, and how long it took."""

    label: str
    work: Work = field(default_factory=Work)
    seconds: float = 0.0
    rows: float = 0.0
    purging: float = 0.0
    purges: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0

    def add(self, other: OperatorReport) -> None:
        """Adds what the same operator did and keeps in another slot."""
        self.work.add(other.work)
        for name in ("seconds", "rows", "purging", "purges", "state_rows", "state_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def part(self, share: float) -> OperatorReport:
        """A part of what it did and keeps."""
        work = Work(*(round(share * count) for count in astuple(self.work)))
        seconds, rows, purging, purges = (share * n for n in (self.seconds, self.rows, self.purging, self.purges))
        held, size = round(share * self.state_rows), round(share * self.state_bytes)
        return OperatorReport(self.label, work, seconds, rows, purging, purges, held, size)


class BoxWatch:
    """Times the operators of a box in one batch."""

    def __init__(self, box: SharedGraph) -> None:
        self.box = box
        self.timings = Timings(this_process().monotonic)
        self.timings.attach(box)

    def restart(self) -> None:
        """Forgets what the operators did: another batch begins."""
        self.timings.clear()
        for operator in self.box.operators:
            operator.work.clear()

    def reports(self, chosen: Sequence[int] | None = None) -> list[OperatorReport]:
        """What each operator did, or each of some by number."""
        found = []
        for number in range(len(self.box.operators)) if chosen is None else chosen:
            node, operator = self.box.nodes[number], self.box.operators[number]
            spent = self.timings.spent(operator)
            found.append(
                OperatorReport(
                    node.label,
                    replace(operator.work),  # which the next batch counts anew
                    spent.seconds,
                    spent.rows,
                    spent.purging,
                    spent.purges,
                    sum(state.rows for state in operator.states),
                    sum(state.bytes for state in operator.states),
                )
            )
        return found
