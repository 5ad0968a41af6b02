"""What is wrong with a job, found before anything starts: schemas, paths, durations, queries, plans and sinks.

Every stream and query is looked at by itself, so that one mistake does not hide another.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa

from midstream.algebra.declarations import Catalog, StreamDeclaration, functions_by_name
from midstream.algebra.names import check_name
from midstream.algebra.plan import Relation
from midstream.algebra.time import TIMESTAMP_TIME, ticks
from midstream.checkpoint.places import JobPlaces, Place
from midstream.connectors.connected import Connected, limit_of
from midstream.connectors.files.computed import computed
from midstream.connectors.files.listing import require_folder
from midstream.connectors.files.options import FILE_FORMATS, FORMATS, require_options
from midstream.errors import InputError, JobError, MidstreamError, QueryError
from midstream.inputs import NamedSource, StreamSettings
from midstream.inputs.ddl import schema_of_ddl
from midstream.interface.jobs.connectors import ConnectorSection
from midstream.interface.jobs.job_file import JobFile, QuerySection, StreamSection
from midstream.interface.jobs.sections import Mistake
from midstream.job.queries.running_query import Beginning
from midstream.language import parse
from midstream.language.text import read
from midstream.optimizer.plans import plan_query
from midstream.scheduling.schedule import schedule_of

NEAR = 0.75
"""How like a known format a name must be to count as a slip of the pen: others may be sources that Spark was given."""

KAFKA_SERVERS = "kafka.bootstrap.servers"
KAFKA_TOPICS = ("subscribe", "subscribePattern", "assign")

SOURCE_SCHEMAS = {
    "rate": "timestamp TIMESTAMP, value BIGINT",
    "rate-micro-batch": "timestamp TIMESTAMP, value BIGINT",
    "socket": "value STRING",
    "text": "value STRING",
    "kafka": "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT",
}
"""The columns of Spark's sources that always have the same."""

OTHER_FORMATS = (*SOURCE_SCHEMAS, "delta", "iceberg")


def mistakes_of(job: JobFile, guess_types: bool = True) -> list[Mistake]:
    """All that is wrong with a job whose keys were read.

    On Spark the types of computed columns (`columns`) are Spark's to say. With `guess_types` they are taken to be what
    Midstream makes of the same expressions; otherwise queries over such streams are checked for their syntax only.
    """
    check = _Check(job, guess_types)
    check.whole_job()
    for stream in job.streams:
        check.stream(stream)
    for query in job.queries:
        check.query(query)
    return check.mistakes


def declarations_of(job: JobFile) -> dict[str, StreamDeclaration]:
    """The streams of a job that is sound, without opening their sources."""
    check = _Check(job, guess_types=True)
    for stream in job.streams:
        check.stream(stream)
    return check.known


