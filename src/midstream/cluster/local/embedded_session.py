"""A session in this process: streams that rows are pushed into, and continuous queries that come and go meanwhile.

Queries share what they have in common. A new query starts from the present content of what it shares, and with nothing
of the rest; its history says which. A stream that is silent while others come says on demand how far it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Self
from weakref import WeakKeyDictionary

import pyarrow as pa

from midstream.algebra.declarations import Catalog, functions_by_name
from midstream.algebra.plan import ToStream, streams_of
from midstream.algebra.time import BEGINNING, ticks
from midstream.checkpoint.process import BelievedTime
from midstream.cluster.any_session import Session
from midstream.cluster.local.embedded_query import EmbeddedQuery
from midstream.cluster.local.live_query import LiveQuery
from midstream.cluster.local.session_streams import SessionStream
from midstream.cluster.local.shared_operators import (
    Begun,
    SessionGraph,
    TakenPart,
    WholeWindow,
    equal_windows,
    take_parts,
    windows_in_common,
)
from midstream.cluster.options import ON_A_CHECKPOINT, QueryOptions, SessionOptions
from midstream.errors import InputError, JobError, QueryError, query_in
from midstream.inputs import StreamSettings, table_of
from midstream.job.gate import Turn
from midstream.job.outputs.progress import Waits, is_worth_a_warning, silences, unexpected, wait_text, waits
from midstream.job.task.ingest import DeadLetters, counted, reached, warn_of
from midstream.language import parse
from midstream.migration.execution import SingleBox
from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import unify
from midstream.optimizer.cores import Columns, over_common_core
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.presence import present_parts
from midstream.scheduling.schedule import Schedule, schedule_of

log = logging.getLogger(__name__)


class EmbeddedSession(Session):
    """Continuous queries in this process, all in memory. Threads may share it: each call has the turn by itself."""

    def _prepare(self, options: SessionOptions, spark: Any, checkpoint: Any, on: object) -> None:
        options.require_memory()
        self.functions = functions_by_name(list(options.functions))
        self.streams: dict[str, SessionStream] = {}
        self._queries: dict[str, EmbeddedQuery] = {}
        self.part_names: MutableMapping[Operator, str] = WeakKeyDictionary()
        self._numbers = count(1)
        self.stopped = False
        self.turn = Turn()
        self._clock, self._time = options.clock, BelievedTime()
        self._pushes = 0
        self._silent: dict[str, int] = {}
        self._scheduling = schedule_of(options.scheduling or "dfs")
        self._graph = SessionGraph({}, self._scheduling)
        self._boxes: list[Box | None] = []
        self._equal: list[list[WholeWindow]] = []

    @property
    def catalog(self) -> Catalog:
        streams = {name: stream.declaration for name, stream in self.streams.items()}
        return Catalog(streams, self.functions, queries={name: query.cql for name, query in self._queries.items()})

    @property
    def queries(self) -> dict[str, EmbeddedQuery]:
        return self._queries

    @property
    def scheduling(self) -> Schedule:
        """Which operator runs when; may be set at any time, by name (dfs, bfs, rr, batch:K, chain) or as a value."""
        return self._scheduling

    @scheduling.setter
    def scheduling(self, wanted: str | Schedule) -> None:
        with self.turn.taken("scheduling"):
            self._scheduling = schedule_of(wanted)
            self._graph.scheduler.schedule = self._scheduling
            for query in self.queries.values():
                if isinstance(query.live.execution, SingleBox):
                    query.execution.scheduler.schedule = self._scheduling

    @property
    def dead_letters(self) -> list[DeadLetters]:
        """The rows that could not be used, and why."""
        with self.turn.taken("dead_letters"):
            return [letters for stream in self.streams.values() for letters in stream.dead]

    @property
    def state_bytes(self) -> int:
        """The size of everything remembered; what is shared counts once."""
        with self.turn.taken("state_bytes"):
            return sum({id(segment): segment.bytes for segment in self._segments()}.values())

    @property
    def state_rows(self) -> int:
        """How many rows are remembered; what is shared counts once."""
        with self.turn.taken("state_rows"):
            return sum({id(segment): len(segment) for segment in self._segments()}.values())

    def _add_stream(
        self, name: str, source: Any, settings: StreamSettings, columns: pa.Schema | None, on_demand: bool
    ) -> None:
        if name in self.streams:
            raise InputError(f"stream {name} already exists")
        if settings.site is not None:
            raise InputError("streams of a session in memory live at no site", hint=ON_A_CHECKPOINT)
        known = source if columns is None else columns
        schema = known if isinstance(known, pa.Schema) else table_of(name, known).schema
        # Pushes are counted where times are integers, so rows can be stamped with these too.
        plain = replace(settings, timestamps="external").declaration(name, schema)
        willing = on_demand and (settings.stamped or settings.skew is not None)
        made = replace(plain, timestamps=settings.timestamps, on_demand=willing)
        with self.turn.taken("stream"):
            self.streams[name] = SessionStream(made, willing)

    def query(self, name: str, cql: str, **options: Any) -> EmbeddedQuery:
        with self.turn.taken("query"):
            found = super().query(name, cql, **options)
        assert isinstance(found, EmbeddedQuery)
        return found

    def _add_query(self, name: str, cql: str, options: QueryOptions) -> EmbeddedQuery:
        if options.adaptive != "off" or options.replace or options.on_error is not None:
            self._needs_checkpoint("queries that adapt, are replaced or set rows aside")
        self._require_running()
        if name in self.queries:
            raise QueryError(f"query {name} already exists")
        relation = parse(cql, self.catalog)
        every = None if options.emit_every is None else ticks(options.emit_every, relation.domain)
        chosen = plan_query(relation, options.plan, every)
        shared, taken, columns = self._shared(chosen) if options.share else (chosen, [], None)
        live = LiveQuery(shared, self.functions, schedule=self._scheduling)
        query = EmbeddedQuery(self, name, cql, live, every, options.keep)
        query.core_columns = columns
        self._begin(query, taken, options.share)
        self.queries[name] = query
        return query

    def drop(self, name: str) -> None:
        with self.turn.taken("drop"):
            query = query_in(self.queries, name)
            del self.queries[name]
            query.events.append({"event": "dropped", "at": query.frontier})

    def start(self, trigger: str | None = None) -> Self:
        """Nothing to do here: a session in this process runs whenever rows are pushed."""
        self._require_running()
        return self

    def push(self, stream: str | Mapping[str, object], rows: object = None) -> None:
        with self.turn.taken("push"):
            self._push(dict(stream) if isinstance(stream, Mapping) else {stream: rows})

    def _push(self, given: Mapping[str, object]) -> None:
        self._require_running()
        for name in given:
            if name not in self.streams:
                raise InputError(f"there is no stream {name}", detail=f"the streams are {', '.join(self.streams)}")
        self._pushes += 1
        known = {name: len(stream.dead) for name, stream in self.streams.items()}
        batches = {name: self.streams[name].batch(value, self._now(name)) for name, value in given.items()}
        # A stream is silent if it has nothing although others were further before: see how jobs set registers.
        before = {name: self._newest(stream) for name, stream in self.streams.items()}
        graph = self.graph
        for name, batch in batches.items():
            self._feed(name, batch, graph)
            self.streams[name].raise_register()
        for name, silent in self.streams.items():
            if name not in batches or batches[name].num_rows == 0:
                silent.demand(self._now(name), before[name])
        self._advance(graph)
        self._attend({name: batch.num_rows for name, batch in batches.items()})
        warn_of(counted(dead for name, s in self.streams.items() for dead in s.dead[known[name] :]))

    @property
    def waits(self) -> list[str]:
        return [wait_text(q, wait, self.streams[wait.stream].declaration) for q, wait in self.waiting.items()]

    @property
    def waiting(self) -> Waits:
        """The streams that queries wait for which are silent while others are not."""
        if not self._silent:
            return {}
        reads = {name: {stream.name for stream in streams_of(query.plan.query)} for name, query in self.queries.items()}
        found = waits(reads, self._registers(), self._silent)
        return unexpected(found, [stream.declaration for stream in self.streams.values()])

    def _attend(self, rows: Mapping[str, int]) -> None:
        """Notices streams that queries wait for, and says so in the log."""
        self._silent = silences(self._silent, self.streams, rows)
        for query, wait in self.waiting.items() if any(rows.values()) else ():
            if is_worth_a_warning(wait.batches):
                log.warning("%s", wait_text(query, wait, self.streams[wait.stream].declaration))

    def stop(self) -> None:
        with self.turn.taken("stop"):
            if self.stopped:
                return
            for stream in self.streams.values():
                stream.close()
            self._advance(self.graph)
            self.stopped = True

    def _newest(self, silent: SessionStream) -> int:
        """The time of the newest row of all streams whose times mean the same as a silent one's."""
        domain = silent.declaration.domain
        alike = [s.latest for s in self.streams.values() if s.declaration.domain.agrees_with(domain)]
        return max(alike, default=BEGINNING)

    def _require_running(self) -> None:
        if self.stopped:
            raise JobError("the session has been stopped", hint="open a new one")

    def _now(self, name: str) -> int:
        if self._clock is not None:
            return self._clock()
        return self._pushes if self.streams[name].declaration.domain.is_integer else int(self._time.now() * 1e6)

    def _registers(self) -> dict[str, int]:
        return {name: stream.register for name, stream in self.streams.items()}

    def _feed(self, name: str, batch: pa.RecordBatch, graph: SessionGraph) -> None:
        rows, times = self.streams[name].accept(batch, self._now(name))
        if len(times) == 0:
            return
        graph.feed(name, rows, times)
        earliest, latest = int(times.min()), int(times.max())
        for query in self.queries.values():
            if query.has_one_plan:
                query.live.count(name, len(times), earliest, latest)
            else:
                query.live.feed(name, rows, times)

    def _advance(self, graph: SessionGraph) -> None:
        registers = self._registers()
        graph.advance(registers)
        for query in self.queries.values():
            query.take(query.live.advance(registers))
        boxes = [query.box for query in self.queries.values()]
        if boxes != self._boxes:
            self._boxes, self._equal = boxes, equal_windows(self.queries.values())
        unify([(w.whole_from, w.operator.frontier, w.state) for w in windows] for windows in self._equal)

    @property
    def graph(self) -> SessionGraph:
        """The operators of the queries that run by one plan each."""
        executions = {name: query.execution for name, query in self.queries.items() if query.has_one_plan}
        if executions != self._graph.executions:
            self._graph = SessionGraph(executions, self._scheduling)
        return self._graph

    def _shared(self, plan: Plan) -> tuple[Plan, list[TakenPart], Columns | None]:
        """The plan as it will run, the parts of it that others run, and the columns of its core if it has one."""
        others = list(self.queries.values())
        shared, taken = take_parts(plan, others)
        common = None if taken else over_common_core(plan, ((query.core, query.core_columns) for query in others))
        if common is None:
            return shared, taken, None
        over_core, columns = common
        return *take_parts(over_core, others), columns

    def _begin(self, query: EmbeddedQuery, taken: Sequence[TakenPart], share: bool) -> None:
        """Sets a new query to where its streams are, with the present content of what it shares; its history says since
        which push that is kept.
        """
        live, execution, pushes = query.live, query.execution, self._pushes
        # How late rows start counts also for those that came to its windows before it was there.
        latest = {source.stream.alias: self.streams[source.stream.name].latest for source in live.sources}
        live.starts = {alias: tick for alias, tick in latest.items() if tick > BEGINNING}
        passed = [part.operator.passed for part in taken]
        frontier = min([reached(live.sources, self._registers()), *passed]) if live.sources else BEGINNING
        if frontier > BEGINNING:
            live.frontier = frontier
            execution.restore(frontier)
        # A part remembers only what is valid after its own frontier, which may be ahead of the query's.
        shared = [max(part.operator.frontier, part.begun.whole_from) for part in taken]
        start, since = max([frontier, *shared]), {source.stream.alias: pushes + 1 for source in live.sources}
        inherited: dict[str, int] = {}
        # What changed at an instant shows only to those who also know the instant before.
        at = isinstance(query.plan.query, ToStream)
        start += at and bool(shared) and start > BEGINNING
        for part in taken:
            wire, begun = part.enter(execution.box), part.begun
            since |= begun.since
            inherited |= {alias: push for alias, push in begun.since.items() if push <= pushes}
            query.taken.update({operator: part.owner.begun(operator) for operator in part.operators})
            if part.operator not in self.part_names:
                self.part_names[part.operator] = f"part {next(self._numbers)}"
            for content in present_parts(part.operator, part.operator.frontier):
                execution.scheduler.send([wire], content)
        for window, kept in list(windows_in_common(query, self.queries.values())) if share else ():
            execution.scheduler.send([window.wire], kept.content())
            start = max(start, kept.whole_from + at)
            since[window.alias] = inherited[window.alias] = kept.since
        query.own = Begun(since, start)
        query.events.append(
            {
                "event": "started",
                "at": None if start == BEGINNING else start,
                "shares": sorted({self.part_names[part.operator] for part in taken}),
                "inherited": dict(sorted(inherited.items())),
            }
        )

    def _segments(self) -> Iterator[Segment]:
        for query in self.queries.values():
            for state in query.live.execution.states():
                yield from state.segments
