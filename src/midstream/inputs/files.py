"""Files hold tables: Parquet, CSV, JSON lines and Arrow, told apart by their suffix.

A file that cannot be read or written is the user's to mend, so whatever a library raises leaves here as an
`InputError` that names the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from midstream.errors import InputError
from midstream.inputs.json_lines import json_lines
from midstream.inputs.json_values import json_row

Format = Literal["parquet", "csv", "tsv", "json", "arrow", "arrow stream"]

SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrow stream",
}
COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4")
TEXT_FORMATS: frozenset[Format] = frozenset({"csv", "tsv", "json"})

NULL_WORDS = ["", "NULL", "null", "NA", "N/A"]
"""What an unquoted CSV value says when it says nothing."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")


def format_of(path: Path) -> Format:
    """The format a file's suffix promises.

    >>> format_of(Path("bids.csv.gz"))
    'csv'
    """
    suffixes = [s.lower() for s in path.suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    suffix = "".join((suffixes[:-1] if compressed else suffixes)[-1:])
    found = SUFFIXES.get(suffix)
    if found is None:
        raise InputError(
            f"cannot tell the format of {path} by its suffix {suffix!r}" if suffix else f"{path} has no suffix",
            hint=f"use one of {', '.join(SUFFIXES)}",
        )
    if compressed and found not in TEXT_FORMATS:
        raise InputError(f"{path} is compressed as a whole", hint=f"{found} files compress their own columns")
    return found


def read_table(path: str | os.PathLike[str]) -> pa.Table:
    """The table a file holds."""
    path = Path(path)
    with _reading(path) as kind:
        return _checked(_READERS[kind](path))


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    """The columns of the table a file holds, without its rows where the format allows it."""
    path = Path(path)
    with _reading(path) as kind:
        if kind == "parquet" and path.is_file():
            return _checked(pyarrow.parquet.read_schema(path).empty_table()).schema
        return _checked(_READERS[kind](path)).schema


def _checked(table: pa.Table) -> pa.Table:
    """The table, if its names and texts are texts and its values lie where it says: Arrow believes a file."""
    table.validate(full=True)
    return table.rename_columns(table.column_names)


@contextmanager
def _reading(path: Path) -> Iterator[Format]:
    kind = format_of(path)
    if not path.exists():
        raise InputError(f"there is no file {path}")
    if path.is_dir() and kind != "parquet":
        raise InputError(f"{path} is a folder, not a file", hint="only Parquet tables may be folders of files")
    with _named(f"cannot read {path} as {kind}", "is the file whole, and is its suffix the right one?"):
        yield kind


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Writes a table; the file is there in full or not at all."""
    path = Path(path)
    kind = format_of(path)
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}")
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with _named(f"cannot write {path} as {kind}", _advice(table, kind)):
            _WRITERS[kind](table, draft)
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _named(message: str, hint: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, TypeError, RecursionError) as error:
        raise InputError(message, detail=_first_line(error), hint=hint) from error


def _first_line(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.strip().split("\n")[0][:300] or type(error).__name__


def _advice(table: pa.Table, kind: Format) -> str | None:
    nested = [f.name for f in table.schema if pa.types.is_nested(f.type)]
    if kind in ("csv", "tsv") and nested:
        return f"{kind} cannot hold {', '.join(nested)}, which is nested; write .parquet or .jsonl"
    return None


def _read_csv(path: Path, delimiter: str = ",") -> pa.Table:
    return pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            null_values=NULL_WORDS, strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _read_json(path: Path) -> pa.Table:
    text = json_lines(path)
    if text[:1024].lstrip().startswith(b"["):
        raise ValueError("it is one JSON array; one object per line is expected")
    table = pyarrow.json.read_json(pa.BufferReader(text))
    # Arrow takes text for times down to the second and forgets their zone: read such columns as text, then parse them.
    guessed = [f.with_type(pa.string()) for f in table.schema if pa.types.is_timestamp(f.type)]
    if guessed:
        options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(guessed))
        table = pyarrow.json.read_json(pa.BufferReader(text), parse_options=options).select(table.column_names)
    return _with_times(table)


def _with_times(table: pa.Table) -> pa.Table:
    for i, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            table = table.set_column(i, table.column_names[i], parse_times(column))
    return table


def parse_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text that is a date or a time in every row, as such; any other text as it is."""
    first = next((value.as_py() for value in column if value.is_valid), "")
    if _MOMENT.match(first):
        candidates = [pa.timestamp("us"), pa.timestamp("us", "UTC")]
    elif _DATE.fullmatch(first):
        candidates = [pa.date32()]
    else:
        candidates = []
    for candidate in candidates:
        try:
            return column.cast(candidate)
        except pa.ArrowException:
            continue
    return column


def _read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as source:
        opened = pa.ipc.open_file if source.read(6) == b"ARROW1" else pa.ipc.open_stream
        source.seek(0)
        return opened(source).read_all()


def _write_csv(table: pa.Table, path: Path, delimiter: str = ",") -> None:
    with pa.output_stream(str(path), compression="detect") as stream:
        pyarrow.csv.write_csv(table, stream, pyarrow.csv.WriteOptions(delimiter=delimiter))


def _write_json(table: pa.Table, path: Path) -> None:
    with pa.output_stream(str(path), compression="detect") as stream:
        for batch in table.to_batches(max_chunksize=10_000):
            lines = (json.dumps(json_row(row), ensure_ascii=False) + "\n" for row in batch.to_pylist())
            stream.write("".join(lines).encode())


def _write_arrow(table: pa.Table, path: Path, opened: Any = pa.ipc.new_file) -> None:
    with opened(str(path), table.schema) as writer:
        writer.write_table(table)


_READERS: dict[Format, Callable[[Path], Any]] = {
    "parquet": pyarrow.parquet.read_table,
    "csv": _read_csv,
    "tsv": partial(_read_csv, delimiter="\t"),
    "json": _read_json,
    "arrow": _read_arrow,
    "arrow stream": _read_arrow,
}
_WRITERS: dict[Format, Callable[[Any, Path], None]] = {
    "parquet": pyarrow.parquet.write_table,
    "csv": _write_csv,
    "tsv": partial(_write_csv, delimiter="\t"),
    "json": _write_json,
    "arrow": _write_arrow,
    "arrow stream": partial(_write_arrow, opened=pa.ipc.new_stream),
}
