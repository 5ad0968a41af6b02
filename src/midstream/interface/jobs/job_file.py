"""A job file: TOML with streams, queries and where the job keeps its state. Every mistake is named by its key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import UserFunction
from midstream.algebra.time import TIMESTAMP_TIME, ticks
from midstream.cluster.options import QueryOptions, SessionOptions
from midstream.connectors.registry import Option
from midstream.errors import JobError, QueryError
from midstream.inputs import StreamSettings
from midstream.inputs.tables import TIME, table_view
from midstream.interface.jobs.connectors import ConnectorSection, sink_in, source_in
from midstream.interface.jobs.keys import FUNCTION_KEYS, JOB_KEYS, OFF, QUERY_KEYS, STREAM_KEYS, TABLE_KEYS, policy_in
from midstream.interface.jobs.own_functions import function_of
from midstream.interface.jobs.sections import MISSING, Mistake, Section
from midstream.job.slots.sites import Sites, home_of, sites_of
from midstream.language.foreign import to_cql
from midstream.language.over_queries import with_queries
from midstream.optimizer.sites.links import links_of

TABLES = ("job", "streams", "tables", "queries", "functions", "spark", "links")


@dataclass(frozen=True, slots=True)
class StreamSection:
    """A stream: a source, the columns made of it, and its time."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    settings: StreamSettings = StreamSettings()
    retained: str | None = None
    """The query that keeps its rows for others, and gives nothing."""
    source: ConnectorSection | None = None
    """What it is read from, if that is none of Spark's sources and no folder; then it has no format."""
    view: str | None = None
    """Of a table: the query that gives it, out of the changes that are read."""


@dataclass(frozen=True, slots=True)
class QuerySection:
    """A query, how it works, and where its results go besides the results table."""

    name: str
    cql: str
    options: QueryOptions = QueryOptions()
    sink: ConnectorSection | None = None

    def retains(self, stream: StreamSection) -> bool:
        """Whether it is the query that keeps the rows of a stream for others."""
        return stream.retained is not None and (self.name, self.cql) == (f"retained_{stream.name}", stream.retained)


@dataclass(frozen=True, slots=True)
class JobFile:
    """All that a job file says."""

    checkpoint: str
    streams: tuple[StreamSection, ...]
    queries: tuple[QuerySection, ...]
    trigger: str | None = None
    master: str | None = None
    ticks: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)
    on: Literal["spark", "local"] = "spark"
    options: SessionOptions = SessionOptions()
    """How its session works; `options.name` is what the checkpoint knows the job by."""

    @property
    def name(self) -> str | None:
        """What the checkpoint knows the job by."""
        return self.options.name


def read_job(path: Path) -> JobFile:
    """The job in a file. Relative paths in it are relative to the file."""
    job, mistakes = read_with_mistakes(path)
    if mistakes:
        raise mistakes[0].error
    return job


def read_with_mistakes(path: Path) -> tuple[JobFile, list[Mistake]]:
    """The job in a file as far as it can be understood, and all that is wrong with its keys."""
    try:
        content = tomllib.loads(text_of(path))
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{path} is not a TOML file", detail=str(error)) from error
    return _described(content, path.resolve().parent, path.resolve().stem)


