"""A job file: TOML with streams, queries and where the job keeps its state. Every mistake is named by its key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, cast

from midstream.adaptation.policy import Policy
from midstream.adaptation.scaling import SlotRange
from midstream.algebra.declarations import Timestamps, UserFunction
from midstream.checkpoint.retention import Retention
from midstream.cluster.options import SessionOptions
from midstream.errors import JobError, MidstreamError
from midstream.interface.jobs.adaptivity import OFF, policy_in
from midstream.interface.jobs.keys import FUNCTION_KEYS, JOB_KEYS, QUERY_KEYS, STREAM_KEYS, Key
from midstream.interface.jobs.own_functions import function_of
from midstream.interface.jobs.sinks import SinkSection, sink_in
from midstream.job.queries.faults import OnError
from midstream.job.slots.sites import Sites, home_of, sites_of
from midstream.job.task.exchange import chosen_bits
from midstream.job.task.memory import Memory, bytes_of
from midstream.optimizer.sites.links import links_of

TABLES = ("job", "streams", "queries", "functions", "spark", "links")

MISSING = ""
"""What stands for a text that is missing, in a job with mistakes."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong at a place of the file, such as `streams.orders.schema`; `part` is the text that is wrong."""

    place: str
    error: MidstreamError
    part: str | None = None

    @property
    def sentence(self) -> str:
        """What is wrong, with its place named once: many messages name it themselves."""
        message = self.error.message
        return message if self.place in message.split() else f"{self.place}: {message}"


