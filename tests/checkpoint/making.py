"""Segments, packs and manifests to test with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from midstream.checkpoint.file_entries import File, FileLog
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import name_for
from midstream.checkpoint.packs import SegmentEntry, StateKey, write_pack
from midstream.checkpoint.records import Outputs
from midstream.operators.elements import Elements, rows_without_columns
from midstream.operators.state.segment import Segment, make_segment

STATE: StateKey = ("orders [RANGE 100] as A", ("A.k",))


def segment(columns: Mapping[str, Any] | None = None, rows: int = 4, start: int = 10, bucket: int = 1) -> Segment:
    """A segment with columns of Arrow arrays or lists; without any it only counts."""
    if columns == {}:
        batch = rows_without_columns(rows)
    else:
        arrays = {name: pa.array(values) for name, values in (columns or {"A.k": range(rows)}).items()}
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    count = batch.num_rows
    hashes = np.linspace(0, 2**64 - 1025, count).astype(np.uint64)
    valid_from = np.arange(start, start + count, dtype=np.int64)
    return make_segment(Elements(batch, valid_from, valid_from + 7), hashes, bucket, born=3)


def pack(files: Files, batch_id: int = 0, segments: Sequence[Segment] = (), state: StateKey = STATE, slot: int = 0):
    """Entries of segments written into one pack."""
    return write_pack(files, name_for("state", batch_id, slot, 0), {state: list(segments) or [segment()]})


def grown(log: FileLog[File], *files: File) -> FileLog[File]:
    """Files, with some that are newer."""
    return FileLog(tuple(chain(log.newer, files)), log.lists)


def manifest(batch_id: int = 0, entries: Sequence[SegmentEntry] = (), **more: Any) -> Manifest:
    """A manifest of one query with its segments in slot 0."""
    queries = {"hot": QueryEntry("SELECT A.k FROM orders [RANGE 100] AS A", "A")}
    files = {f.name: more.pop(f.name) for f in fields(Outputs) if f.name in more}
    segments = {"hot": {0: {0: tuple(entries)}}}
    return Manifest("spark-query", batch_id, queries=queries, segments=segments, outputs=Outputs(**files), **more)


def same(left: Segment, right: Segment) -> bool:
    """Whether two segments hold the same, wherever they are kept."""
    a, b = left.elements, right.elements
    return (
        a.columns.num_rows == b.columns.num_rows
        and a.columns.schema.equals(b.columns.schema)
        and [repr(x.to_pylist()) for x in a.columns.columns] == [repr(x.to_pylist()) for x in b.columns.columns]
        and all(np.array_equal(x, y) for x, y in ((a.valid_from, b.valid_from), (a.valid_to, b.valid_to)))
        and np.array_equal(left.hashes, right.hashes)
        and _known(left) == _known(right)
    )


def _known(segment: Segment) -> tuple[int, ...]:
    return (segment.bucket, segment.born, segment.earliest_from, segment.earliest_to, segment.latest_to)


def flip(path: str, position: int) -> None:
    """Changes one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x40]))
