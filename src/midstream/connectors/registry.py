"""Sources and sinks by name: which kinds there are, which options they take, and the package that has them.

Others can add kinds by an entry point of the group `midstream.sources` or `midstream.sinks`, which names a class as
those here are.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from midstream.connectors.environment import expanded
from midstream.errors import JobError, instead_of

NOT_CONNECTED = ("table", "console")
"""The sinks that have no options: nothing more than the results table, and the first rows of each batch."""


KINDS: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of texts",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a source or sink, or a key of a job file: its kinds of values, its choices and its meaning.

    One that is a place is a path relative to the job file: of a file or a folder.
    """

    kind: type | tuple[type, ...]
    meaning: str
    choices: tuple[str, ...] = ()
    needed: bool = False
    place: Literal["file", "folder"] | None = None
    check: Callable[[Any, str], object] | None = None
    """Refuses a value that cannot be; it is told the place of the option."""

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types that its value may have."""
        return self.kind if isinstance(self.kind, tuple) else (self.kind,)

    def require(self, value: Any, at: str) -> None:
        """Refuses what cannot be its value."""
        kind = float if type(value) is int and float in self.kinds else type(value)
        texts = all(isinstance(part, str) for part in value) if kind is list else True
        hint = f"use one of {', '.join(self.choices)}" if self.choices else None
        if kind not in self.kinds or not texts:
            raise JobError(f"{at} must be {' or '.join(KINDS[each] for each in self.kinds)}, not {value!r}", hint=hint)
        if self.choices and isinstance(value, str) and value not in self.choices:
            raise JobError(f"{at} cannot be {value!r}", hint=hint)
        if self.check is not None:
            self.check(value, at)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of source or sink: the class that is one, the module that it needs, and the extra that installs it."""

    path: str
    needs: str | None = None
    extra: str | None = None


ON_BAD = Option(
    str,
    "What becomes of rows that the target refuses: the job stops (the default), or they are set aside.",
    choices=("stop", "dead_letter"),
)


def form_option(*forms: str) -> Option:
    """The option of a sink that has several forms."""
    return Option(str, "What is written: intervals, changes, or what is valid now.", choices=forms)


TABLE = {
    "table": Option(str, "The table that results are written to; it is made if it is not there.", needed=True),
    "key": Option(list, "The columns that tell the rows of the current relation apart; rows are then replaced by key."),
    "on_bad": ON_BAD,
    "form": form_option("rows", "changelog", "current"),
}
"""The options of all sinks that write to tables of a database."""

SCHEMA = Option(str, "The columns of the stream: its key `schema`.", needed=True)
"""The option of all sources whose rows have the columns that are declared for them."""


