"""A change tried on a job's own recent rows, beside the job and without touching it.

What queries keep of streams are rows with their times. So recent batches can be run again: from those rows, cut at
the instants at which the job's batches ended, once with the queries as they are and once with the change, each on a
checkpoint of its own that is thrown away. Older rows that are kept come first and fill the windows; they are not timed.
Both see the same rows in the same order, so whatever differs is the change's doing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.snapshots import SnapshotComparison, snapshot_equal
from midstream.algebra.time import TIMESTAMP_TIME, ticks
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.names import is_rehearsal
from midstream.checkpoint.packs import open_segment
from midstream.distribution.fragments import STAY
from midstream.errors import JobError
from midstream.inputs import Duration
from midstream.job.commands.adding import Adding
from midstream.job.job import Job
from midstream.job.queries.declared import arrivals
from midstream.job.queries.derived_windows import KeptRows, kept_of, wanted_of
from midstream.job.queries.replacing import REPLACED
from midstream.job.queries.running_query import RunningQuery
from midstream.language import parse
from midstream.optimizer.estimates import Estimator

Texts = Mapping[str, str]
"""Texts, or plans, by the names of queries."""

PARTS = ("batch", "job", "transfer", "state", "kernel", "write")
"""The seconds of a batch that are told apart."""


@dataclass(frozen=True, slots=True)
class TriedJob:
    """Queries by name, and in how many slots they run."""

    queries: Mapping[str, RunningQuery]
    slots: int


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """How a job did: the median seconds of its batches by part, and of each query what it gave and keeps."""

    seconds: Mapping[str, float]
    queries: Mapping[str, Mapping[str, int]]
    results: Mapping[str, pa.Table] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"seconds": dict(self.seconds), "queries": {name: dict(q) for name, q in self.queries.items()}}


@dataclass(frozen=True, slots=True)
class Trial:
    """What a change did to recent batches: how the job did without and with it, and where their results differ.

    `costs` are what plans were forecast to cost by the job's cost model, before and after, by query; `since` is the
    first instant of the timed batches: results are compared from then on, on the columns that both have.
    """

    batches: int
    rows: Mapping[str, int]
    since: int
    before: TrialFigures
    after: TrialFigures
    costs: Mapping[str, tuple[float | None, float | None]]
    differences: Mapping[str, SnapshotComparison]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "batches": self.batches,
            "rows": dict(self.rows),
            "since": self.since,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "forecast": {name: {"before": old, "after": new} for name, (old, new) in self.costs.items()},
            "differences": {
                name: {
                    "equal": bool(found),
                    "reason": found.reason,
                    "instant": found.instant,
                    "only_before": list(found.only_in_x),
                    "only_after": list(found.only_in_y),
                }
                for name, found in self.differences.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Trying:
    """Tries changes of a job; its gate is held only while kept rows are looked up."""

    job: Job
    catalog: Catalog
    kind: Callable[..., Any]
    """Opens a session on a checkpoint."""

    def tried(self, texts: Texts, plans: Texts, slots: int | None, last: Duration) -> Trial:
        """What other texts, plans or slots would have done to the last batches: so many, or those of a time."""
        manifest = self.job.manifest
        if manifest is None:
            raise JobError("the job has had no batch yet", hint="wait for its first batch")
        before = TriedJob(self._queries(manifest), self.job.state.slots)
        after = TriedJob({**before.queries, **self._changed(before, texts, plans)}, slots or before.slots)
        rows = self._rows(manifest, [*before.queries.values(), *after.queries.values()])
        ends = self._ends(manifest, rows, last)
        cut = [_between(rows, self.catalog, since, until) for since, until in zip([None, *ends], ends, strict=False)]
        old, new = (self._run(side, rows, cut) for side in (before, after))
        since = ends[0] + 1
        return Trial(
            len(cut) - 1,
            {name: sum(part[name].num_rows for part in cut[1:] if name in part) for name in rows},
            since,
            old,
            new,
            self._costs(manifest, before, after),
            {name: _difference(old, new, name, since) for name in old.results if name in new.results},
        )

    def _queries(self, manifest: Manifest) -> dict[str, RunningQuery]:
        adding, found = Adding(self.job, self.catalog.functions), dict[str, RunningQuery]()
        for name, entry in manifest.queries.items():
            if entry.status != REPLACED and not is_rehearsal(name):
                relation = parse(entry.cql, self.catalog)
                found[name] = self.job.queries.get(name) or adding.query(
                    name, entry.cql, relation, None, entry.emit_every, True
                )
        return found

    def _changed(self, before: TriedJob, texts: Texts, plans: Texts) -> dict[str, RunningQuery]:
        adding, found = Adding(self.job, self.catalog.functions), dict[str, RunningQuery]()
        for name in {**texts, **plans}:
            old = before.queries.get(name)
            text = texts.get(name, "" if old is None else old.cql)
            plan, every = plans.get(name), None if old is None else old.emit_every
            relation = parse(text, self.catalog)
            # Under another name nothing that the checkpoint has of the query is taken for the new one's.
            found[name] = adding.query(f"{name}_tried", text, relation, plan, every, share=False)
        return found

    def _rows(self, manifest: Manifest, queries: Sequence[RunningQuery]) -> dict[str, pa.Table]:
        """The rows of all streams that queries read, as far back as one of them keeps them all."""
        wanted = [source for query in queries for source in wanted_of(query)]
        found: dict[str, pa.Table] = {}
        for stream in sorted({source.source.stream.name for source in wanted}):
            asked = [w for w in wanted if w.source.stream.name == stream]
            nulls = manifest.streams.nulls.get(stream, ())
            kept = [
                (name, number, rows)
                for name, query in self._queries(manifest).items()
                for number, rows in kept_of(query)
                if rows.stream == stream and not any(problem for w in asked for problem in rows.misses(w, nulls))
            ]
            if not kept or manifest.slots.shared or manifest.slots.doubled is not None:
                raise JobError(
                    f"recent rows of stream {stream} are not kept with all that the queries read",
                    hint='keep them from now on: retain = "1 hour" of the stream, or a query SELECT KEEP * FROM it',
                )
            longest = max(kept, key=lambda k: float("inf") if k[2].longest is None else k[2].longest)
            found[stream] = self._read(manifest, self.catalog.streams[stream], *longest)
        return found

    def _read(
        self, manifest: Manifest, stream: StreamDeclaration, query: str, fragment: int, kept: KeptRows
    ) -> pa.Table:
        """The rows that a state keeps, in the order of their times."""
        held, owner = manifest.segments.get(query, {}).get(fragment, {}), self._queries(manifest)[query]
        route = kept.sent or owner.staged.routes.get(stream.name, STAY)
        copies = [entries for entries in held.values() if entries][:1] if route.everywhere else held.values()
        parts = []
        for entry in (e for entries in copies for e in entries if (e.state, e.key) == (kept.state, kept.key)):
            elements = open_segment(self.job.files, entry).elements
            columns = {name: elements.columns.column(there) for name, there in kept.columns.items()}
            times = pa.array(elements.valid_from).view(stream.domain.output_type)
            parts.append(pa.table({**columns, stream.time: times.cast(stream.columns.field(stream.time).type)}))
        names = [name for name in stream.columns.names if name in kept.columns or name == stream.time]
        schema = pa.schema([stream.columns.field(name) for name in names])
        rows = pa.concat_tables([part.select(names).cast(schema) for part in parts]) if parts else schema.empty_table()
        return rows.sort_by([(stream.time, "ascending")])

    def _ends(self, manifest: Manifest, rows: Mapping[str, pa.Table], last: Duration) -> list[int]:
        """The instants at which the last batches ended; before the first, windows are filled."""
        count = last if isinstance(last, int) else None
        past = metrics_of(self.job.files, manifest, None if count is None else count + 1).to_pylist()
        if count is None:
            stretch = dt.timedelta(microseconds=ticks(last, TIMESTAMP_TIME))
            past = [row for row in past if past[-1]["at"] - row["at"] <= stretch]
        latest = [max(tick for _, tick in row["latest"]) for row in past[-1 - (count or len(past)) :] if row["latest"]]
        first = min(
            (int(_ticks(table, self.catalog.streams[name])[0]) for name, table in rows.items() if len(table)), default=0
        )
        ends = sorted({tick for tick in latest if tick >= first})
        if len(ends) < 2:
            raise JobError("too few batches have come since the oldest row that is kept", hint="wait for some more")
        return ends

    def _run(self, side: TriedJob, rows: Mapping[str, pa.Table], cut: Sequence[Mapping[str, pa.Table]]) -> TrialFigures:
        events: list[dict[str, Any]] = []
        with TemporaryDirectory(prefix="midstream-try-") as folder:
            functions = list(self.catalog.functions.values())
            session = self.kind(None, checkpoint=folder, on="local", slots=side.slots, functions=functions)
            for name, table in rows.items():
                session.stream(name, table.schema, time=self.catalog.streams[name].time, max_ahead="any")
            for name, query in side.queries.items():
                session.query(name, query.cql, plan=query.plan.text or None, emit_every=query.emit_every)
            session.on_progress(events.append)
            with session.start():
                for part in cut:
                    session.push(part)
                timed = events[1:]
                session.finish()
                results = {name: session.queries[name].results() for name in side.queries}
        seconds = {part: round(median(e["seconds"].get(part, 0.0) for e in timed), 6) for part in PARTS}
        return TrialFigures(seconds, {name: _counted(timed, name) for name in side.queries}, results)

    def _costs(
        self, manifest: Manifest, before: TriedJob, after: TriedJob
    ) -> dict[str, tuple[float | None, float | None]]:
        """What plans cost by recent rates, as decisions estimate it."""
        recent = metrics_of(self.job.files, manifest, 50).to_pylist()
        past = [{**row, "rows": dict(row["rows"]), "registers": dict(row["registers"])} for row in recent]

        def cost(query: RunningQuery | None) -> float | None:
            if query is None:
                return None
            known = arrivals(past, {s.stream.alias: s.stream.name for s in query.sources})
            prices = self.job.watchers.constants.by_tick(query.plan.query.domain)
            return round(Estimator(known, query.plan.emission, prices).per_tick(query.plan.logical), 3)

        return {name: (cost(before.queries.get(name)), cost(after.queries[name])) for name in after.queries}


def _ticks(table: pa.Table, stream: StreamDeclaration) -> Any:
    column = table.column(stream.time).combine_chunks()
    return np.asarray(column.cast(stream.domain.output_type).view(pa.int64()))


def _between(rows: Mapping[str, pa.Table], catalog: Catalog, since: int | None, until: int) -> dict[str, pa.Table]:
    """The rows of an interval, those of its end included."""
    found = {}
    for name, table in rows.items():
        ticks = _ticks(table, catalog.streams[name])
        first = 0 if since is None else int(np.searchsorted(ticks, since, "right"))
        found[name] = table.slice(first, int(np.searchsorted(ticks, until, "right")) - first)
    return {name: table for name, table in found.items() if table.num_rows} or found


def _counted(events: Sequence[Mapping[str, Any]], query: str) -> dict[str, int]:
    told = [event["queries"][query] for event in events]
    state = {name: max(one[name] for one in told) for name in ("state_rows", "state_bytes")}
    return {"results": sum(one["results"] for one in told), **state}


def _difference(old: TrialFigures, new: TrialFigures, name: str, since: int) -> SnapshotComparison:
    x, y = old.results[name], new.results[name]
    common = [column for column in x.column_names if column in y.column_names]
    x, y = (_since(table.select(common), since) for table in (x, y))
    return snapshot_equal(x, y)


def _since(table: pa.Table, since: int) -> pa.Table:
    """What is valid from an instant on."""
    first = "ts" if "valid_from" not in table.column_names else "valid_from"
    start = pa.scalar(since, pa.int64()).cast(table.schema.field(first).type)
    if first == "ts":
        return table.filter(pc.greater_equal(table[first], start))
    later = table.filter(pc.or_kleene(pc.is_null(table["valid_to"]), pc.greater(table["valid_to"], start)))
    starts = pc.max_element_wise(later["valid_from"], start)
    return later.set_column(later.schema.get_field_index("valid_from"), "valid_from", starts)
