"""The metrics table: a row per batch, in order, in few files.

The newest rows travel in the manifest itself, so that a row is there exactly when its batch is; once there are some
dozens they become a Parquet file, and files of like size are merged. The oldest files go when the table is long enough.

It tells how far results are behind by the clock: a query's latency at a batch is the time from the beginning of the
batch that brought the first row at or after the instant before which its results are complete, to the commit of the
batch that made them so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midstream.checkpoint.file_entries import MetricsFile, Superseded
from midstream.checkpoint.files import Files
from midstream.checkpoint.format import Fixed, damaged
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import METRICS, name_for
from midstream.checkpoint.records import summed

RECENT = 32
"""How many rows a manifest carries before they become a file."""

TIER = 8
"""How many files of like size are merged into one."""

LARGEST = 4096
"""How many rows a file has at most."""

_COUNTS = pa.map_(pa.string(), pa.int64())
_TEXTS = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        ("batch_id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("rows", _COUNTS),
        ("late", _COUNTS),
        ("unusable", _COUNTS),
        ("results", _COUNTS),
        ("state_rows", _COUNTS),
        ("state_bytes", _COUNTS),
        ("registers", _COUNTS),
        ("latest", _COUNTS),
        ("released", _COUNTS),
        ("seconds", pa.map_(pa.string(), pa.float64())),
        ("plans", _TEXTS),
        ("migrations", _TEXTS),
        ("ran_on", pa.list_(pa.string())),
        ("moved", _COUNTS),
        ("executors", _TEXTS),
    ]
)
"""The table's columns: rows, late, unusable, registers and latest by stream, the others by query; `seconds` by part.

`ran_on` is where slots ran: the driver, or executors; `executors` names them by slot. `moved` are the bytes that rows
took between slots, by pair: "0 to 1".
"""

Row = Mapping[str, Any]


def done_at(manifest: Manifest) -> float | None:
    """When the batch of a manifest was done, in seconds since 1970."""
    return float(manifest.outputs.recent[-1]["at"]) if manifest.outputs.recent else None


def remember(files: Files, manifest: Manifest, row: Row, seconds: Mapping[str, float], retained: int) -> Manifest:
    """The manifest with one more row; older rows become files, and the oldest files go.

    The row before is completed by `seconds` of its batch that were known only after its commit. Files that the manifest
    no longer names are kept for a while for those that began to read before.
    """
    recent = [*manifest.outputs.recent, row]
    if seconds and len(recent) > 1:
        recent[-2] = Fixed({**recent[-2], "seconds": {**recent[-2]["seconds"], **seconds}})
    if len(recent) <= RECENT:
        return manifest.with_outputs(recent=recent)
    # The newest rows stay: that of the last batch is not yet complete.
    path = name_for(METRICS, manifest.batch_id, 0, 0)
    _write(files, path, table_of(recent[:-2]))
    made = MetricsFile(path, len(recent) - 2, recent[0]["batch_id"], recent[-3]["batch_id"])
    named = _newest([*manifest.outputs.metrics, made], retained)
    kept = {file.path for file in named}
    gone = [Superseded(file.path, row["at"]) for file in manifest.outputs.metrics if file.path not in kept]
    return manifest.with_outputs(recent=recent[-2:], metrics=named, superseded=[*manifest.outputs.superseded, *gone])


def metrics_of(files: Files, manifest: Manifest | None, batches: int | None = None) -> pa.Table:
    """The table, or as many files from its end as hold some number of batches."""
    if manifest is None:
        return SCHEMA.empty_table()
    tables = [table_of(manifest.outputs.recent)]
    rows = len(manifest.outputs.recent)
    for file in reversed(manifest.outputs.metrics):
        if batches is not None and rows >= batches:
            break
        rows += file.rows
        tables.append(_read(files, file))
    return pa.concat_tables(reversed(tables))


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened in the last minutes: how many batches in how many seconds, and rows and results a second by name.

    `batch_seconds` is what a batch took on average.
    """

    batches: int = 0
    seconds: float = 0.0
    rows_per_second: Mapping[str, float] = field(default_factory=dict)
    results_per_second: Mapping[str, float] = field(default_factory=dict)
    batch_seconds: float | None = None


