"""The streams of a shell: files, folders or patterns by name, read again for each query, because they may grow."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.algebra.names import check_name
from midstream.errors import InputError
from midstream.inputs import Duration
from midstream.interface.jobs.starting import usual_time_column
from midstream.interface.stream_files import read_files

_CREATE = re.compile(
    r"""CREATE\s+STREAM\s+(?P<name>\w+)\s+FROM\s+'(?P<path>(?:[^']|'')+)'
        (?:\s+TIME\s+(?P<time>\w+))?(?:\s+LATENESS\s+(?:'(?P<lateness>[^']+)'|(?P<ticks>\d+)))?\s*""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class FileStream:
    """A stream whose rows are in files."""

    name: str
    path: str
    time: str
    columns: pa.Schema
    lateness: Duration | None = None

    def rows(self) -> pa.Table:
        """All rows that the files have now."""
        return read_files(self.path)


@dataclass(slots=True)
class FileStreams:
    """The declared streams by name."""

    named: dict[str, FileStream] = field(default_factory=dict)

    def declare(self, name: str, path: str, time: str | None = None, lateness: Duration | None = None) -> FileStream:
        """Declares a stream, or declares it anew; without a time column the one that looks like it is taken."""
        check_name("stream", name)
        columns = read_files(path).schema
        if time is None:
            time = _usual_time(name, columns)
        elif time not in columns.names:
            raise InputError(f"stream {name} has no column {time}", detail=f"columns: {', '.join(columns.names)}")
        self.named[name] = FileStream(name, path, time, columns, lateness)
        return self.named[name]

    def settings(self) -> tuple[dict[str, str], dict[str, Duration] | None]:
        """The time columns, and the latenesses if any stream has one."""
        times = {name: stream.time for name, stream in self.named.items()}
        late = {name: s.lateness for name, s in self.named.items() if s.lateness is not None}
        return times, {**dict.fromkeys(times, 0), **late} if late else None


def _usual_time(name: str, columns: pa.Schema) -> str:
    try:
        return usual_time_column(columns)
    except InputError as error:
        hint = "name it: time=COLUMN, or TIME COLUMN; it holds timestamps or whole numbers"
        raise InputError(f"stream {name}: {error.message}", hint=hint) from error


def declaration_of(text: str) -> tuple[str, str, str | None, Duration | None] | None:
    """The name, path, time and lateness of `CREATE STREAM name FROM 'path' …`; None if it is no such statement.

    >>> declaration_of("create stream A from 'a.csv' time at lateness '5 seconds'")
    ('A', 'a.csv', 'at', '5 seconds')
    """
    if not re.match(r"CREATE\s+STREAM\b", text, re.IGNORECASE):
        return None
    found = _CREATE.fullmatch(text)
    if found is None:
        raise InputError(
            "this declares no stream",
            hint="CREATE STREAM name FROM 'path' TIME column LATENESS '5 seconds'; TIME and LATENESS may be left out",
        )
    ticks = found["ticks"]
    late: Duration | None = int(ticks) if ticks else found["lateness"]
    return found["name"], found["path"].replace("''", "'"), found["time"], late


def arguments_of(text: str) -> tuple[str, str, str | None, Duration | None]:
    r"""The same of `\stream name path [time=column] [lateness=duration]`.

    >>> arguments_of("A 'my a.csv' time=at lateness=5")
    ('A', 'my a.csv', 'at', 5)
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"a quote is not closed in {text}") from error
    plain = [word for word in words if not re.match(r"(time|lateness)=", word)]
    settings = dict(word.split("=", 1) for word in words if word not in plain)
    if len(plain) != 2:
        raise InputError(
            "a stream has a name and a path", hint=r"\stream orders data/orders.csv time=ts lateness='5 seconds'"
        )
    late = settings.get("lateness")
    return plain[0], plain[1], settings.get("time"), int(late) if late is not None and late.isdigit() else late
