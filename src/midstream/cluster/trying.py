"""A change tried on a job's own recent rows, beside the job and without touching it.

What queries keep of streams are rows with their times. So recent batches can be run again: from those rows, cut at
the instants at which the job's batches ended, once with the queries as they are and once with the change, each on a
checkpoint of its own that is thrown away. Older rows that are kept come first and fill the windows; they are not timed.
Both see the same rows in the same order, so whatever differs is the change's doing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.adaptation.cost_corrections import fitted
from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.statistics import UNKNOWN
from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME, length, ticks
from midstream.checkpoint.manifest import REPLACED, Manifest
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.names import is_rehearsal
from midstream.checkpoint.opening import open_segment
from midstream.checkpoint.trials import keep_trial
from midstream.cluster.options import SessionOptions, require_positive
from midstream.cluster.trial import Texts, Trial, TrialForecast
from midstream.cluster.trial_run import TrialBatches, TrialRun, TriedJob
from midstream.distribution.fragments import STAY
from midstream.errors import InputError, JobError, MidstreamError
from midstream.inputs import Duration
from midstream.job.commands.adding import Adding
from midstream.job.events import CostsCorrected
from midstream.job.job import Job
from midstream.job.queries.declared import arrivals
from midstream.job.queries.derived_windows import KeptRows, kept_of, wanted_of
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.memory import Memory
from midstream.language import parse
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import plan_query
from midstream.scheduling.schedule import schedule_of

SETTINGS = ("scheduling", "memory_per_slot")
"""The settings of a session of which others can be tried."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is tried: other texts, plans or instants of emission of queries, another number of slots, other settings."""

    texts: Texts = field(default_factory=dict)
    plans: Texts = field(default_factory=dict)
    emit_every: Mapping[str, Duration | None] = field(default_factory=dict)
    slots: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    correct: bool = True
    """Whether the job's cost constants are corrected by what was measured."""

    @staticmethod
    def of(texts: Texts | None, wanted: Mapping[str, Any]) -> Change:
        """The change that a program asks for."""
        known = {name: value for name, value in wanted.items() if value is not None}
        own = {name: known.pop(name) for name in ("plans", "emit_every", "slots", "correct") if name in known}
        if unknown := sorted(set(known) - set(SETTINGS)):
            raise InputError(
                f"another {unknown[0]} cannot be tried",
                hint=f"texts, plans, emit_every, slots, {' and '.join(SETTINGS)} can",
            )
        if "slots" in own:
            require_positive("slots", own["slots"])
        schedule_of(known.get("scheduling", "dfs"))
        Memory.of(known.get("memory_per_slot", SessionOptions.memory_per_slot))
        return Change(texts or {}, **own, settings=known)


