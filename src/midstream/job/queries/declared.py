"""What a job and its streams are, as its checkpoint has them: a session that resumes it declares the same.

A stream whose time column, kind of timestamps or column types have changed gives other rows under the same name, and
registers and state made of the old ones would be wrong for them. Its lateness and skew may change: registers never go
back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.statistics import UNKNOWN, Estimate, Statistics, StreamStatistics
from midstream.checkpoint.manifest import Manifest
from midstream.errors import JobError

Needed = Iterable[tuple[StreamDeclaration, Iterable[str]]]
"""Streams, with the columns of them that are read."""

Readers = Callable[[StreamDeclaration, str], Sequence[str]]
"""Gives the names of the queries that read a column of a stream."""


def require_same_streams(manifest: Manifest | None, needed: Needed, readers: Readers) -> None:
    """Fails if a stream is declared in another way than the checkpoint was made with; names the queries concerned."""
    known = {} if manifest is None else manifest.settings.declared
    for stream, columns in needed:
        record = known.get(stream.name)
        if record is None:
            continue
        if record["time"] != stream.time:
            raise _other(stream.name, "another time column", record["time"], stream.time)
        if record["timestamps"] != stream.timestamps:
            raise _other(stream.name, "other timestamps", record["timestamps"], stream.timestamps)
        for name in (name for name in columns if name in record["columns"]):
            kind = str(stream.columns.field(name).type)
            if record["columns"][name] != kind:
                by = f", which {' and '.join(readers(stream, name))} read," if readers(stream, name) else ""
                raise _other(stream.name, f"another type of column {name}{by}", record["columns"][name], kind)


def as_known(manifest: Manifest | None, stream: StreamDeclaration) -> StreamDeclaration:
    """A stream with the columns of it that the checkpoint has read, as far as it still has them."""
    record = None if manifest is None else manifest.settings.declared.get(stream.name)
    if record is None:
        return stream
    known = [field for field in stream.columns if field.name in record["columns"] or field.name == stream.time]
    return replace(stream, columns=pa.schema(known))


def added_columns(manifest: Manifest | None, streams: Iterable[StreamDeclaration]) -> list[str]:
    """Columns of streams that the checkpoint has not read, as `stream.column`."""
    return [
        f"{stream.name}.{name}"
        for stream in streams
        for name in stream.visible.names
        if name not in as_known(manifest, stream).columns.names
    ]


def more_columns(query: str, added: Sequence[str]) -> JobError:
    """Says that a text which takes all columns takes more than it did."""
    return JobError(
        f"query {query} would have more columns than in the checkpoint",
        detail=f"its text takes all columns there are, and {', '.join(added)} came since; rows before have none",
        hint="name the columns in its text; or run with --replace (session.query(..., replace=True)) to begin it again",
    )


def _other(stream: str, what: str, old: str, new: str) -> JobError:
    return JobError(
        f"stream {stream} has {what} than the checkpoint was made with",
        detail=f"there it is {old}, and now {new}: registers and state of the old rows would be wrong for the new",
        hint="declare the stream as it was, or under another name, or use a new checkpoint",
    )


def require_same_job(manifest: Manifest | None, name: str | None, uri: str) -> None:
    """Fails if a checkpoint belongs to a job of another name."""
    known = None if manifest is None else manifest.settings.job
    if known is not None and name is not None and known != name:
        raise JobError(
            f"the checkpoint {uri} belongs to job {known}, not to {name}",
            detail="a job's name is that of its file, or the one that the file gives under [job]",
            hint=f'use another checkpoint, or, if it is the same job, write name = "{known}" under [job]',
        )


def arrivals(recent: Sequence[Mapping[str, Any]], aliases: Mapping[str, str]) -> Statistics:
    """Rates per tick of streams by alias, from the newest rows of the metrics table; `aliases` are of which streams.

    >>> batches = [{"rows": {"A": 5}, "registers": {"A": 10}}, {"rows": {"A": 40}, "registers": {"A": 30}}]
    >>> found = arrivals(batches, {"a": "A", "b": "B"})
    >>> found.streams["a"].rate.value, found.batch_ticks, "b" in found.streams
    (2.0, 20.0, False)
    """
    streams, spans = {}, []
    for alias, name in aliases.items():
        known = [(batch["registers"].get(name), batch["rows"].get(name, 0)) for batch in recent]
        passed = [register for register, _ in known if register is not None]
        since = next((i for i, (register, _) in enumerate(known) if register is not None), len(known))
        span, rows = (passed[-1] - passed[0] if passed else 0), sum(count for _, count in known[since + 1 :])
        if span > 0 and rows:
            streams[alias] = StreamStatistics(Estimate(rows / span, rows**-0.5))
            spans.append(span / max(1, len(passed) - 1))
    return Statistics(streams, batch_ticks=max(spans)) if streams else UNKNOWN
