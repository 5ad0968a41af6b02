"""What a new query would start with, before anything happens: window by window, and from when on it is complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from midstream.algebra.time import BEGINNING, plural, size
from midstream.checkpoint.manifest import Manifest
from midstream.job.queries.completeness import COMPLETE
from midstream.job.queries.derived_windows import is_derivable, why_empty
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.sharing_plan import SharingPlan
from midstream.job.task.works import BySlot
from midstream.optimizer.cost import Constants

LOCAL = Constants()


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """What the window of a stream starts with.

    It is `kept` if another query has the same, `derived` if its content follows from rows that another one keeps, and
    `empty` if not, and `why`. `rows` and `bytes` are what has to be read of them.
    """

    alias: str
    window: str
    how: Literal["kept", "derived", "empty"]
    of: str = ""
    rows: int = 0
    bytes: int = 0
    why: str = ""

    def __str__(self) -> str:
        if self.how == "empty":
            return f"{self.window} starts empty: {self.why}"
        read = f", {plural(self.rows, 'row')} ({size(self.bytes)}) to read" if self.rows else ""
        return f"{self.window} is {self.how} from query {self.of}{read}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a query starts with, and from which instant on its results are complete (None: from the beginning, or never,
    as `complete` says).

    `seconds` is what reading the rows is expected to take, in one slot.
    """

    windows: tuple[WindowVerdict, ...]
    start: int
    complete_from: int | None
    complete: str
    seconds: float

    @staticmethod
    def of(
        before: Manifest,
        queries: Mapping[str, RunningQuery],
        name: str,
        apart: Collection[str] = (),
        costs: Constants = LOCAL,
    ) -> Verdict:
        """What one of some queries would start with if the next batch were run with them after a manifest."""
        registers = before.streams.registers
        frontiers = {n: max(before.advanced_to.get(n, BEGINNING), q.reached(registers)) for n, q in queries.items()}
        plan, query = SharingPlan(before.batch_id + 1, before, queries, frontiers, apart=apart), queries[name]
        record, windows = plan.records[name], tuple(_windows(plan, query, before))
        told = plan.completeness(name)
        seconds = sum(window.rows for window in windows) * (costs.row + costs.probe + costs.insert) / costs.second
        return Verdict(windows, record.start, told["complete_from"], told["complete"], seconds)

    @property
    def ever_complete(self) -> bool:
        """Whether there is an instant from which on nothing is missing."""
        return self.complete_from is not None or self.complete == COMPLETE

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        windows = [asdict(window) for window in self.windows]
        told = {"complete_from": self.complete_from, "complete": self.complete}
        return {"windows": windows, "seconds": round(self.seconds, 3), **told}

    def __str__(self) -> str:
        return "; ".join([*map(str, self.windows), self.complete])


def _windows(plan: SharingPlan, query: RunningQuery, before: Manifest) -> list[WindowVerdict]:
    record = plan.records[query.name]
    derived = {d.alias: d for d in plan.derived if d.query == query.name}
    found: dict[str, WindowVerdict] = {}
    for source in query.sources:
        alias, window = source.stream.alias, source.label.removeprefix("Source ")
        if (start := derived.get(alias)) is not None:
            found[alias] = WindowVerdict(alias, window, "derived", _text_of(start.of), *_size(start.segments))
        elif alias in record.inherited:
            found[alias] = WindowVerdict(alias, window, "kept", ", ".join(map(_text_of, record.shares)))
        elif source.window is not None or not is_derivable(query):
            why = why_empty(query, alias, plan.kept_by_others(query), before)
            found[alias] = WindowVerdict(alias, window, "empty", why=why)
    return list(found.values())


def _text_of(query: str) -> str:
    """The name by which people know a query that is being replaced."""
    return query.partition("@")[0]


def _size(segments: BySlot) -> tuple[int, int]:
    entries = [entry for some in segments.values() for entry in some]
    return sum(entry.rows for entry in entries), sum(entry.bytes for entry in entries)
