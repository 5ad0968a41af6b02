"""What a batch did: its seconds by part, its row of the metrics table, and its line in the log."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY, moment
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import is_rehearsal, query_of
from midstream.checkpoint.records import StreamWait, summed
from midstream.distribution.fragments import Staged
from midstream.job.batch import Batch
from midstream.job.plans.local_plans import SlotPlans, migrating_to, plans_by_slot
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.reports import Report

FIRST_WARNING = 3
"""After how many batches a silent stream that others wait for is first warned of; again after ten times as many."""


Waits = dict[str, StreamWait]
"""The streams that queries wait for, by query."""


def silences(before: Mapping[str, int], streams: Iterable[str], rows: Mapping[str, int]) -> dict[str, int]:
    """For how many batches each stream has had no rows while others had.

    >>> silences({"A": 2}, ["A", "B"], {"B": 7})
    {'A': 3}
    """
    if not any(rows.values()):
        return dict(before)
    return {name: before.get(name, 0) + 1 for name in streams if not rows.get(name)}


def unexpected(found: Waits, streams: Iterable[StreamDeclaration]) -> Waits:
    """The waits for streams that are silent and do not say how far they are: nobody has declared that these may be."""
    willing = {declaration.name for declaration in streams if declaration.on_demand}
    return {query: wait for query, wait in found.items() if wait.batches and wait.stream not in willing}


def waits(reads: Mapping[str, Collection[str]], registers: Mapping[str, int], silent: Mapping[str, int]) -> Waits:
    """The queries that one of their streams holds back, from the streams that each reads."""
    found: Waits = {}
    for query, streams in reads.items():
        known = sorted((registers.get(name, BEGINNING), name) for name in set(streams))
        if len(known) > 1 and known[0][0] < known[1][0]:
            (least, name), newest = known[0], known[-1][0]
            behind = None if least == BEGINNING else newest - least
            found[query] = StreamWait(name, behind, silent.get(name, 0))
    return found


def reads_of(queries: Mapping[str, RunningQuery]) -> dict[str, set[str]]:
    """The streams that each query reads; a copy by which a migration is verified waits as its query does."""
    own = {name: query for name, query in queries.items() if not is_rehearsal(name)}
    return {name: {source.stream.name for source in query.sources} for name, query in own.items()}


def wait_text(query: str, wait: StreamWait, declaration: StreamDeclaration) -> str:
    """A wait in words, with what to do if there is something: a skew helps where a stream is silent and has none."""
    behind = "has had no rows" if wait.behind is None else f"is {span(wait.behind, declaration)} behind the others"
    batches = f"{wait.batches} {'batch' if wait.batches == 1 else 'batches'}"
    silent = f" and was silent for {batches}" if wait.batches and wait.behind is not None else ""
    said = f"query {query} waits for stream {wait.stream}, which {behind}{silent}"
    if declaration.on_demand or not wait.batches:
        return said
    return f"{said}: declare a skew for it, so that it does not hold others back while it is silent"


def is_worth_a_warning(batches: int) -> bool:
    """Whether a wait has just become so long.

    >>> [n for n in range(1, 400) if is_worth_a_warning(n)]
    [3, 30, 300]
    """
    while batches > FIRST_WARNING and batches % 10 == 0:
        batches //= 10
    return batches == FIRST_WARNING


def late_text(declaration: StreamDeclaration, late: int, rows: int, by: int | None) -> str:
    """In words that rows of a batch came too late; `by` is how far they were behind what the stream had promised."""
    allowed = span(declaration.lateness, declaration)
    needed = "" if by is None else f"; a lateness of {span(declaration.lateness + by, declaration)} would have done"
    return (
        f"{late:,} of {rows:,} rows of stream {declaration.name} came too late for its lateness of {allowed} and are "
        f"dead letters{needed}. Files are read in the order of their modification, not of their names"
    )


def span(ticks: int, declaration: StreamDeclaration) -> str:
    """A length of time in a stream's own terms."""
    if declaration.domain.is_integer:
        return f"{ticks:,}"
    try:
        return str(dt.timedelta(microseconds=ticks))
    except OverflowError:
        return f"{ticks:,} microseconds"


PARTS = ("transfer", "state", "kernel", "write", "watch")
"""What slots spend their time on: waiting for rows, opening state, running operators, writing, looking at rows."""