@dataclass
class _Check:
    job: JobFile
    guess_types: bool
    mistakes: list[Mistake] = field(default_factory=list)
    known: dict[str, StreamDeclaration] = field(default_factory=dict)
    places: JobPlaces = field(default_factory=JobPlaces)

    def note(self, place: str, act: Callable[[], object], part: str | None = None) -> bool:
        """Whether something works; if not, it is noted."""
        with self.noting(place, part):
            act()
            return True
        return False

    @contextmanager
    def noting(self, place: str, part: str | None = None) -> Iterator[None]:
        """Notes what is wrong instead of raising it."""
        try:
            yield
        except MidstreamError as error:
            self.mistakes.append(Mistake(place, error, part or getattr(error, "part", None)))

    def whole_job(self) -> None:
        """Settings of the job itself."""
        job = self.job
        if job.trigger is not None and job.trigger != "available":
            self.note("job.trigger", lambda: _interval(str(job.trigger)), job.trigger)
        if (scheduling := job.options.scheduling) is not None:
            self.note("job.scheduling", lambda: schedule_of(scheduling), str(scheduling))
        if job.checkpoint:
            self.note("job.checkpoint", lambda: self._require_checkpoint(job.checkpoint))

    def _require_checkpoint(self, checkpoint: str) -> None:
        self.places = JobPlaces.of(checkpoint)
        _require_writable(checkpoint, "the checkpoint")

    def stream(self, stream: StreamSection) -> None:
        """A stream: its name, source and path, then its columns, then its durations."""
        place = f"streams.{stream.name}"
        named = self.note(place, lambda: self._require_name(stream.name))
        if named and stream.source is not None:
            self._source(stream, stream.source, place)
        if not (named and stream.format):
            return
        readable = self.note(f"{place}.format", lambda: self._require_format(stream), stream.format)
        if readable:
            self.note(f"{place}.path", lambda: self._require_path(stream))
        self.note(f"{place}.options", lambda: self._require_options(stream))
        self._durations(stream, place)
        columns = self._columns(stream, place, readable)
        if columns is not None:
            self._declare(stream, columns, place)

    def _source(self, stream: StreamSection, source: ConnectorSection, place: str) -> None:
        """A stream that is read from a source, which is asked for its columns."""
        self._durations(stream, place)
        named = NamedSource(stream.name, source.kind, options=stream.options, columns=stream.columns)
        self.note(f"{place}.options", lambda: limit_of(named))
        with self.noting(source.place):
            columns = Connected.opened(replace(named, options={}, connected=source.made())).columns
            self._declare(stream, columns, place)

    def _declare(self, stream: StreamSection, columns: pa.Schema, place: str) -> None:
        settings = StreamSettings(stream.settings.time, timestamps=stream.settings.timestamps)
        with self.noting(f"{place}.time"):
            self.known[stream.name] = settings.declaration(stream.name, columns)
            self._durations(stream, place, self.known[stream.name])

    def _durations(self, stream: StreamSection, place: str, declared: StreamDeclaration | None = None) -> None:
        """Durations: whether they are any before the columns are known, then whether they suit the time column."""
        for key in ("lateness", "skew", "max_ahead"):
            at, value = f"{place}.{key}", getattr(stream.settings, key)
            if value in (0, None, "clock", "any") or at in {mistake.place for mistake in self.mistakes}:
                continue
            if declared is not None:
                settings = {key: value}
                self.note(
                    at,
                    lambda settings=settings: StreamSettings(stream.settings.time, **settings).declaration(  # type: ignore[misc]
                        stream.name, declared.columns
                    ),
                    str(value),
                )
            elif isinstance(value, str) and not value.strip().isdigit():
                self.note(at, lambda value=value: ticks(value, TIMESTAMP_TIME), value)  # type: ignore[misc]

    def _require_name(self, name: str) -> None:
        check_name("stream", name)
        if self.job.on == "spark" and "-" in name:
            raise InputError(
                f"stream {name} cannot be named so", hint="Spark's sources are named by letters, digits and _"
            )

    def _require_format(self, stream: StreamSection) -> None:
        formats = FORMATS if self.job.on == "local" else (*FILE_FORMATS, *OTHER_FORMATS)
        wanted = stream.format if self.job.on == "local" else stream.format.lower()
        if wanted in formats:
            return
        near = get_close_matches(wanted, formats, 1, NEAR)
        if self.job.on == "local":
            raise InputError(
                f"stream {stream.name} has the format {stream.format!r}, which cannot be read in this process",
                hint=f"did you mean {near[0]}?" if near else f"use one of {', '.join(FORMATS)}, or run on Spark",
            )
        if near:
            raise InputError(f"there is no format {stream.format!r}", hint=f"did you mean {near[0]}?")

    def _require_options(self, stream: StreamSection) -> None:
        if self.job.on == "local":
            require_options(stream.name, stream.format, stream.options)
        elif stream.format.lower() in FORMATS:
            require_options(stream.name, stream.format.lower(), stream.options, on_spark=True)
        elif stream.format.lower() == "kafka":
            if KAFKA_SERVERS not in stream.options:
                raise InputError(f"stream {stream.name} does not say where Kafka is", hint=f"add {KAFKA_SERVERS}")
            if sum(option in stream.options for option in KAFKA_TOPICS) != 1:
                raise InputError(
                    f"stream {stream.name} does not say which topics it reads",
                    hint=f"give exactly one of the options {', '.join(KAFKA_TOPICS)}",
                )

    def _require_path(self, stream: StreamSection) -> None:
        if stream.format.lower() not in FILE_FORMATS:
            return
        if not stream.path:
            raise InputError(f"stream {stream.name} of format {stream.format} has no path")
        path = stream.path.removeprefix("file://")
        if "://" in path:
            return
        self.places.reads(stream.name, path, stream.options)
        if self.job.on == "local" or not glob.glob(path) or os.path.exists(path):
            require_folder(stream.name, Path(path))

    def _columns(self, stream: StreamSection, place: str, readable: bool) -> pa.Schema | None:
        """The columns that queries see; None if they cannot be known here."""
        text = stream.schema or SOURCE_SCHEMAS.get(stream.format.lower())
        if text is None:
            if readable and stream.format.lower() in FILE_FORMATS and not _infers(self.job):
                hint = 'add for instance schema = "id BIGINT, ts TIMESTAMP"'
                self.mistakes.append(Mistake(place, InputError(f"stream {stream.name} has no schema", hint=hint)))
            return None
        columns: pa.Schema | None = None
        with self.noting(f"{place}.schema"):
            columns = schema_of_ddl(text, f"the schema of stream {stream.name}")
        if not stream.columns or columns is None:
            return columns
        try:
            made = computed(stream.name, columns, stream.columns)
            assert made is not None  # there are expressions
        except MidstreamError as error:
            if self.job.on == "local":  # on Spark it may be an expression that Spark alone knows
                self.mistakes.append(Mistake(f"{place}.columns", error))
            return None
        return made.schema if self.guess_types or self.job.on == "local" else None

    def query(self, query: QuerySection) -> None:
        """A query: its name and text, then its plan, period of emission and sink."""
        place = f"queries.{query.name}"
        self.note(place, lambda: check_name("query", query.name))
        if (sink := query.sink) is not None:
            self.note(sink.place, lambda: self._require_sink(query.name, sink))
        relation = self._relation(query, place) if query.cql else None
        every, plan = query.options.emit_every, query.options.plan
        if relation is None:
            if isinstance(every, str) and not every.strip().isdigit():
                self.note(f"{place}.emit_every", lambda: _interval(every), every)
            return
        if every is not None:
            self.note(f"{place}.emit_every", lambda: _positive(ticks(every, relation.domain), every), str(every))
        if plan is not None:
            self.note(f"{place}.plan", lambda: plan_query(relation, plan), str(plan))
        since = query.options.since
        self.note(f"{place}.since", lambda: Beginning.since_tick(since, relation.domain), str(since))

    def _relation(self, query: QuerySection, place: str) -> Relation | None:
        try:
            read(query.cql)
            return parse(query.cql, Catalog(self.known, functions_by_name(list(self.job.options.functions))))
        except MidstreamError as error:
            if not self._is_unknown_stream(error):
                kept = next((s.name for s in self.job.streams if query.retains(s)), None)
                self.mistakes.append(Mistake(f"{place}.cql" if kept is None else f"streams.{kept}.retain", error))
        return None

    def _is_unknown_stream(self, error: MidstreamError) -> bool:
        """Whether the error is only that a declared stream's columns are not known here."""
        placed = isinstance(error, QueryError) and error.text is not None and error.position is not None
        if not placed or not error.message.startswith("unknown stream "):
            return False
        unknown = {stream.name.lower() for stream in self.job.streams if stream.name not in self.known}
        return error.message.removeprefix("unknown stream ").lower() in unknown

    def _require_sink(self, query: str, sink: ConnectorSection) -> None:
        """Refuses a sink whose variables are not set, or whose places cannot be written or are somebody else's."""
        sink.made(query)
        for kind, path in sink.places():
            if kind == "folder":
                self.places.add(Place("sink", path, query))
            _require_writable(path if kind == "folder" else str(Path(path).parent), f"the {kind}")


def _interval(text: str) -> None:
    try:
        _positive(ticks(text.strip().removeprefix("interval "), TIMESTAMP_TIME), text)
    except QueryError as error:
        raise JobError(f"{text!r} is not a duration", hint="write for instance '5 seconds'") from error


def _positive(amount: int, written: object) -> None:
    if amount <= 0:
        raise JobError(f"a duration above zero is needed, not {written!r}")


def _infers(job: JobFile) -> bool:
    return job.spark.get("spark.sql.streaming.schemaInference", "false").lower() == "true"


def _require_writable(path: str, what: str) -> None:
    """Refuses a local path whose nearest folder that exists cannot be written to."""
    path = path.removeprefix("file://")
    if ":" in path.split("/")[0]:
        return
    for folder in _upwards(Path(path).absolute()):
        if folder.exists():
            if not folder.is_dir():
                raise JobError(f"{what} cannot be {path}: {folder} is a file")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise JobError(f"{what} {path} cannot be written", detail=f"no right to write into {folder}")
            return


def _upwards(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents
