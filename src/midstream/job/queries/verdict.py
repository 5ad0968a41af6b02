"""What a new query would start with, before anything happens: window by window, and from when on it is complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from midstream.algebra.time import BEGINNING, INFINITY, instant, plural, size
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.query_windows import ALWAYS, BySlot
from midstream.job.queries.backfill import Backfill, OldRows
from midstream.job.queries.completeness import COMPLETE, changes_from, complete
from midstream.job.queries.derived_windows import derived_windows, is_derivable, why_empty
from midstream.job.queries.named_states import NamedInput
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.sharing_plan import SharingPlan
from midstream.job.queries.succession import answered_to, unanswered
from midstream.optimizer.cost import Constants

LOCAL = Constants()


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """What the window of a stream starts with.

    It is `kept` if another query has the same, `derived` if its content follows from rows that another one keeps,
    `backfilled` if they are read again from the source, and `empty` if not, and `why`. `rows` and `bytes` are what has
    to be read of them, if only for `results` that hold still, and `batches` how many that takes at least where a rate
    is given.
    """

    alias: str
    window: str
    how: Literal["kept", "derived", "backfilled", "empty"]
    of: str = ""
    rows: int = 0
    bytes: int = 0
    why: str = ""
    batches: int = 0
    results: bool = False

    def __str__(self) -> str:
        if self.how == "empty":
            return f"{self.window} starts empty: {self.why}"
        if self.how == "backfilled":
            read = f"{plural(self.rows, 'row')} ({size(self.bytes)})"
            over = plural(self.batches, "batch", "batches")
            return f"{self.window} is backfilled from the source of stream {self.of}, about {read}, over {over} or more"
        what = " for results that hold still" if self.results else ""
        read = f", {plural(self.rows, 'row')} ({size(self.bytes)}) to read{what}" if self.rows else ""
        return f"{self.window} is {self.how} from query {self.of}{read}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a query starts with, and from which instant on its results are complete (None: from the beginning, or never,
    as `complete` says).

    `seconds` is what reading the rows is expected to take, in one slot. `gap` says for which instants nobody answers if
    it takes another's place at once; `earliest` before which instant it does not, as it gives none that lack rows.
    """

    windows: tuple[WindowVerdict, ...]
    start: int
    complete_from: int | None
    complete: str
    seconds: float
    gap: str = ""
    paced: bool = False
    earliest: str = ""

    @staticmethod
    def of(
        before: Manifest,
        queries: Mapping[str, RunningQuery],
        name: str,
        apart: Collection[str] = (),
        costs: Constants = LOCAL,
        old: Mapping[str, OldRows] | None = None,
    ) -> Verdict:
        """What one of some queries would start with if the next batch were run with them after a manifest.

        `old` is what is known of rows that it is filled with from sources, by alias.
        """
        plan, query = _plan(before, queries, apart), queries[name]
        if query.begins.paced:  # it is heard once it is filled, as if it had begun with all rows
            heard = changes_from(plan.frontiers[name], query.plan.query)
            start = max(heard, answered_to(before, name, BEGINNING))
            plan.records[name] = replace(plan.records[name], start=start)
        record, windows = plan.records[name], tuple(_windows(plan, query, before, old or {}))
        told = complete(record, query.plan.query)
        seconds = sum(window.rows for window in windows) * (costs.row + costs.probe + costs.insert) / costs.second
        ended = INFINITY if query.begins.paced else answered_to(before, name, INFINITY)
        gap = unanswered(ended, record.start, query.plan.domain)
        withheld = record.lacks_rows and record.whole_from_start and BEGINNING < record.start < INFINITY
        earliest = f", not before {instant(record.start, query.plan.domain)}" if withheld else ""
        return Verdict(windows, record.start, told["complete_from"], told["complete"], seconds, gap, earliest=earliest)

    @property
    def given(self) -> int:
        """How many rows go through operators that remember them."""
        return sum(window.rows for window in self.windows if not window.results)

    @property
    def whole_at(self) -> int:
        """From which instant on nothing is missing."""
        never = BEGINNING if self.complete == COMPLETE else INFINITY
        return never if self.complete_from is None else self.complete_from

    def because(self, why: Mapping[str, str]) -> Verdict:
        """The verdict that says why windows are not filled from sources, by alias."""
        told = [
            replace(w, why=f"{w.why}; {why[w.alias]}") if w.how == "empty" and w.alias in why else w
            for w in self.windows
        ]
        return replace(self, windows=tuple(told))

    def behind_old(self, paced: bool = True) -> Verdict:
        """The verdict on a query that runs beside another one until it can take the place from where that ends."""
        return replace(self, gap="", paced=paced)

    @property
    def ever_complete(self) -> bool:
        """Whether there is an instant from which on nothing is missing."""
        return self.complete_from is not None or self.complete == COMPLETE

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        windows = [asdict(window) for window in self.windows]
        told = {name: getattr(self, name) for name in ("complete_from", "complete", "gap", "paced", "earliest")}
        return {"windows": windows, "seconds": round(self.seconds, 3), **told}

    def __str__(self) -> str:
        return "; ".join([*map(str, self.windows), self.complete + self.gap])