@dataclass(frozen=True, slots=True)
class Trying:
    """Tries changes of a job; its gate is held only while kept rows are looked up."""

    job: Job
    catalog: Catalog
    run: TrialRun
    options: SessionOptions
    """How the job's session works."""

    @staticmethod
    def beside(session: Any, on: str) -> Trying:
        """Tries changes of a session's job by sessions of the same kind."""
        if on not in ("local", "spark"):
            raise InputError(f"a change cannot be tried on {on!r}", hint="use on='spark' or on='local'")
        run = TrialRun(type(session), on, getattr(session._backend, "spark", None))
        return Trying(session._job, session.catalog, run, session._options)

    def tried(self, change: Change, last: Duration) -> Trial:
        """What a change would have done to the last batches: so many, or those of a time."""
        if ticks(last, INTEGER_TIME if isinstance(last, int) else TIMESTAMP_TIME) <= 0:
            raise InputError(f"a change cannot be tried on the last {last}", hint="give a number of batches, or a time")
        manifest = self.job.manifest
        if manifest is None:
            raise JobError("the job has had no batch yet", hint="wait for its first batch")
        now = {name: getattr(self.options, name) for name in ("functions", *SETTINGS)}
        now["scheduling"] = self.job.state.settings.scheduling
        before = TriedJob(self._queries(manifest), self.job.state.slots, now)
        queries = {**before.queries, **self._changed(before, change)}
        after = TriedJob(queries, change.slots or before.slots, {**now, **change.settings})
        kept = self._kept(manifest, [*before.queries.values(), *after.queries.values()])
        rows = {name: self._read(manifest, self.catalog.streams[name], *one) for name, one in kept.items()}
        ends = self._ends(manifest, rows, last)
        cut = [_between(rows, self.catalog, since, until) for since, until in zip([None, *ends], ends, strict=False)]
        batches = TrialBatches(
            {name: StreamDeclaration(name, t.schema, self.catalog.streams[name].time) for name, t in rows.items()}, cut
        )
        if self.run.on == "spark":
            # Whoever is first there pays for what Spark compiles and starts.
            self.run.figures(before, TrialBatches(batches.streams, cut[:3]))
        old, new = (self.run.figures(side, batches) for side in (before, after))
        span, constants = ends[-1] - ends[0], self.job.watchers.constants
        found = Trial(
            len(cut) - 1,
            {name: sum(part[name].num_rows for part in cut[1:] if name in part) for name in rows},
            ends[0] + 1,
            span,
            old,
            new,
            self._forecasts(manifest, before, after, span / (len(cut) - 1)),
            constants,
            fitted([*old.handled, *new.handled], constants),
            self.run.on,
            _short_windows([before, after], kept, ends),
        )
        if change.correct and found.factors is not None:
            self.job.apply(CostsCorrected(found.factors))
        keep_trial(self.job.files, {**found.to_json(), "batch": manifest.batch_id})
        return found

    def _queries(self, manifest: Manifest) -> dict[str, RunningQuery]:
        adding, found = Adding(self.job, self.catalog.functions), dict[str, RunningQuery]()
        for name, entry in manifest.queries.items():
            if entry.status != REPLACED and not is_rehearsal(name):
                relation = parse(entry.cql, self.catalog)
                found[name] = self.job.queries.get(name) or adding.query(
                    name, entry.cql, relation, None, entry.emit_every, True
                )
        return found

    def _changed(self, before: TriedJob, change: Change) -> dict[str, RunningQuery]:
        """The queries that the change makes others; by the old one's join order, where that has one for them."""
        adding, found = Adding(self.job, self.catalog.functions), dict[str, RunningQuery]()
        for name in {**change.texts, **change.plans, **change.emit_every}:
            old = before.queries.get(name)
            if old is None and name not in change.texts:
                raise JobError(f"there is no query {name}", detail=f"the queries are {', '.join(before.queries)}")
            text = change.texts.get(name, "" if old is None else old.cql)
            relation, plan = parse(text, self.catalog), change.plans.get(name)
            every = None if old is None else old.emit_every
            if (wanted := change.emit_every.get(name)) is not None:
                every = ticks(wanted, relation.domain)
            if old is not None and (text, plan or old.plan.text, every) == (old.cql, old.plan.text, old.emit_every):
                continue
            if plan is None and old is not None:
                with suppress(MidstreamError):
                    plan = plan_query(relation, old.plan.text, every).text or None
            # Under another name nothing that the checkpoint has of the query is taken for the new one's.
            found[name] = adding.query(f"{name}_tried", text, relation, plan, every, share=False)
        return found

    def _kept(self, manifest: Manifest, queries: Sequence[RunningQuery]) -> dict[str, tuple[str, int, KeptRows]]:
        """What is kept of all streams that queries read, by which query and fragment: the longest that has all rows."""
        wanted = [source for query in queries for source in wanted_of(query)]
        found: dict[str, tuple[str, int, KeptRows]] = {}
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
            found[stream] = max(kept, key=lambda k: float("inf") if k[2].longest is None else k[2].longest)
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

    def _forecasts(
        self, manifest: Manifest, before: TriedJob, after: TriedJob, ticks: float
    ) -> dict[str, tuple[TrialForecast | None, TrialForecast]]:
        """What plans were expected to do, as decisions estimate it; a batch is so many ticks."""
        recent = metrics_of(self.job.files, manifest, 50).to_pylist()
        past = [{**row, "rows": dict(row["rows"]), "registers": dict(row["registers"])} for row in recent]

        def forecast(name: str, query: RunningQuery) -> TrialForecast:
            watcher, aliases = (
                self.job.watchers.by_query.get(name),
                {s.stream.alias: s.stream.name for s in query.sources},
            )
            known = UNKNOWN if watcher is None else watcher.observed
            if not set(aliases) <= set(known.streams):
                known = arrivals(past, aliases)
            prices = self.job.watchers.constants.by_tick(query.plan.domain)
            estimator = Estimator(known, query.plan.emission, prices)
            found, cost = estimator.cost(query.plan.logical), estimator.per_tick(query.plan.logical)
            return TrialForecast(cost, found.work, cost * ticks / prices.second, found.state_rows)

        own = {name: forecast(name, query) for name, query in before.queries.items()}
        return {name: (own.get(name), forecast(name, query)) for name, query in after.queries.items()}


def _short_windows(
    sides: Sequence[TriedJob], kept: Mapping[str, tuple[str, int, KeptRows]], ends: Sequence[int]
) -> dict[str, list[str]]:
    """The windows of queries that reach further back, from the first instant that is timed, than rows are kept."""
    found: dict[str, dict[str, None]] = {}
    for name, query in (item for side in sides for item in side.queries.items()):
        for source in (wanted.source for wanted in wanted_of(query)):
            rows = kept[source.stream.name][2].longest
            if rows is not None and (source.longest is None or ends[0] + 1 - source.longest < ends[-1] - rows):
                window, lasts = source.label.removeprefix("Source "), length(rows - 1, query.plan.domain)
                text = f"{window} is not full at first: rows of stream {source.stream.name} are kept for {lasts}"
                found.setdefault(name, {})[text] = None
    return {name: list(texts) for name, texts in found.items()}


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