@dataclass(frozen=True, slots=True)
class Registry:
    """All kinds of sources, or of sinks: those here, and those of other packages."""

    word: str
    known: Mapping[str, Kind]
    unconnected: tuple[str, ...] = ()
    """The names that stand for something that has no options."""
    _found: dict[str, Kind] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """What messages call one of which nothing else is known."""
        return f"the {self.word}"

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kinds by name."""
        if not self._found:
            others = {point.name: Kind(point.value) for point in entry_points(group=f"midstream.{self.word}s")}
            self._found.update(others | dict(self.known))
        return self._found

    def class_of(self, kind: str, place: str = "") -> Any:
        """The class of a kind; an unknown one is answered with the nearest names."""
        known = self.kinds.get(kind)
        if known is None:
            names = [*self.unconnected, *self.kinds]
            near = [name + self._install(name) for name in get_close_matches(kind, names, 2, 0.5)]
            hint = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(names)}"
            raise JobError(f"{place or self.place} cannot be {kind!r}: there is no such {self.word}", hint=hint)
        module, _, attribute = known.path.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
            found.options.items()
        except (ImportError, AttributeError) as error:
            hint = f"a package names {known.path} by its entry point: it must be a class that has options"
            raise JobError(f"the {self.word} {kind!r} cannot be used", detail=str(error), hint=hint) from error
        return found

    def _install(self, kind: str) -> str:
        """How to install what a kind needs; nothing if it is there."""
        known = self.kinds.get(kind)
        missing = known is not None and known.needs is not None and find_spec(known.needs) is None
        return f" (pip install 'midstream[{known.extra}]')" if known is not None and missing else ""

    def require_options(self, kind: str, options: Mapping[str, Any], place: str = "") -> None:
        """Refuses options that a kind does not have, lacks, or cannot have such values."""
        place = place or self.place
        known: Mapping[str, Option] = self.class_of(kind, place).options
        for name in options:
            if name not in known:
                unknown = f"unknown option {place}.{name} of the {self.word} {kind!r}"
                raise JobError(unknown, hint=instead_of(name, known))
        for name, option in known.items():
            if name in options:
                option.require(value := options[name], f"{place}.{name}")
                if isinstance(value, dict) and not all(isinstance(part, str) for part in value.values()):
                    raise JobError(f"{place}.{name} must be a table of texts, not {value!r}")
            elif option.needed:
                hint = f"the {self.word} {kind!r} needs it: {option.meaning}"
                raise JobError(f"{place}.{name} is missing", hint=hint)

    def made(self, kind: str, options: Mapping[str, Any], place: str = "", folder: Path | None = None) -> Any:
        """A source or sink with some options: variables of the environment put in, paths relative to a folder.

        Making one connects to nothing.
        """
        place = place or self.place
        self.require_options(kind, options, place)
        if missing := self._install(kind):
            raise JobError(f"{place} cannot be {kind!r}: a package is missing", hint=missing.strip(" ()"))
        if folder is not None and str(folder) not in sys.path:
            sys.path.append(str(folder))  # functions are looked for beside the job file too
        return self.class_of(kind, place)(**self._values(kind, options, place, folder))

    def places_of(self, kind: str, options: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
        """The files and folders on this machine that a source or sink has."""
        values, known = self._values(kind, options, self.place, folder), self.class_of(kind).options
        return [
            (str(known[name].place), value.removeprefix("file://"))
            for name, value in values.items()
            if known[name].place and "://" not in value.removeprefix("file://")
        ]

    def _values(self, kind: str, options: Mapping[str, Any], place: str, folder: Path | None) -> dict[str, Any]:
        """What a source or sink is made with."""
        known: Mapping[str, Option] = self.class_of(kind, place).options
        found = {name: _expanded(value, f"{place}.{name}") for name, value in options.items()}
        for name, value in found.items():
            if folder is not None and known[name].place and "://" not in value:
                found[name] = str(folder / value)
        return found


SINKS = Registry(
    "sink",
    {
        "folder": Kind("midstream.connectors.folder:Folder"),
        "hive": Kind("midstream.connectors.hive:Hive"),
        "sqlite": Kind("midstream.connectors.sqlite:Sqlite"),
        "duckdb": Kind("midstream.connectors.duckdb_file:DuckDB"),
        "postgres": Kind("midstream.connectors.postgres:Postgres", "psycopg", "postgres"),
        "delta": Kind("midstream.connectors.delta:Delta", "deltalake", "delta"),
        "kafka": Kind("midstream.connectors.kafka:KafkaTopic", "confluent_kafka", "kafka"),
        "nats": Kind("midstream.connectors.nats_subject:NatsSubject", "nats", "nats"),
        "webhook": Kind("midstream.connectors.webhook:Webhook"),
        "iceberg": Kind("midstream.connectors.iceberg:Iceberg", "pyiceberg", "iceberg"),
        "function": Kind("midstream.connectors.function:Function"),
    },
    NOT_CONNECTED,
)

SOURCES = Registry(
    "source",
    {
        "sqlite": Kind("midstream.connectors.sources.sqlite:SqliteRows"),
        "kafka": Kind("midstream.connectors.sources.kafka:Kafka", "confluent_kafka", "kafka"),
        "postgres": Kind("midstream.connectors.sources.postgres:PostgresChanges", "psycopg", "postgres"),
        "redis": Kind("midstream.connectors.sources.redis:RedisStream", "redis", "redis"),
        "nats": Kind("midstream.connectors.sources.nats:NatsStream", "nats", "nats"),
        "delta": Kind("midstream.connectors.sources.delta:DeltaChanges", "deltalake", "delta"),
        "iceberg": Kind("midstream.connectors.sources.iceberg:IcebergRows", "pyiceberg", "iceberg"),
    },
)


def _expanded(value: Any, at: str) -> Any:
    if isinstance(value, list):
        return [expanded(part, at) for part in value]
    if isinstance(value, dict):
        return {name: expanded(part, f"{at}.{name}") for name, part in value.items()}
    return expanded(value, at) if isinstance(value, str) else value
