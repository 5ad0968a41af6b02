"""A stream that is read from a source: which rows a batch takes, and what becomes of those that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import pyarrow as pa

from midstream.checkpoint.manifest import Manifest
from midstream.connectors.files.bad_rows import BAD, FIELD, BadRow, with_bad_rows
from midstream.connectors.files.computed import Computed, computed
from midstream.connectors.retrying import answered
from midstream.connectors.source import Position, Positions, Source
from midstream.errors import InputError, JobError
from midstream.inputs import NamedSource

log = logging.getLogger(__name__)

LIMIT = "maxRowsPerTrigger"
"""The option of a stream that says how many rows a batch takes of it at most."""

USUAL_LIMIT = 100_000

FIRST_ROWS = 100
"""How many rows of a partition are looked at to know how early the rest begins."""

GUESSED_BYTES = 2**20
"""What the rows of a batch are taken for, before they were read."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of a partition between two positions.

    Their size in bytes is a guess. Once they were read, `latest` is the last of their times, in ticks.
    """

    partition: str
    start: Position
    end: Position
    size: int = 0
    latest: int | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream and its source; `computed` makes the columns of the stream out of those of the source."""

    stream: str
    source: Source
    limit: int = USUAL_LIMIT
    computed: Computed | None = None

    @staticmethod
    def opened(source: NamedSource) -> Connected:
        """The stream as it is declared; every mistake is named."""
        found = Connected(source.name, cast(Source, source.connected), limit_of(source))
        schema = found.asked(found.source.schema)
        if not found.source.replays:
            log.warning(
                "stream %s is read from %s, which cannot be read twice: rows that a batch has read are lost if the job "
                "ends before the batch is committed",
                source.name,
                found.source.name,
            )
        return Connected(source.name, found.source, found.limit, computed(source.name, schema, source.columns))

    @property
    def columns(self) -> pa.Schema:
        """The columns of the stream."""
        return self.asked(self.source.schema) if self.computed is None else self.computed.schema

    @property
    def travelling(self) -> pa.Schema:
        """The columns of what is read: those of the stream, and one for what is known of bad rows."""
        return self.columns.append(FIELD)

    def place(self) -> str:
        """What manifests call the source: its name, and what tells it from others of its name."""
        identity = self.asked(self.source.identity)
        return f"{self.source.name} [{identity}]" if identity else self.source.name

    def starts(self, manifest: Manifest | None) -> Positions:
        """Where reading goes on after a manifest; refuses a source that lacks rows from there on."""
        name, streams = self.stream, None if manifest is None else manifest.streams
        before, now = None if streams is None else streams.folders.get(name), self.place()
        if before is not None and before != now:
            same = before.partition(" [")[0] == self.source.name
            raise JobError(
                f"stream {name} was read from {before} so far and cannot go on from {now}",
                detail="how far it was read is known by positions there"
                + (": what has this name now was made again, or is on another server" if same else ""),
                hint="give the stream another name, or the job a new checkpoint, to read the source from its beginning",
            )
        known = {} if streams is None else dict(streams.positions.get(name, {}))
        starts = self.with_new(known)
        self.asked(lambda: self.source.require(starts))
        if known:
            self.asked(lambda: self.source.commit(known))  # a job may have ended before it could say so
        return starts

    def with_new(self, known: Positions) -> Positions:
        """Positions with the beginnings of partitions that have come since."""
        return {**self.asked(self.source.partitions), **known}

    def waiting(self, starts: Positions) -> list[Span]:
        """The rows that wait behind some positions."""
        ends = ((part, start, self.end(part, start)) for part, start in starts.items())
        return [Span(part, start, end) for part, start, end in ends if start != end]

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        """Up to where rows of a partition can be read now."""
        return self.asked(lambda: self.source.end(partition, start, limit))

    def lag(self, partition: str, start: Position) -> int | None:
        """How many rows of a partition wait behind a position; None if that is not known."""
        return self.asked(lambda: self.source.lag(partition, start))

    def divided(self, spans: list[Span]) -> tuple[list[Span], list[Span]]:
        """What a batch takes of rows that wait, and the rest: of each partition the same number at most."""
        now, later = [], []
        for span in spans:
            cut = first(self._most(span.partition, span.start, len(spans)), span.end)
            now.append(Span(span.partition, span.start, cut, GUESSED_BYTES // len(spans)))
            if cut != span.end:
                later.append(Span(span.partition, cut, span.end))
        return now, later

    def _most(self, partition: str, start: Position, partitions: int) -> Position:
        """Up to where a batch may read a partition, one of so many that it reads."""
        return self.end(partition, start, max(1, self.limit // partitions))

    def left(self, before: Positions, after: Positions) -> list[Span]:
        """The rows that a batch has left in partitions of which it took all that it may."""
        starts = before if after.keys() <= before.keys() else self.with_new(before)
        read = {part: at for part, at in after.items() if starts[part] != at}
        left = self.waiting(read)  # asked first, as a source may remember how far it reaches
        most = {span.partition: self._most(span.partition, starts[span.partition], len(read)) for span in left}
        return [span for span in left if first(most[span.partition], span.start) == most[span.partition]]

    def first_rows(self, span: Span) -> pa.Table:
        """Some rows at the beginning of a span."""
        return self.rows(replace(span, end=first(self.end(span.partition, span.start, FIRST_ROWS), span.end)))

    def tables(self, spans: Sequence[Span]) -> list[pa.Table]:
        """The rows of spans of several partitions, as they travel."""
        self.asked(lambda: self.source.expect({span.partition: span.start for span in spans}))
        return [self.rows(span) for span in spans]

    def rows(self, span: Span) -> pa.Table:
        """The rows of a span, as they travel."""
        read = self.asked(lambda: self.source.read(span.partition, span.start, span.end))
        if BAD not in read.column_names:
            read = with_bad_rows(read, [])
        if self.computed is None:
            return read.select(self.travelling.names).cast(self.travelling)
        bad = read.column(BAD)
        good = read.filter(bad.is_null()).drop_columns([BAD])
        made, failed = self.computed.rows(good)
        known = [BadRow.of_text(text) for text in bad.drop_null().to_pylist()]
        at = {"source": self.source.name, "partition": span.partition}
        more = [BadRow(at, str(good.slice(place, 1).to_pylist()[0]), reason) for place, reason in failed.items()]
        return with_bad_rows(made, [*known, *more])

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """What a source answers; what goes wrong there is tried again, then said without any secrets."""
        failure = f"stream {self.stream} cannot be read from {self.source.name}"
        return answered(ask, f"{self.source.name} does not answer", failure=failure)


def first(one: Position, other: Position) -> Position:
    """The earlier of two positions of a partition."""
    return min(one, other)


def limit_of(source: NamedSource) -> int:
    """How many rows a batch takes of a stream at most."""
    for option in _unknown(source):
        raise InputError(
            f"stream {source.name} has the option {option}, which streams from sources do not have", hint=f"use {LIMIT}"
        )
    text = str(source.options.get(LIMIT, USUAL_LIMIT))
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{LIMIT} of stream {source.name} must be a number above zero, not {text}")
    return int(text)


def _unknown(source: NamedSource) -> Iterator[str]:
    return (option for option in source.options if option != LIMIT)