def seconds_of(reports: Sequence[Report], job: float) -> dict[str, float]:
    """The seconds of a batch: those of its slots, the longest of each kind; and what of its `job` is Spark's own.

    All are by the clock but `processor`, which is the busiest slot's load.
    """
    seconds: dict[str, float] = {}
    longest: dict[int, float] = {}
    for report in reports:
        for name, value in report.seconds.items():
            seconds[name] = max(seconds.get(name, 0.0), value)
        own = sum(report.seconds.get(name, 0.0) for name in PARTS)
        longest[report.stage] = max(longest.get(report.stage, 0.0), own)
    busiest = max(slot_loads(reports).values(), default=0.0)
    return {**seconds, "processor": busiest, "job": job, "spark": max(0.0, job - sum(longest.values()))}


def counted_by_stream(reports: Sequence[Report], kind: str, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """The rows of each stream that slots report of a kind, with those of `before`."""
    here = (pair for report in reports for pair in getattr(report.streams, kind).items())
    return summed((*(before or {}).items(), *here))


def slot_loads(reports: Sequence[Report]) -> dict[int, float]:
    """The processor seconds that a batch took in each slot, over all stages."""
    return summed((report.slot, report.processor) for report in reports if report.slot >= 0)


def slot_work(reports: Sequence[Report]) -> dict[int, int]:
    """What the operators of each slot did in a batch: rows looked up, candidate pairs and rows stored."""
    works = ((r.slot, [part.work for part in r.fragments.values()]) for r in reports if r.slot >= 0)
    return summed((slot, sum(w.probed + w.matched + w.inserted for w in done)) for slot, done in works)


def exchanges_of(batch: Batch, plan: str, staged: Staged, number: int) -> int:
    """How often a row that a fragment gives goes through an exchange: once for each stage that it passes, and slot."""
    fragment = staged.fragment(number)
    readers = [other for other in staged.fragments for leaf in other.received if leaf.fragment == number]
    if not readers or (fragment.route.key is None and not fragment.route.everywhere):
        return 0
    stages = batch.stage(plan, readers[0]) - batch.stage(plan, fragment)
    return stages * (len(fragment.route.copied_to(batch.slots.count)) if fragment.route.everywhere else 1)


def moved_bytes(reports: Sequence[Report], query: str | None = None) -> dict[str, int]:
    """The bytes that rows, of one query or of all, took between slots in a batch, by pair, stages together.

    What stays in its slot is none.
    """
    sent = ((r.slot, r.traffic.sent if query is None else r.traffic.sent_of.get(query, {})) for r in reports)
    return summed((f"{own} to {slot}", size) for own, sizes in sent for slot, size in sizes.items() if slot != own)


def metrics_row(event: Mapping[str, Any], manifest: Manifest, now: float) -> dict[str, Any]:
    """A batch's row in the metrics table, with instants in ticks; `now` is in seconds since 1970."""
    queries = event["queries"]
    return {
        "batch_id": event["batch_id"],
        "at": now,
        **{name: dict(event[name]) for name in ("rows", "late", "unusable", "plans", "migrations")},
        **{
            name: {query: counts[name] for query, counts in queries.items()}
            for name in ("results", "state_rows", "state_bytes")
        },
        "registers": _finite(manifest.streams.registers),
        "latest": _finite(manifest.streams.latest),
        "released": _finite(_released(manifest)),
        "seconds": {name: round(value, 6) for name, value in event["seconds"].items()},
        "ran_on": list(event["ran_on"]),
        "moved": dict(event["moved"]),
        "executors": dict(event["executors"]),
    }


def warnings_of(batch: Batch, manifest: Manifest | None) -> list[str]:
    """What the job's owner should know of a batch: rows that came too late, and streams that others wait for."""
    declared = {declaration.name: declaration for declaration in batch.incoming.streams.values()}
    sentences = []
    for name, declaration in declared.items():
        late, rows = (sum(getattr(r.streams, kind).get(name, 0) for r in batch.reports) for kind in ("late", "rows"))
        by = max(
            (report.streams.late_by[name] for report in batch.reports if name in report.streams.late_by), default=None
        )
        if late:
            sentences.append(late_text(declaration, late, rows, by))
    heard = any(count for report in batch.reports for count in report.streams.rows.values())
    waiting = manifest.streams.waits if manifest and heard else {}  # without rows, none has become longer
    for query, wait in waiting.items():
        if is_worth_a_warning(wait.batches):
            sentences.append(wait_text(query, wait, declared[wait.stream]))
    return sentences


def batch_line(event: Mapping[str, Any]) -> str:
    """A batch in one line."""
    seconds, queries = event["seconds"], event["queries"]
    parts = [
        f"batch {event['batch_id']}",
        "rows " + _counts(event["rows"]),
        f"late {sum(event['late'].values())}",
        f"unusable {sum(event['unusable'].values())}",
        "results " + _counts({name: counts["results"] for name, counts in queries.items()}),
        f"state {sum(q['state_rows'] for q in queries.values())} rows",
        f"{sum(q['state_bytes'] for q in queries.values())} bytes",
        "seconds " + " ".join(f"{name} {value:.3f}" for name, value in sorted(seconds.items())),
    ]
    if event["moved"]:
        parts.append(f"moved {sum(event['moved'].values())} bytes between slots")
    if event["ran_on"]:
        parts.append("ran on " + " ".join(event["ran_on"]))
    moving = [f"{name} goes over to {plan}" for name, plan in event["migrations"].items()]
    return ", ".join([*parts, *moving])


def _counts(counts: Mapping[str, int]) -> str:
    return " ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _finite(ticks: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in ticks.items() if value not in (BEGINNING, INFINITY)}


def progress_of(batch: Batch, manifest: Manifest | None) -> dict[str, Any]:
    """What a batch did, for people and programs."""
    parts = [part for report in batch.reports for part in report.fragments.items()]
    seconds = seconds_of(batch.reports, batch.job_seconds)
    by_query = {name: _counted(batch, manifest, name) for name in batch.queries}
    plans = {part.name: part.query.staged for part in batch.lanes}
    sent = {(name, f.number) for name, staged in plans.items() for f in staged.fragments if f.reader is not None}
    for (query, fragment), part in parts:
        total = by_query[query_of(query)]
        if (query, fragment) in sent:
            total["moved"] += part.rows_out * exchanges_of(batch, query, plans[query], fragment)
        for name in ("state_rows", "state_bytes"):
            total[name] += getattr(part, name)
        for name in ("probed", "matched", "inserted"):
            total[name] += getattr(part.work, name)
    return {
        "batch_id": batch.batch_id,
        **{kind: counted_by_stream(batch.reports, kind) for kind in ("rows", "late", "unusable")},
        "queries": by_query,
        **_instants(batch, manifest),
        "plans": {
            name: SlotPlans(plans_by_slot(query, batch.slots.count)).text if query.local else query.plan.text
            for name, query in batch.queries.items()
        },
        "migrations": {name: migrating_to(query) for name, query in batch.queries.items() if query.migrates},
        "seconds": seconds,
        "slots": slot_loads(batch.reports),
        "work": slot_work(batch.reports),
        "ran_on": sorted({report.ran_on.place for report in batch.reports if report.ran_on.place}),
        "moved": moved_bytes(batch.reports),
        "executors": {str(r.slot): r.ran_on.executor for r in batch.reports if r.ran_on.executor},
        "warnings": warnings_of(batch, manifest),
        "decisions": {
            name: account.knowledge["decided"]
            for name, account in (manifest.accounts if manifest else {}).items()
            if account.knowledge is not None
        },
    }


def _counted(batch: Batch, manifest: Manifest | None, query: str) -> dict[str, Any]:
    """What a batch did for a query, as far as it is known before the reports of its slots are added up."""
    before, after = (0 if known is None else known.account(query).results for known in (batch.before, manifest))
    zeros = dict.fromkeys(("state_rows", "state_bytes", "probed", "matched", "inserted", "moved"), 0)
    return {"results": after - before, **zeros, "sent": moved_bytes(batch.reports, query)}


def _instants(batch: Batch, manifest: Manifest | None) -> dict[str, Any]:
    """How far streams and results are: timestamps where time is one."""
    streams = {declaration.name: declaration.domain for declaration in batch.incoming.streams.values()}
    queries = {name: query.plan.domain for name, query in batch.queries.items()}
    known = {} if manifest is None else manifest.streams.registers
    released = {} if manifest is None else _released(manifest)
    return {
        "registers": {name: moment(known[name], domain) for name, domain in streams.items() if name in known},
        "released": {name: moment(released[name], domain) for name, domain in queries.items() if name in released},
    }


def _released(manifest: Manifest) -> dict[str, int]:
    """How far the results of each query are released; those of queries that were replaced are for good."""
    return {name: at for name, at in manifest.released.items() if not manifest.is_replaced(name)}


log = logging.getLogger(__name__)

Progress = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Announcements:
    """The listeners, and the last event they received."""

    listeners: list[Progress] = field(default_factory=list)
    last: dict[str, Any] | None = None

    def announce(self, progress: dict[str, Any]) -> None:
        """Logs what a batch did, warns of what needs attention, and calls the listeners."""
        self.last = progress
        if log.isEnabledFor(logging.INFO):
            log.info("%s", batch_line(progress))
        for sentence in progress["warnings"]:
            log.warning("%s", sentence)
        for listener in self.listeners:
            listener(progress)