def rates(table: pa.Table, seconds: float = 300.0) -> Rates:
    """What happened in the last seconds of the table."""
    if table.num_rows == 0:
        return Rates()
    last = table.column("at")[-1].as_py()
    recent = pc.greater_equal(table.column("at"), pa.scalar(last - dt.timedelta(seconds=seconds)))
    rows = table.filter(recent).to_pylist()
    spans = [_span(dict(row["seconds"])) for row in rows]
    spent = (last - rows[0]["at"]).total_seconds() + spans[0]
    counted = {f"{kind}_per_second": _per_second(rows, kind, spent) for kind in ("rows", "results")}
    return Rates(len(rows), spent, batch_seconds=sum(spans) / len(spans), **counted)


def _span(seconds: Mapping[str, float]) -> float:
    """How long a batch took; of the last one only its job may be known."""
    return seconds.get("batch", seconds.get("job", 0.0))


def _per_second(rows: Sequence[Row], name: str, spent: float) -> dict[str, float]:
    total = summed(pair for row in rows for pair in row[name] or ())
    return {key: count / spent if spent > 0 else 0.0 for key, count in total.items()}


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as a manifest has them, as a table."""
    columns = [pa.array([_value(field, row) for row in rows], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _value(field: pa.Field, row: Row) -> Any:
    value = row.get(field.name)
    if pa.types.is_map(field.type):
        return list((value or {}).items())
    if pa.types.is_timestamp(field.type):
        return None if value is None else dt.datetime.fromtimestamp(value, dt.UTC)
    return value


def mergeable(named: Sequence[MetricsFile]) -> Sequence[MetricsFile]:
    """The newest files of like size, one after the other, that may become one; none if they are too few."""
    for start in range(len(named) - TIER, -1, -1):
        alike = named[start : start + TIER]
        sizes = [file.rows for file in alike]
        if max(sizes) <= 2 * min(sizes) and sum(sizes) <= LARGEST:
            return alike
    return ()


def write_together(files: Files, path: str, old: Sequence[MetricsFile]) -> None:
    """Writes one file with the rows of all."""
    _write(files, path, pa.concat_tables([_read(files, file) for file in old]))


def _read(files: Files, file: MetricsFile) -> pa.Table:
    """A file of the table; columns that its version did not have are empty."""
    content = pa.BufferReader(files.open_map(file.path))
    try:
        return _read_as_now(content)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise damaged(files.full(file.path), f"{type(error).__name__}: {error}") from error


def _read_as_now(content: pa.BufferReader) -> pa.Table:
    found = pq.ParquetFile(content).read()
    found.validate(full=True)
    for missing in (column for column in SCHEMA if column.name not in found.column_names):
        found = found.append_column(missing, pa.nulls(found.num_rows, missing.type))
    return found.select(SCHEMA.names).cast(SCHEMA)


def _newest(named: list[MetricsFile], retained: int) -> list[MetricsFile]:
    total = sum(file.rows for file in named)
    while named and total - named[0].rows >= retained:
        total -= named[0].rows
        named = named[1:]
    return named


def _write(files: Files, path: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    files.write_atomic(path, sink.getvalue(), point="metrics", sync=False)


def latencies(table: pa.Table, streams: Mapping[str, Sequence[str]]) -> dict[str, list[float | None]]:
    """Seconds by query, for each row of the metrics table; None where nothing is complete yet or everything is.

    `streams` are those that each query reads.
    """
    at = table.column("at").cast(pa.int64()).to_numpy() / 1e6
    seconds = [dict(row or ()) for row in table.column("seconds").to_pylist()]
    began = at - np.array([row.get("batch", row.get("job", 0.0)) for row in seconds])
    latest = [dict(row or ()) for row in table.column("latest").to_pylist()]
    released = [dict(row or ()) for row in table.column("released").to_pylist()]
    found: dict[str, list[float | None]] = {}
    for query, read in streams.items():
        newest = np.maximum.accumulate(
            [max((row[s] for s in read if s in row), default=np.iinfo(np.int64).min) for row in latest], dtype=np.int64
        )
        found[query] = [
            None if query not in row else _since(began, newest, row[query], here, float(at[here]))
            for here, row in enumerate(released)
        ]
    return found


def _since(began: np.ndarray, newest: np.ndarray, complete: int, here: int, now: float) -> float:
    """How long ago the batch began that brought the first row at or after the instant before which all is complete."""
    brought = min(int(np.searchsorted(newest, complete)), here)
    return max(0.0, round(now - float(began[brought]), 6))
