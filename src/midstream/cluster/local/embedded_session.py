"""A session in this process: streams that rows are pushed into, and continuous queries that come and go meanwhile.

Queries share what they have in common. A new query starts from the present content of what it shares, and with nothing
of the rest; its history says which. A stream that is silent while others come says on demand how far it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pyarrow as pa

from midstream.algebra.declarations import Catalog, functions_by_name
from midstream.algebra.physical import PhysicalNode
from midstream.algebra.plan import ToStream, streams_of
from midstream.algebra.time import BEGINNING, ticks
from midstream.checkpoint.process import BelievedTime
from midstream.cluster.any_session import Session
from midstream.cluster.local.embedded_query import EmbeddedQuery
from midstream.cluster.local.live_query import LiveQuery
from midstream.cluster.local.session_streams import SessionStream
from midstream.cluster.local.shared_parts import Owner, SharedPart, SharedParts, frontier_of
from midstream.cluster.local.shared_windows import inherit_windows, unify
from midstream.cluster.options import ON_A_CHECKPOINT, QueryOptions, SessionOptions
from midstream.errors import InputError, JobError, QueryError, query_in
from midstream.inputs import StreamSettings, table_of
from midstream.job.gate import Turn
from midstream.job.outputs.progress import Waits, is_worth_a_warning, silences, unexpected, wait_text, waits
from midstream.job.task.ingest import DeadLetters, counted, warn_of
from midstream.language import parse
from midstream.migration.execution import Execution, SingleBox
from midstream.operators.elements import Elements
from midstream.operators.state.segment import Segment
from midstream.optimizer.fixed_plan import fixed
from midstream.optimizer.plans import Plan, plan_query
from midstream.scheduling.schedule import Schedule, schedule_of
from midstream.scheduling.sharing import core_of, taps_in

log = logging.getLogger(__name__)


class EmbeddedSession(Session):
    """Continuous queries in this process, all in memory. Threads may share it: each call has the turn by itself."""

    def _prepare(self, options: SessionOptions, spark: Any, checkpoint: Any, on: object) -> None:
        options.require_memory()
        self.functions = functions_by_name(list(options.functions))
        self.streams: dict[str, SessionStream] = {}
        self._queries: dict[str, EmbeddedQuery] = {}
        self.parts = SharedParts(self.functions)
        self.stopped = False
        self.turn = Turn()
        self._clock, self._time = options.clock, BelievedTime()
        self._pushes = 0
        self._silent: dict[str, int] = {}
        self._scheduling = schedule_of(options.scheduling or "dfs")

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
            for execution in self._executions():
                if isinstance(execution, SingleBox):
                    execution.scheduler.schedule = self._scheduling

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
        physical, fresh = self._shared(chosen) if options.share else (chosen.physical, ())
        live = LiveQuery(
            fixed(chosen, physical) if taps_in(physical) else chosen, self.functions, schedule=self._scheduling
        )
        query = EmbeddedQuery(self, name, cql, live, self._begin(live), every, options.keep)
        self._inherit(query, fresh, options.share)
        self.queries[name] = query
        return query

    def drop(self, name: str) -> None:
        with self.turn.taken("drop"):
            query = query_in(self.queries, name)
            del self.queries[name]
            query.events.append({"event": "dropped", "at": query.frontier})
            self.parts.leave(name, query.live.sources)

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
        for name, batch in batches.items():
            self._feed(name, batch)
            self.streams[name].raise_register()
        for name, silent in self.streams.items():
            if name not in batches or batches[name].num_rows == 0:
                silent.demand(self._now(name), before[name])
        self._advance()
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
            self._advance()
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

    def _feed(self, name: str, batch: pa.RecordBatch) -> None:
        rows, times = self.streams[name].accept(batch, self._now(name))
        if len(times) == 0:
            return
        self.parts.feed(name, rows, times)
        for query in self.queries.values():
            query.live.feed(name, rows, times)

    def _advance(self) -> None:
        known = self.parts.advance(self._registers())
        for query in self.queries.values():
            self.parts.hand_over(query.name, query.live.execution)
            query.take(query.live.advance(known))
        unify(self._owners())

    def _shared(self, plan: Plan) -> tuple[PhysicalNode, Sequence[str]]:
        """The plan with taps on what others run already, and the parts that were made for it just now."""
        physical = self.parts.share(plan.physical, self.queries.values(), self._scheduling)
        core = None if taps_in(physical) else core_of(plan.query, plan.emission)
        if core is None:
            return physical, ()
        part = self.parts.with_core(core)
        if part is not None:
            return core.above(part.plan, part.name), ()
        alike = [q.core.needed for q in self.queries.values() if q.core and q.core.signature == core.signature]
        if not alike:
            return physical, ()
        columns = core.needed.union(*alike)
        part = self.parts.new_core(core, columns, self._registers(), self._pushes + 1, self._scheduling)
        known = inherit_windows(part, part.execution, self._others(part))
        part.output.clear()  # what follows from the inherited content belongs to the part's present
        return core.above(part.plan, part.name), () if known else (part.name,)

    def _begin(self, live: LiveQuery) -> int:
        """Sets a new query to where its streams are; gives the instant from which on its results are whole."""
        frontier = frontier_of(live.sources, self.parts.registers(self._registers()))
        if frontier > BEGINNING:
            live.frontier = frontier
            live.execution.restore(frontier)
        # A part remembers only what is valid after its own frontier, which may be ahead of the query's.
        parts = [self.parts.named[tap.stream.name] for tap in taps_in(live.plan.physical)]
        shared = [max(part.frontier, part.whole_from) for part in parts]
        start = max([frontier, *shared])
        # What changed at an instant shows only to those who also know the instant before.
        return start + 1 if shared and start > BEGINNING and isinstance(live.plan.query, ToStream) else start

    def _inherit(self, query: EmbeddedQuery, fresh: Sequence[str], share: bool) -> None:
        """Gives a new query the present content of what it shares; its history says since which push that is kept."""
        inherited: dict[str, int] = {}
        query.since = {source.stream.alias: self._pushes + 1 for source in query.live.sources}
        taps = taps_in(query.plan.physical)
        for tap in taps:
            part = self.parts.named[tap.stream.name]
            part.join(query.name)
            query.since |= part.since
            if part.name not in fresh:
                inherited |= {alias: push for alias, push in part.since.items() if push <= self._pushes}
                self._give(query, tap.stream.alias, part.present())
        if share and isinstance(query.live.execution, SingleBox):
            known = inherit_windows(query, query.live.execution, self._owners())
            at = isinstance(query.plan.query, ToStream)
            query.start = max([query.start, *(window.whole_from + at for window in known.values())])
            inherited |= {alias: window.since for alias, window in known.items()}
        query.events.append(
            {
                "event": "started",
                "at": None if query.start == BEGINNING else query.start,
                "shares": sorted(tap.stream.name for tap in taps),
                "inherited": dict(sorted(inherited.items())),
            }
        )

    def _give(self, query: EmbeddedQuery, alias: str, content: Elements) -> None:
        if len(content):
            query.live.execution.feed(alias, content)

    def _others(self, part: SharedPart) -> list[Owner]:
        return [owner for owner in self._owners() if owner is not part]

    def _owners(self) -> list[Owner]:
        return [*self.queries.values(), *self.parts.named.values()]

    def _executions(self) -> Iterator[Execution]:
        yield from (part.execution for part in self.parts.named.values())
        yield from (query.live.execution for query in self.queries.values())

    def _segments(self) -> Iterator[Segment]:
        for execution in self._executions():
            for state in execution.states():
                yield from state.segments