def text_of(path: Path) -> str:
    """The text of a job file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise JobError(f"cannot read the job file {path}", detail=error.strerror) from error
    except UnicodeDecodeError as error:
        raise JobError(f"{path} is not a TOML file", detail=str(error)) from error


def job_of(content: Mapping[str, Any], folder: Path, name: str | None = None) -> JobFile:
    """The job that parsed TOML describes; it is known by the name that it gives itself, else by the given one."""
    job, mistakes = _described(content, folder, name)
    if mistakes:
        raise mistakes[0].error
    return job


def _described(content: Mapping[str, Any], folder: Path, name: str | None) -> tuple[JobFile, list[Mistake]]:
    mistakes: list[Mistake] = []
    top = Section("", content, dict.fromkeys(TABLES, Option(dict, "")), mistakes)
    job = top.section(JOB_KEYS, "job")
    sites = sites_of(job.optional("sites"))
    tables = top.names("tables", needed=False)
    streams = (
        *(_stream(stream, top, folder, sites) for stream in top.names("streams", needed=not tables)),
        *(_table(table, top, folder, sites) for table in tables),
    )
    times, usual = {stream.name: stream.settings.time for stream in streams}, _policy(job, OFF)
    views = {stream.name: stream.view for stream in streams if stream.view is not None}
    queries = [_query(query, top, folder, usual, times) for query in top.names("queries", needed=False)]
    texts = {query.name: query.cql for query in queries}
    return (
        JobFile(
            _located(job.text("checkpoint"), folder),
            streams,
            (
                *(
                    replace(query, cql=with_queries(query.cql, {**texts, **views}, times.keys() - views.keys()))
                    for query in queries
                ),
                *(QuerySection(f"retained_{s.name}", s.retained) for s in streams if s.retained is not None),
            ),
            job.optional("trigger"),
            job.optional("master"),
            bool(job.optional("ticks")),
            {key: str(value) for key, value in (top.optional("spark") or {}).items()},
            "local" if job.optional("on") == "local" else "spark",
            replace(_options(job, top, name, sites), functions=tuple(_functions(top, folder))),
        ),
        mistakes,
    )


def _functions(top: Section, folder: Path) -> Iterator[UserFunction]:
    for name in top.names("functions", needed=False):
        entry = top.section(FUNCTION_KEYS, "functions", name)
        with top.noting(f"functions.{name}"):
            yield function_of(name, {key: entry.optional(key) for key in FUNCTION_KEYS}, folder)


def _options(job: Section, top: Section, name: str | None, sites: Sites) -> SessionOptions:
    known = job.given(*(f.name for f in fields(SessionOptions) if f.name in JOB_KEYS and f.name != "sites"))
    return SessionOptions(**{**known, "name": known.get("name") or name, "sites": sites, "links": _links(top, sites)})


def _links(top: Section, sites: Sites) -> Mapping[str, str]:
    wanted: Mapping[str, str] = top.optional("links") or {}
    with top.noting("links"):
        links_of(wanted, sites)
        return wanted
    return {}


def _policy(section: Section, usual: Policy) -> Policy:
    with section.noting("adaptivity"):
        return policy_in(section.content.get("adaptivity"), section.at("adaptivity"), usual)
    return usual


def _stream(name: str, top: Section, folder: Path, sites: Sites) -> StreamSection:
    return _read(name, top.section(STREAM_KEYS, "streams", name), folder, sites)


def _table(name: str, top: Section, folder: Path, sites: Sites) -> StreamSection:
    """A table: the stream of its changes, and the query that makes it of these."""
    entry = top.section(TABLE_KEYS, "tables", name)
    key, op = entry.optional("key") or [], entry.optional("op")
    changes, view = entry.optional("changes") or ("upserts" if key else "rows"), None
    if name in top.content.get("streams", {}):
        entry.refuse(
            "key", JobError(f"{name} is the name of a stream and of a table", hint="name one of them otherwise")
        )
    with entry.noting("key"):
        view = table_view(name, [key] if isinstance(key, str) else key, changes, op)
    stream = _read(name, entry, folder, sites)
    if changes == "debezium" and not entry.optional("time"):
        stream = replace(stream, settings=replace(stream.settings, time=TIME))
    return replace(stream, view=view)


def _read(name: str, entry: Section, folder: Path, sites: Sites) -> StreamSection:
    """What a stream, or the changes of a table, are read from."""
    path = entry.optional("path")
    with entry.noting("site"):
        home_of(name, entry.optional("site"), sites)
    return StreamSection(
        name,
        MISSING if "source" in entry.content else entry.text("format"),
        None if path is None else _located(path, folder),
        columns=tuple(entry.optional("columns") or ()),
        options={key: str(value) for key, value in (entry.optional("options") or {}).items()},
        settings=StreamSettings(**entry.given(*(each.name for each in fields(StreamSettings)))),
        retained=_retained(name, entry),
        source=_source(entry, folder),
        **entry.given("schema"),
    )


def _retained(name: str, entry: Section) -> str | None:
    retain, keep = entry.optional("retain"), entry.optional("keep") or []
    if keep and retain is None:
        entry.refuse("keep", JobError(f"{entry.at('keep')} needs {entry.at('retain')}: for how long columns are kept"))
    if isinstance(retain, str) and not retain.strip().isdigit():
        try:
            ticks(retain, TIMESTAMP_TIME)
        except QueryError as error:
            entry.refuse("retain", error)
            return None
    columns = ", ".join("*" if column == "*" else f'"{column}"' for column in keep or ["*"])
    return None if retain is None else f'SELECT KEEP {columns} FROM "{name}" [RANGE {retain}]'


def _source(entry: Section, folder: Path) -> ConnectorSection | None:
    value = entry.optional("source")
    for key in ("format", "path") if value is not None else ():
        if key in entry.content:
            entry.refuse(key, JobError(f"{entry.at(key)} and {entry.at('source')} exclude each other"))
    with entry.noting("source"):
        return None if value is None else source_in(value, entry.optional("schema"), entry.at("source"), folder)
    return None


def _query(name: str, top: Section, folder: Path, usual: Policy, times: Mapping[str, str]) -> QuerySection:
    entry = top.section(QUERY_KEYS, "queries", name)
    cql, dialect = entry.text("cql"), entry.optional("dialect")
    if dialect:
        with entry.noting("cql"):
            cql = to_cql(cql, dialect, times)
    said = entry.given("plan", "emit_every", "on_error", "incomplete", "since", "backfill_rate")
    return QuerySection(name, cql, QueryOptions(adaptive=_policy(entry, usual), **said), _sink(entry, folder))


def _sink(entry: Section, folder: Path) -> ConnectorSection | None:
    with entry.noting("sink"):
        return sink_in(entry.optional("sink"), entry.at("sink"), folder)
    return None


def _located(path: str, folder: Path) -> str:
    """A path seen from the folder of the job file; one that is missing stays missing."""
    return path if path == MISSING or ":" in path or path.startswith("/") else str(folder / path)
