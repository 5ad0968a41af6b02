"""From the bytes of a file to the rows of a stream, for whoever has the bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from midstream.connectors.files.bad_rows import FIELD, BadRow, at_line, shown, with_bad_rows
from midstream.connectors.files.columns import as_declared, declared_names
from midstream.connectors.files.computed import Computed
from midstream.connectors.files.csv_text import read_csv
from midstream.connectors.files.json_text import read_json
from midstream.connectors.files.options import OWN, TEXT, CsvOptions
from midstream.connectors.files.records import read_arrow, read_avro
from midstream.connectors.files.text_values import TextRows
from midstream.errors import InputError

_FEW_ROWS = 20_000
"""Up to how many rows a file is read by one thread."""

_END = 2**15
"""How many bytes at each end of a text are looked at, to know its times."""

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
_NO_TEXT = re.compile(rb"\A(?:PAR1|ARROW1|\x1f\x8b|PK\x03\x04|Obj\x01|ORC)|\A[^\n]*\0")
"""How files begin that are no text: the marks of other formats, or a first line that has a zero byte."""


@dataclass(frozen=True, slots=True)
class FileContents:
    """How the files of a stream are read; `schema` are their columns, of which `computed` makes those of the stream."""

    stream: str
    format: str
    schema: pa.Schema
    options: Mapping[str, str] = field(default_factory=dict)
    computed: Computed | None = None
    open: Callable[[str], pa.NativeFile] = pa.OSFile
    """Opens a file by its path, or by its address elsewhere."""

    @property
    def is_own(self) -> bool:
        """Whether rows may be bad; then there is a column more, for what is known of those that are."""
        return self.format in OWN

    @property
    def columns(self) -> pa.Schema:
        """The columns of the stream."""
        return self.schema if self.computed is None else self.computed.schema

    @property
    def travelling(self) -> pa.Schema:
        """The columns of what is read."""
        return self.columns.append(FIELD) if self.is_own else self.columns

    def of_path(self, path: Path | str) -> pa.Table:
        """The rows of a file."""
        path = str(path)
        with _named(path, self.format, self.stream), self.open(path) as file:
            return self._rows(path, _uncompressed(path, file.read())) if self.is_own else self._parquet(file)

    def some_of(self, path: Path | str, column: str) -> pa.ChunkedArray | None:
        """Values of a column of a file, without reading all of it; None if that does not tell them.

        Of text these are those of the first and the last rows, of Parquet the least and the greatest, of others all.
        """
        path = str(path)
        with _named(path, self.format, self.stream), self.open(path) as file:
            if self.is_own:
                some = _ends_of(path, file) if self.format in TEXT else _uncompressed(path, file.read())
                return self._rows(path, some).column(column).drop_null()
            if self.computed is not None:
                return None
            field = self.schema.field(column)
            return _bounds(file, field) or _read_parquet(file, pa.schema([field])).column(0).drop_null()

    def of_bytes(self, path: str, content: bytes) -> pa.Table:
        """The rows of a file that somebody else has read."""
        with _named(path, self.format, self.stream):
            return self._rows(path, _uncompressed(path, content))

    def _rows(self, path: str, text: bytes) -> pa.Table:
        read = self._read(text)
        bad = [BadRow(at_line(path, record.line), shown(record.text), record.reason) for record in read.bad]
        if self.computed is None:
            return with_bad_rows(read.rows, bad)
        rows, failed = self.computed.rows(read.rows)
        if failed:
            record_of = self._read(text, one_by_one=True).record_of
            assert record_of is not None
            lines = ((*record_of(place), reason) for place, reason in failed.items())
            bad += [BadRow(at_line(path, line), shown(record), reason) for line, record, reason in lines]
        return with_bad_rows(rows, bad)

    def _read(self, text: bytes, one_by_one: bool = False) -> TextRows:
        if self.format not in TEXT:
            return read_avro(text, self.schema) if self.format == "avro" else read_arrow(text, self.schema)
        if _NO_TEXT.match(text[:4096]):
            raise ValueError("it is no text")
        if self.format == "json":
            return read_json(text, self.schema, one_by_one)
        return read_csv(text, self.schema, CsvOptions.of(self.stream, self.options), one_by_one)

    def _parquet(self, file: pa.NativeFile) -> pa.Table:
        read = _read_parquet(file, self.schema)
        if self.computed is None:
            return read
        rows, failed = self.computed.rows(read)
        for reason in failed.values():
            raise ValueError(reason)
        return rows


@contextmanager
def _named(path: str, format: str, stream: str) -> Iterator[None]:
    """Says of what is wrong with a file which one it is."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, LookupError) as error:
        raise InputError(
            f"cannot read {path} as {format} for stream {stream}",
            detail=str(error).split("\n")[0],
            hint="is the file whole, and does it have the columns of the stream's schema? To go on without it, "
            "move it out of the folder",
        ) from error


def _ends_of(path: str, file: pa.NativeFile) -> bytes:
    """The first and the last lines of a file of text; of a compressed one, all of which has to pass for that."""
    codec = _codec(path)
    text = pa.CompressedInputStream(file, codec) if codec and file.size() else file
    first = last = bytes(text.read(_END))
    if len(first) < _END:
        return first
    if text is file:
        file.seek(max(_END, file.size() - _END))
    while more := text.read(2**20):
        last = (last + more)[-_END:]
    return first[: first.rfind(b"\n") + 1] + last.partition(b"\n")[2]


def _codec(path: str) -> str | None:
    """How a file is compressed as a whole, by its name."""
    return _CODECS.get(Path(path).suffix.lower())


def _uncompressed(path: str, content: bytes) -> bytes:
    """The text of a file, whose name tells how it is compressed."""
    codec = _codec(path)
    if codec is None or not content:
        return content
    with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
        return bytes(stream.read())


def _bounds(opened: pa.NativeFile, field: pa.Field) -> pa.ChunkedArray | None:
    """The least and the greatest values of the groups of a Parquet file, where the file itself tells all of them."""
    file = pyarrow.parquet.ParquetFile(opened)
    places = [i for i in range(file.metadata.num_columns) if file.schema.column(i).path == field.name]
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    known = [group.column(place).statistics for group in groups for place in places]
    if not known or not all(each is not None and each.has_min_max for each in known):
        return None
    values = [value for each in known for value in (each.min, each.max)]
    return pa.chunked_array([pa.array(values, file.schema_arrow.field(field.name).type).cast(field.type)])


def _read_parquet(opened: pa.NativeFile, schema: pa.Schema) -> pa.Table:
    with pyarrow.parquet.ParquetFile(opened) as file:
        declared = declared_names(file.schema_arrow.names, schema.names)
        names = list(declared)
        if not any("." in name for name in names):
            # A dataset of one file takes several times as long to set up.
            table = file.read(names, use_threads=file.metadata.num_rows > _FEW_ROWS)
        else:
            table = pyarrow.parquet.read_table(opened, columns=names)
    return as_declared(table, schema)