def _plan(before: Manifest, queries: Mapping[str, RunningQuery], apart: Collection[str]) -> SharingPlan:
    registers = before.streams.registers
    frontiers = {n: max(before.advanced_to.get(n, BEGINNING), q.reached(registers)) for n, q in queries.items()}
    return SharingPlan(before.batch_id + 1, before, queries, frontiers, apart=apart)


def with_source(
    before: Manifest,
    queries: Mapping[str, RunningQuery],
    name: str,
    found: Backfill,
    rate: int,
    apart: Collection[str] = (),
) -> RunningQuery:
    """A query with those of its windows filled from sources for which nobody keeps all rows."""
    plan, query = _plan(before, queries, apart), queries[name]
    kept = {
        window.rows.alias
        for window in derived_windows(query, (), plan.kept_by_others(query), before)
        if window.begun == ALWAYS and before.advanced_to.get(window.rows.of, BEGINNING) <= plan.frontiers[name]
    }
    again = tuple(window for alias, (window, _) in found.windows.items() if alias not in kept)
    return replace(query, begins=replace(query.begins, paced=True, again=again, rate=rate))


def _windows(
    plan: SharingPlan, query: RunningQuery, before: Manifest, old: Mapping[str, OldRows]
) -> list[WindowVerdict]:
    record, again = plan.records[query.name], {window.alias: window.of for window in query.begins.again}
    derived = {d.alias: d for d in plan.taken.rows if d.query == query.name}
    named: dict[str, list[NamedInput]] = {}
    for one in plan.taken.inputs:
        for alias in one.aliases if one.query == query.name else ():
            named.setdefault(alias, []).append(one)
    found: dict[str, WindowVerdict] = {}
    for source in query.sources:
        alias, window = source.stream.alias, source.label.removeprefix("Source ")
        if alias in again:
            rows, batches = old[alias].rows, -(-old[alias].rows // (query.begins.rate or 1))
            found[alias] = WindowVerdict(
                alias, window, "backfilled", again[alias], rows, old[alias].bytes, batches=max(1, batches)
            )
        elif (start := derived.get(alias)) is not None:
            found[alias] = WindowVerdict(alias, window, "derived", _text_of(start.of), *_size(start.segments))
        elif (of := named.get(alias)) is not None:
            how: Literal["kept", "derived"] = "kept" if all(one.same for one in of) else "derived"
            read = [one for one in of if one.rows and alias == min(one.aliases)]
            cost = sum(one.rows for one in read), sum(one.bytes for one in read)
            whose, results = ", ".join({_text_of(one.of): None for one in of}), any(one.results for one in read)
            found[alias] = WindowVerdict(alias, window, how, whose, *cost, results=results)
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
