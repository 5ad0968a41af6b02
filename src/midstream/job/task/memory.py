"""How much memory a slot may take, and how it is shared out.

What a step holds at once is a few times what it is given at once: rows are sorted, hashed, gathered and written, and
each of these makes a copy. So input, results, new state and merges each get a small share of the whole, and what is
more than its share goes through files.
"""

from __future__ import annotations

import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint.failures import storage_errors
from midstream.checkpoint.files import Files
from midstream.checkpoint.opening import open_segment
from midstream.checkpoint.outputs import parquet_bytes, written_as
from midstream.checkpoint.packs import SegmentEntry, StateKey, write_pack
from midstream.errors import JobError
from midstream.operators.base import Operator
from midstream.operators.join import SymmetricJoin
from midstream.operators.multiway_join import MultiwayJoinOperator
from midstream.operators.one_way_join import OneWayJoinOperator
from midstream.operators.outer_join import OuterJoinOperator
from midstream.operators.slices import SliceOperator
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

LEAST = 16 * 2**20
"""The least that can be asked for; a Python process with Arrow takes more before it does anything."""

LEAST_ROWS, MOST_ROWS = 1_000, 200_000
"""Between these is how many rows cross into Python in one batch of columns: few, large ones cost least."""

_UNITS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kb": 2**10,
    "m": 2**20,
    "mb": 2**20,
    "g": 2**30,
    "gb": 2**30,
    "t": 2**40,
    "tb": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that a slot's working data may take, and how many fragments share them."""

    bytes: int = 2**30
    fragments: int = 1

    @staticmethod
    def of(size: int | str, name: str = "memory_per_slot") -> Memory:
        """The memory of a given size, such as "512 MB"; `name` is what errors call the setting."""
        number = bytes_of(size, name)
        if number < LEAST:
            raise JobError(f"{name} must be at least {LEAST // 2**20} MB, not {size!r}")
        return Memory(number)

    @property
    def input(self) -> int:
        """The bytes of input that are taken at once, and sorted into one run where there is more."""
        return max(1, self.bytes // 16)

    @property
    def chunk(self) -> int:
        """The bytes that are fed at once where there is more input than that."""
        return max(1, self.bytes // 32)

    @property
    def output(self) -> int:
        """The bytes of results that wait in memory for each fragment."""
        return max(1, self.bytes // 16 // self.fragments)

    @property
    def new_state(self) -> int:
        """The bytes of new state that wait in memory for each fragment."""
        return max(1, self.state // self.fragments)

    @property
    def state(self) -> int:
        """The bytes of state that are merged into one or written together, and of what one slice looks at."""
        return max(1, self.bytes // 8)

    def among(self, fragments: int) -> Memory:
        """The same memory, shared by so many fragments, whose results and new state all wait at once."""
        return Memory(self.bytes, max(1, fragments))

    def rows_at_once(self, row_bytes: int) -> int:
        """How many rows Spark may hand over in one batch of Arrow columns."""
        return min(MOST_ROWS, max(LEAST_ROWS, self.input // max(1, row_bytes)))

    @property
    def pairs(self) -> int:
        """How many candidate pairs a join looks at in one go."""
        return max(16, self.bytes // 1024)

    @property
    def moved(self) -> int:
        """How many elements of a state are moved at a time."""
        return min(65_536, max(16, self.bytes // 2048))


LITTLE = 65_536
"""Up to how many bytes a batch may lie in without being asked how many of them are its own."""


def size_of(rows: pa.RecordBatch) -> int:
    """About how many bytes rows take; of few it is told by what they lie in, which is known at once."""
    size: int = rows.get_total_buffer_size()
    return size if size <= LITTLE else int(rows.nbytes)


def bytes_of(size: int | str, name: str) -> int:
    """A size in bytes.

    >>> bytes_of("1.5 GB", "memory_per_slot"), bytes_of(4096, "memory_per_slot")
    (1610612736, 4096)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None or found[2].lower() not in _UNITS or not isfinite(float(found[1]) * 2**40):
        raise JobError(f"{name} cannot be {size!r}", hint="write for instance '512 MB' or '2 GB'")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def bind(operators: Iterable[Operator], memory: Memory) -> None:
    """Applies memory limits to operators."""
    for operator in operators:
        if isinstance(operator, SymmetricJoin | MultiwayJoinOperator | OneWayJoinOperator | OuterJoinOperator):
            operator.at_once = min(operator.at_once, memory.pairs)
        if isinstance(operator, SliceOperator):
            operator.most, operator.limit = memory.state, max(memory.bytes, LEAST)
        for state in operator.states:
            state.most_merged = memory.state


def frontiers(operators: Iterable[Operator], since: int, until: int, memory: Memory) -> list[int]:
    """Frontiers on the way between which a slice looks at a bounded part of the states."""
    slices = [operator for operator in operators if isinstance(operator, SliceOperator)]
    states = (state for operator in slices for state in operator.states if not state.rests)
    segments = [segment for state in states for segment in state.segments]
    parts = sum(segment.bytes for segment in segments) // memory.state
    if parts < 1:
        return [until]
    stride = max(1, sum(map(len, segments)) // (64 * parts))
    starts = np.sort(np.concatenate([segment.stored.valid_from[::stride] for segment in segments]))
    chosen = {int(starts[len(starts) * i // (parts + 1)]) for i in range(1, parts + 1)}
    return [*sorted(at for at in chosen if since < at < until), until]


def write_packs(
    files: Files, path: Callable[[], str], states: Mapping[StateKey, Sequence[Segment]], memory: Memory
) -> list[SegmentEntry]:
    """Writes the segments that no file has, in their order, into as many packs as it takes for each to be small."""
    entries: list[SegmentEntry] = []
    together: dict[StateKey, list[Segment]] = {}
    size = 0
    for name, segments in states.items():
        for segment in segments:
            if segment.place is None:
                if together and size + segment.bytes > memory.state:
                    entries += write_pack(files, path(), together)
                    together, size = {}, 0
                together.setdefault(name, []).append(segment)
                size += segment.bytes
    return [*entries, *write_pack(files, path(), together)] if together else entries


def mapped_states(
    files: Files, path: Callable[[], str], states: Mapping[StateKey, SortedState], memory: Memory
) -> list[SegmentEntry]:
    """Moves new segments into files and maps them once they are many; gives the entries of those."""
    new = (s.bytes for state in states.values() for s in state.segments if s.place is None)
    if sum(new) <= memory.new_state:
        return []
    written = write_packs(files, path, {name: state.segments for name, state in states.items()}, memory)
    following = iter(written)
    for state in states.values():
        state.segments = [
            segment if segment.place is not None else open_segment(files, next(following), state)
            for segment in state.segments
        ]
    return written


def spill_folder() -> str:
    """Where such files are made: Spark's local folder where there is one."""
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        first = os.environ.get(name, "").split(",")[0].strip()
        if first and os.path.isdir(first):
            return first
    return tempfile.gettempdir()


class Spill:
    """Record batches of one schema, written one after the other and then read back."""

    def __init__(self, schema: pa.Schema) -> None:
        self.folder = spill_folder()
        with storage_errors("write a temporary file in", self.folder):
            self.file: IO[Any] = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
            self.writer = pa.ipc.new_stream(self.file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds a batch."""
        with storage_errors("write a temporary file in", self.folder):
            self.writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches, in the order written; nothing can be added any more."""
        with storage_errors("write a temporary file in", self.folder):
            self.writer.close()
            content = mapped(self.file)
        yield from pa.ipc.open_stream(content)


class ParquetSpool:
    """A Parquet file in the making: tables in memory while they are small, row groups of a file beyond."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = 0
        self.held: list[pa.Table] = []
        self.bytes = 0
        self.file: IO[Any] | None = None
        self.writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Adds the rows of a table."""
        self.rows += table.num_rows
        self.bytes += table.nbytes
        self.held.append(table)
        if self.bytes > self.most:
            self._write()

    def _write(self) -> None:
        table = pa.concat_tables(self.held)
        with storage_errors("write a temporary file in", spill_folder()):
            if self.writer is None:
                self.file = tempfile.TemporaryFile(dir=spill_folder())  # noqa: SIM115
                self.writer = pq.ParquetWriter(self.file, table.schema, **written_as(table.schema))
            self.writer.write_table(table)
        self.held, self.bytes = [], 0

    def content(self) -> pa.Buffer | None:
        """The whole file; None if nothing was added."""
        if self.writer is None or self.file is None:
            return parquet_bytes(pa.concat_tables(self.held)) if self.held else None
        if self.held:
            self._write()
        with storage_errors("write a temporary file in", spill_folder()):
            self.writer.close()
            return mapped(self.file)


def mapped(file: IO[Any]) -> pa.Buffer:
    """The content of a file, mapped; the file can be forgotten."""
    file.flush()
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.close()
    return pa.py_buffer(content)
