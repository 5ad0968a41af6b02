"""A job file: TOML with streams, queries and where the job keeps what it knows. Every mistake is told by its key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, cast, get_args

from midstream.adaptation.policy import Policy
from midstream.algebra.declarations import Timestamps
from midstream.errors import JobError
from midstream.interface.jobs.adaptivity import OFF, policy_in
from midstream.job.task.memory import Memory

JOB_KEYS = (
    *("name", "checkpoint", "trigger", "slots", "master", "ticks", "retained", "memory_per_slot", "metrics_retained"),
    *("carry", "scheduling", "adaptivity", "rebalancing", "on"),
)
SINKS = ("table", "console", "folder")


@dataclass(frozen=True, slots=True)
class StreamEntry:
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


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A query, the plan it starts with, and where its results go besides the results table."""

    name: str
    cql: str
    plan: str | None = None
    emit_every: str | int | None = None
    sink: str = "table"
    folder: str | None = None
    adaptive: Policy = OFF


@dataclass(frozen=True, slots=True)
class Job:
    """All that a job file says."""

    checkpoint: str
    streams: tuple[StreamEntry, ...]
    queries: tuple[QueryEntry, ...]
    trigger: str | None = None
    slots: int | None = None
    master: str | None = None
    ticks: bool = False
    retained: int = 10
    memory_per_slot: int | str = "1 GB"
    metrics_retained: int = 100_000
    spark: Mapping[str, str] = field(default_factory=dict)
    carry: Literal["needed", "all"] = "needed"
    scheduling: str | None = None
    rebalancing: bool = False
    name: str | None = None
    """What the checkpoint knows the job by."""
    on: Literal["spark", "local"] = "spark"