@dataclass(frozen=True, slots=True)
class StreamSection:
    """A stream: a Spark source, the columns made of it, and its time."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    time: str = "ts"
    lateness: str | int = 0
    columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    timestamps: Timestamps = "external"
    skew: str | int | None = None
    max_ahead: str | int = "clock"
    site: str | None = None


@dataclass(frozen=True, slots=True)
class QuerySection:
    """A query, the plan it starts with, and where its results go besides the results table."""

    name: str
    cql: str
    plan: str | None = None
    emit_every: str | int | None = None
    sink: SinkSection | None = None
    adaptive: Policy = OFF
    on_error: OnError | None = None


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
    top = _Section("", content, dict.fromkeys(TABLES, Key((dict,), "")), mistakes)
    job = top.section(JOB_KEYS, "job")
    sites = _sites(job)
    streams = tuple(_stream(stream, top, folder, sites) for stream in top.names("streams"))
    usual = _policy(job, OFF)
    queries = tuple(_query(query, top, folder, usual) for query in top.names("queries", needed=False))
    return (
        JobFile(
            _located(job.text("checkpoint"), folder),
            streams,
            queries,
            job.optional("trigger"),
            job.optional("master"),
            bool(job.optional("ticks")),
            {key: str(value) for key, value in (top.optional("spark") or {}).items()},
            "local" if job.choice("on", "spark") == "local" else "spark",
            replace(_options(job, top, name, sites), functions=tuple(_functions(top, folder))),
        ),
        mistakes,
    )


def _functions(top: _Section, folder: Path) -> Iterator[UserFunction]:
    for name in top.names("functions", needed=False):
        entry = top.section(FUNCTION_KEYS, "functions", name)
        with top.noting(f"functions.{name}"):
            yield function_of(name, {key: entry.optional(key) for key in FUNCTION_KEYS}, folder)


def _options(job: _Section, top: _Section, name: str | None, sites: Sites) -> SessionOptions:
    usual = SessionOptions()
    return SessionOptions(
        scheduling=job.optional("scheduling"),
        slots=_slots(job),
        retained=_positive(job, "retained", None) or usual.retained,
        carry="all" if job.choice("carry", "needed") == "all" else "needed",
        memory_per_slot=_memory(job),
        rebalancing=bool(job.optional("rebalancing")),
        group_bits=_group_bits(job),
        metrics_retained=_positive(job, "metrics_retained", None) or usual.metrics_retained,
        name=job.optional("name") or name,
        small_batches=_small_batches(job),
        retention=_retention(job),
        sites=sites,
        links=_links(top, sites),
    )


def _sites(job: _Section) -> Sites:
    with job.noting("sites"):
        return sites_of(job.optional("sites"))
    return {}


def _links(top: _Section, sites: Sites) -> Mapping[str, str]:
    wanted: Mapping[str, str] = top.optional("links") or {}
    with top.noting("links"):
        links_of(wanted, sites)
        return wanted
    return {}


def _group_bits(job: _Section) -> int | None:
    bits: int | None = job.optional("group_bits")
    try:
        return None if bits is None else chosen_bits(bits)
    except JobError as error:
        job.refuse("group_bits", error)
        return None


def _positive(job: _Section, key: str, usual: int | None) -> int | None:
    number: int | None = job.optional(key)
    if number is not None and number < 1:
        job.refuse(key, JobError(f"{job.at(key)} must be above zero, not {number}"))
        return usual
    return usual if number is None else number


def _slots(job: _Section) -> int | str | None:
    """A number of slots, or a range of them."""
    wanted = job.optional("slots")
    if not isinstance(wanted, str):
        return _positive(job, "slots", None)
    try:
        SlotRange.of(wanted, job.at("slots"))
    except JobError as error:
        job.refuse("slots", error)
        return None
    return wanted


def _memory(job: _Section) -> int | str:
    size: int | str | None = job.optional("memory_per_slot")
    if size is None:
        return SessionOptions.memory_per_slot
    with job.noting("memory_per_slot"):
        Memory.of(size, job.at("memory_per_slot"))
    return size


def _small_batches(job: _Section) -> int | str | None:
    size: int | str | None = job.optional("small_batches")
    with job.noting("small_batches"):
        if size is not None and bytes_of(size, job.at("small_batches")) < 0:
            raise JobError(f"{job.at('small_batches')} cannot be {size!r}", hint="0 has executors run all batches")
        return size
    return None


def _retention(job: _Section) -> Mapping[str, str]:
    wanted: Mapping[str, str] = job.optional("retention") or {}
    with job.noting("retention"):
        Retention.of(wanted, job.at("retention"))
        return wanted
    return {}


def _policy(section: _Section, usual: Policy) -> Policy:
    with section.noting("adaptivity"):
        return policy_in(section.content.get("adaptivity"), section.at("adaptivity"), usual)
    return usual


def _stream(name: str, top: _Section, folder: Path, sites: Sites) -> StreamSection:
    entry = top.section(STREAM_KEYS, "streams", name)
    path = entry.optional("path")
    columns = entry.optional("columns") or []
    for column in columns:
        if not isinstance(column, str):
            wrong = JobError(f"{entry.at('columns')} must be a list of expressions, not {column!r}")
            entry.refuse("columns", wrong)
    ahead, site = entry.optional("max_ahead"), entry.optional("site")
    with entry.noting("site"):
        home_of(name, site, sites)
    return StreamSection(
        name,
        entry.text("format"),
        None if path is None else _located(path, folder),
        entry.optional("schema"),
        entry.optional("time") or "ts",
        entry.optional("lateness") or 0,
        tuple(column for column in columns if isinstance(column, str)),
        {key: str(value) for key, value in (entry.optional("options") or {}).items()},
        cast(Timestamps, entry.choice("timestamps", "external")),
        entry.optional("skew"),
        "clock" if ahead is None else ahead,
        site,
    )


def _query(name: str, top: _Section, folder: Path, usual: Policy) -> QuerySection:
    entry = top.section(QUERY_KEYS, "queries", name)
    return QuerySection(
        name,
        entry.text("cql"),
        entry.optional("plan"),
        entry.optional("emit_every"),
        _sink(entry, folder),
        _policy(entry, usual),
        cast(OnError, entry.choice("on_error", "")) or None,
    )


def _sink(entry: _Section, folder: Path) -> SinkSection | None:
    with entry.noting("sink"):
        return sink_in(entry.optional("sink"), entry.at("sink"), folder)
    return None


class _Section:
    """A table of the file, which knows where it is and notes what is wrong with it."""

    def __init__(
        self, place: str, content: Mapping[str, Any], keys: Mapping[str, Key], mistakes: list[Mistake]
    ) -> None:
        self.place = place
        self.content = content
        self.keys = keys
        self.mistakes = mistakes
        self.wrong: set[str] = set()
        for key in content:
            if key not in keys:
                near = get_close_matches(key, keys, 1)
                hint = f"did you mean {near[0]}?" if near else f"use {', '.join(keys)}"
                self.refuse(key, JobError(f"unknown key {self.at(key)}", hint=hint))

    def at(self, key: str) -> str:
        """A key's full name."""
        return f"{self.place}.{key}" if self.place else key

    def refuse(self, key: str, error: MidstreamError) -> None:
        """Notes that a key's value is wrong."""
        self.wrong.add(key)
        self.mistakes.append(Mistake(self.at(key), error))

    @contextmanager
    def noting(self, key: str) -> Iterator[None]:
        """Notes an error of a key's value instead of raising it."""
        try:
            yield
        except MidstreamError as error:
            self.refuse(key, error)

    def section(self, keys: Mapping[str, Key], *path: str) -> _Section:
        """A table in this one, by the names of the tables that lead to it; empty if it is missing."""
        found: Any = self.content
        place = ".".join(path)
        for part in path:
            if part not in found:
                self.refuse(place, JobError(f"the table [{place}] is missing"))
                return _Section(place, {}, keys, [])
            found = found[part]
            if not isinstance(found, dict):
                self.refuse(place, JobError(f"{place} must be a table, not {found!r}"))
                return _Section(place, {}, keys, [])
        return _Section(place, found, keys, self.mistakes)

    def names(self, key: str, needed: bool = True) -> list[str]:
        """The names in a table of tables; at least one if they are needed."""
        found = self.content.get(key, {})
        if not isinstance(found, dict) or (needed and not found):
            self.refuse(key, JobError(f"the job has no {key}", hint=f"add a table [{key}.NAME]"))
            return []
        return list(found)

    def text(self, key: str) -> str:
        """A text that must be there; an empty one, and a mistake, if it is not."""
        if key not in self.content:
            self.refuse(key, JobError(f"{self.at(key)} is missing"))
            return MISSING
        value = self.optional(key)
        if not value and key not in self.wrong:
            self.refuse(key, JobError(f"{self.at(key)} is empty"))
        return str(value or MISSING)

    def choice(self, key: str, usual: str) -> str:
        """One of the key's choices; the usual one if nothing is said or another is."""
        value, choices = self.optional(key), self.keys[key].choices
        if value is None or value in choices:
            return str(value or usual)
        self.refuse(key, JobError(f"{self.at(key)} cannot be {value!r}", hint=f"use one of {', '.join(choices)}"))
        return usual

    def optional(self, key: str) -> Any:
        """A value of the kind that the key has, or None."""
        value, kinds = self.content.get(key), self.keys[key].kinds
        if value is None:
            return None
        if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
            wanted = " or ".join(_WORDS[kind] for kind in kinds)
            self.refuse(key, JobError(f"{self.at(key)} must be {wanted}, not {value!r}"))
            return None
        return value


_WORDS = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}


def _located(path: str, folder: Path) -> str:
    return path if ":" in path or path.startswith("/") else str(folder / path)
