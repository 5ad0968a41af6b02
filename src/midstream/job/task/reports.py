"""What a step tells the driver: small, one per stage and slot, carried as a row among the rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.adaptation.sampling import PAIRED, Sample, SampledRows, Sampler, choose, put_together
from midstream.adaptation.timings import Timings
from midstream.adaptation.wanted_statistics import WantedStatistics
from midstream.algebra.declarations import UserFunction
from midstream.checkpoint.file_entries import DeadLetterFile, ResultFile
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.process import this_process
from midstream.checkpoint.records import summed
from midstream.errors import InternalError, MidstreamError
from midstream.operators.base import Work
from midstream.operators.elements import Ticks
from midstream.operators.shared_graph import SharedGraph
from midstream.operators.vectors import Numbers

Samples = dict[tuple[str, str], Sample]
"""Looks by query and alias."""


class SampledSource(NamedTuple):
    """A stream, those of its columns that are read, and those that have to be seen: they carry an alias."""

    stream: str
    read: tuple[str, ...]
    seen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """What is to be looked at for a query, by alias.

    Rows are chosen by the salt, the same in all slots; a slot looks at no more than `most` rows of a stream.
    """

    query: str
    wanted: WantedStatistics
    functions: Mapping[str, UserFunction]
    sources: Mapping[str, SampledSource]
    salt: int
    most: int

    def sample(self, alias: str, rows: pa.RecordBatch, choice: SampledRows) -> Sample | None:
        """A look at the chosen ones of a stream's rows."""
        _, read, seen = self.sources[alias]
        width = rows.select([name for name in read if name in rows.schema.names]).nbytes / rows.num_rows
        prefixed = rows.rename_columns([f"{alias}.{name}" for name in rows.schema.names])
        chosen = prefixed.select([name for name in seen if name in prefixed.schema.names]).take(choice.places)
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
    choices: dict[tuple[int, int], SampledRows] = {}
    for request in requests:
        for alias, source in request.sources.items():
            if source.stream != stream:
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
        self.box, self.labels = box, [node.label for node in box.nodes]
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
            operator = self.box.operators[number]
            spent = self.timings.spent(operator)
            found.append(
                OperatorReport(
                    self.labels[number],
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


@dataclass(slots=True)
class FragmentReport:
    """What a fragment of a query did in a slot."""

    entries: list[SegmentEntry] = field(default_factory=list)
    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    work: Work = field(default_factory=Work)
    """What its operators did; what several fragments share is counted for one of them."""
    passed: int = 0
    migrated: bool | None = None
    """Whether a migration under way could end here; None if there is none."""
    held_from: int | None = None
    """The earliest start of results that a migration under way holds back."""
    old: bool | None = None
    """Whether groups that leave by PTLB still hold rows that the receiver never got; None if none leave so."""
    processed_twice: int = 0
    extra_rows: int = 0
    """Rows that both plans of a migration took, and rows that are held for its sake alone."""
    operators: list[OperatorReport] = field(default_factory=list)
    """What each operator did; nothing where many queries share what they do and this one is not watched."""
    target_operators: list[OperatorReport] = field(default_factory=list)
    """What those of the plan did that a migration under way goes over to."""


@dataclass(slots=True)
class StreamCounts:
    """What came of streams in a slot, by stream."""

    rows: dict[str, int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    """The newest time of usable rows."""
    late: dict[str, int] = field(default_factory=dict)
    late_by: dict[str, int] = field(default_factory=dict)
    """How far late rows were behind the register, at most."""
    unusable: dict[str, int] = field(default_factory=dict)
    nulls: dict[str, list[str]] = field(default_factory=dict)
    """The columns in which some row had no value, of those that are read."""
    beyond: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Rows beyond the reach of a stream that may have gone on there, as spans."""


class RowsByGroup(Mapping[int, int]):
    """How many rows there are of each partition group that has some.

    >>> dict(RowsByGroup([0, 3]))
    {1: 3}
    """

    def __init__(self, counts: Sequence[int] | npt.NDArray[np.int64] = ()) -> None:
        self.counts = np.asarray(counts, np.int64)

    def __getitem__(self, group: int) -> int:
        count = int(self.counts[group]) if 0 <= group < len(self.counts) else 0
        if not count:
            raise KeyError(group)
        return count

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.counts).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.counts))

    def and_of(self, more: npt.NDArray[np.int64]) -> RowsByGroup:
        """These and more rows."""
        long, short = (self.counts, more) if len(self.counts) > len(more) else (more, self.counts)
        together = long.copy()
        together[: len(short)] += short
        return RowsByGroup(together)


@dataclass(slots=True)
class Traffic:
    """Which rows came to a slot, and which left it."""

    groups: RowsByGroup = field(default_factory=RowsByGroup)
    """How many rows of each partition group came, or were sent on."""
    arrived: dict[str, RowsByGroup] = field(default_factory=dict)
    """How many rows of each partition group came of each stream, of which this slot accounts for them."""
    hot_keys: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Of groups with much of a stream's rows: the key that came most often, and its part of the group's rows."""
    exchanged: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    """How many rows of each partition group were sent on, by key class, of those that have one, and by key."""
    sent: dict[int, int] = field(default_factory=dict)
    """How many bytes of rows went to each slot of the next stages."""
    sent_of: dict[str, dict[int, int]] = field(default_factory=dict)
    """The same by query."""
    received: dict[int, float] = field(default_factory=dict)
    """For how many seconds what a slot of the stage before sent was on its way, where the cluster measures it."""

    def count_sent(self, query: str, slots: npt.NDArray[np.integer], size: int) -> None:
        """Counts a query's rows of so many bytes together on their way to slots."""
        counts = np.bincount(slots).tolist() if len(slots) else []
        own = self.sent_of.setdefault(query, {})
        for slot, count in enumerate(counts):
            if count:
                for sent in (self.sent, own):
                    sent[slot] = sent.get(slot, 0) + size * count // len(slots)

    def of_class(self, key_class: str) -> dict[int, int]:
        """How many rows of each partition group of a key class were sent on."""
        return summed(pair for counts in self.exchanged.get(key_class, {}).values() for pair in counts.items())

    def count_exchanged(self, groups: npt.NDArray[np.integer], key_class: str, key: str) -> None:
        """Counts rows that are sent on by a key by their partition groups, for all and for their key class."""
        self.count_groups(groups)
        if key_class and len(groups):
            counts = np.bincount(groups)
            own = self.exchanged.setdefault(key_class, {}).setdefault(key, {})
            for group in np.flatnonzero(counts).tolist():
                own[group] = own.get(group, 0) + int(counts[group])

    def count_groups(self, groups: npt.NDArray[np.integer], stream: str | None = None) -> None:
        """Counts rows by their partition groups, those that arrive of a stream; what all goes to one slot has none."""
        if len(groups) and int(groups.min()) < 0:
            groups = groups[groups >= 0]
        counts = np.bincount(groups)
        self.groups = self.groups.and_of(counts)
        if stream is not None:
            self.arrived[stream] = self.arrived.get(stream, RowsByGroup()).and_of(counts)


@dataclass(slots=True)
class RanOn:
    """Where a step ran, if the cluster says so, and the executor, if there are any."""

    place: str = ""
    executor: str = ""


@dataclass(slots=True)
class Report:
    """What a stage did in a slot."""

    stage: int
    slot: int
    fragments: dict[tuple[str, int], FragmentReport] = field(default_factory=dict)
    results: dict[str, ResultFile] = field(default_factory=dict)
    """Where what queries gave is, by lane."""
    starts: dict[str, Numbers] = field(default_factory=dict)
    """When these results start, where the job runs in the process of the step and so need not read them."""
    streams: StreamCounts = field(default_factory=StreamCounts)
    traffic: Traffic = field(default_factory=Traffic)
    dead_letters: list[DeadLetterFile] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each part took by the clock, waiting included."""
    processor: float = 0.0
    """The slot's load: the processor seconds of its thread and of those that wrote files for it.

    Waiting is no load. A slot waits for a core, for the interpreter or for a disk because of what else runs on its
    machine, and would wait as long with fewer groups. What reading and writing takes beyond the processor grows with
    the bytes of state, which decisions count besides.
    """
    samples: Samples = field(default_factory=dict)
    error: MidstreamError | None = None
    blamed: tuple[str, ...] = ()
    """The queries, or sides of them, that were at work when something failed."""
    set_aside: dict[str, int] = field(default_factory=dict)
    """Rows that made a query's expressions fail, and were left out for it, by query."""
    ran_on: RanOn = field(default_factory=RanOn)

    def lap(self, name: str, since: float) -> float:
        """Adds the time since a moment to what was spent on something; gives the moment now."""
        now = this_process().monotonic()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - since
        return now

    def to_bytes(self) -> bytes:
        """The report as it travels."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def from_bytes(content: bytes) -> Report:
        """A report that has travelled; it was made by a worker of this very job."""
        report = pickle.loads(content)
        assert isinstance(report, Report)
        return report


def require_all(reports: Sequence[Report], stages: int, slots: int, batch_id: int) -> None:
    """Raises what made a slot fail; fails if a slot said nothing of a stage, for its state would be taken for empty."""
    for report in reports:
        if report.error is not None:
            raise report.error
    present = {(report.stage, report.slot) for report in reports}
    silent = [(stage, slot) for stage in range(stages) for slot in range(slots) if (stage, slot) not in present]
    if silent:
        named = ", ".join(f"slot {slot} in stage {stage}" for stage, slot in silent[:5])
        raise InternalError(
            f"batch {batch_id} cannot be committed: {named} did not report",
            detail=f"{len(silent)} of {stages * slots} reports are missing",
            hint="nothing of the batch counts: start the job again, and it goes on with that batch",
        )