def read_job(path: Path) -> Job:
    """The job in a file. Relative paths in it are relative to the file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobError(f"cannot read the job file {path}", detail=error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is not a TOML file", detail=str(error)) from error
    return job_of(content, path.resolve().parent, path.resolve().stem)


def job_of(content: Mapping[str, Any], folder: Path, name: str | None = None) -> Job:
    """The job that parsed TOML describes; it is known by the name that it gives itself, else by the given one."""
    top = _Section("", content, ("job", "streams", "queries", "spark"))
    job = top.section("job", JOB_KEYS)
    streams = tuple(_stream(stream, top, folder) for stream in top.names("streams"))
    usual = policy_in(job.content.get("adaptivity"), job.at("adaptivity"))
    queries = tuple(_query(query, top, folder, usual) for query in top.names("queries", needed=False))
    spark = {key: str(value) for key, value in dict(content.get("spark", {})).items()}
    return Job(
        _located(job.text("checkpoint"), folder),
        streams,
        queries,
        job.optional("trigger", str),
        job.optional("slots", int),
        job.optional("master", str),
        job.flag("ticks"),
        job.optional("retained", int) or 10,
        _memory(job),
        _positive(job, "metrics_retained", 100_000),
        spark,
        _carry(job),
        job.optional("scheduling", str),
        job.flag("rebalancing"),
        job.optional("name", str) or name,
        _place(job),
    )


def _carry(job: _Section) -> Literal["needed", "all"]:
    wanted = job.optional("carry", str) or "needed"
    if wanted not in ("needed", "all"):
        raise JobError(f"{job.at('carry')} must be 'needed' or 'all', not {wanted!r}")
    return "all" if wanted == "all" else "needed"


def _place(job: _Section) -> Literal["spark", "local"]:
    wanted = job.optional("on", str) or "spark"
    if wanted not in ("spark", "local"):
        raise JobError(f"{job.at('on')} must be 'spark' or 'local', not {wanted!r}")
    return "local" if wanted == "local" else "spark"


def _positive(job: _Section, key: str, usual: int) -> int:
    number: int | None = job.optional(key, int)
    if number is not None and number < 1:
        raise JobError(f"{job.at(key)} must be above zero, not {number}")
    return usual if number is None else number


def _memory(job: _Section) -> int | str:
    size: int | str | None = job.optional("memory_per_slot", (str, int))
    if size is None:
        return "1 GB"
    Memory.of(size, job.at("memory_per_slot"))
    return size


def _stream(name: str, top: _Section, folder: Path) -> StreamEntry:
    known = ("format", "path", "schema", "time", "lateness", "columns", "options", "timestamps", "skew", "max_ahead")
    entry = top.section(f"streams.{name}", known)
    path = entry.optional("path", str)
    columns = entry.optional("columns", list) or []
    for column in columns:
        if not isinstance(column, str):
            raise JobError(f"{entry.at('columns')} must be a list of expressions, not {column!r}")
    return StreamEntry(
        name,
        entry.text("format"),
        None if path is None else _located(path, folder),
        entry.optional("schema", str),
        entry.optional("time", str) or "ts",
        entry.optional("lateness", (str, int)) or 0,
        tuple(columns),
        {key: str(value) for key, value in (entry.optional("options", dict) or {}).items()},
        _timestamps(entry),
        entry.optional("skew", (str, int)),
        "clock" if (ahead := entry.optional("max_ahead", (str, int))) is None else ahead,
    )


def _timestamps(entry: _Section) -> Timestamps:
    wanted = entry.optional("timestamps", str) or "external"
    for kind in get_args(Timestamps):
        if wanted == kind:
            return cast(Timestamps, kind)
    raise JobError(
        f"{entry.at('timestamps')} cannot be {wanted!r}", hint=f"use one of {', '.join(get_args(Timestamps))}"
    )


def _query(name: str, top: _Section, folder: Path, usual: Policy) -> QueryEntry:
    entry = top.section(f"queries.{name}", ("cql", "plan", "emit_every", "sink", "folder", "adaptivity"))
    sink = entry.optional("sink", str) or "table"
    if sink not in SINKS:
        raise JobError(f"{entry.at('sink')} cannot be {sink!r}", hint=f"use one of {', '.join(SINKS)}")
    path = entry.optional("folder", str)
    if (sink == "folder") != (path is not None):
        raise JobError(f"{entry.at('folder')} belongs to the sink 'folder', and only to it")
    return QueryEntry(
        name,
        entry.text("cql"),
        entry.optional("plan", str),
        entry.optional("emit_every", (str, int)),
        sink,
        None if path is None else _located(path, folder),
        policy_in(entry.content.get("adaptivity"), entry.at("adaptivity"), usual),
    )


class _Section:
    """A table of the file, which knows where it is."""

    def __init__(self, place: str, content: Mapping[str, Any], known: tuple[str, ...]) -> None:
        self.place = place
        self.content = content
        for key in content:
            if key not in known:
                near = get_close_matches(key, known, 1)
                raise JobError(
                    f"unknown key {self.at(key)}",
                    hint=f"did you mean {near[0]}?" if near else f"use {', '.join(known)}",
                )

    def at(self, key: str) -> str:
        """A key's full name."""
        return f"{self.place}.{key}" if self.place else key

    def section(self, place: str, known: tuple[str, ...]) -> _Section:
        """A table in this one."""
        found: Any = self.content
        for part in place.split("."):
            if part not in found:
                raise JobError(f"the table [{place}] is missing")
            found = found[part]
            if not isinstance(found, dict):
                raise JobError(f"{place} must be a table, not {found!r}")
        return _Section(place, found, known)

    def names(self, key: str, needed: bool = True) -> list[str]:
        """The names in a table of tables; at least one if they are needed."""
        found = self.content.get(key, {})
        if not isinstance(found, dict) or (needed and not found):
            raise JobError(f"the job has no {key}", hint=f"add a table [{key}.NAME]")
        return list(found)

    def text(self, key: str) -> str:
        """A text that must be there."""
        if key not in self.content:
            raise JobError(f"{self.at(key)} is missing")
        value = self.optional(key, str)
        if not value:
            raise JobError(f"{self.at(key)} is empty")
        return str(value)

    def flag(self, key: str) -> bool:
        """True or false; false if it is not there."""
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            raise JobError(f"{self.at(key)} must be true or false, not {value!r}")
        return value

    def optional(self, key: str, kind: Any) -> Any:
        """A value of a kind, or None."""
        value = self.content.get(key)
        if value is None:
            return None
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            wanted = " or ".join(_WORDS[k] for k in kinds)
            raise JobError(f"{self.at(key)} must be {wanted}, not {value!r}")
        return value


_WORDS = {str: "a text", int: "a whole number", list: "a list", dict: "a table"}


def _located(path: str, folder: Path) -> str:
    return path if ":" in path or path.startswith("/") else str(folder / path)
