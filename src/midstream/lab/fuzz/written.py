"""Rows written as files and read back: as Parquet, CSV and JSON lines, spelled as different writers spell them.

Whatever a table holds, its files hold the same rows, and none of them is bad.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.connectors.files.bad_rows import BAD
from midstream.connectors.files.contents import FileContents
from midstream.inputs.ddl import ddl_of_schema
from midstream.inputs.json_values import json_value

NUMBER = "row_number"
"""A column that says which row it is."""

AWKWARD = [
    "",
    " ",
    "null",
    "NA",
    "a,b",
    'x"y',
    '"',
    '""',
    "a\nb",
    "a\r\nb",
    "\t",
    "ä€😀",
    "'",
    "\\",
    "#",
    "{}",
    "[",
    "0",
]
"""Texts that readers of CSV and JSON may take for something else."""


def differences(table: pa.Table, random: Random, folder: Path) -> Iterator[str]:
    """Which formats do not give back the rows of a table, with a column of awkward texts more, and what they give."""
    rows = _with_awkward_texts(table, random)
    for format, path, options in _written(rows, random, folder):
        found = FileContents("S", format, rows.schema, options).of_path(path)
        bad = [text for text in found.column(BAD).to_pylist() if text] if BAD in found.column_names else []
        given = found.select(rows.column_names)
        if bad or repr(given.to_pylist()) != repr(rows.to_pylist()):
            yield f"{format}: {path.read_bytes()!r} gives {given.to_pylist()} and {bad}, not {rows.to_pylist()}"


def differences_in_a_job(session: Any, table: pa.Table, random: Random, folder: Path) -> Iterator[str]:
    """Which formats do not give back the rows of a table through the streams of a job, wherever its session runs."""
    rows = _with_awkward_texts(table, random).append_column(NUMBER, pa.array(range(table.num_rows), pa.int64()))
    columns = ", ".join(f"S.{name} AS c{place}" for place, name in enumerate(rows.column_names))
    formats = []
    for format, path, options in _written(rows, random, folder):
        schema = ddl_of_schema(rows.schema)
        how = {"schema": schema, "options": options, "time": NUMBER, "lateness": table.num_rows + 1}
        session.open_stream(f"of_{format}", format, path=str(path.parent), **how, max_ahead="any")
        session.query(format, f"SELECT {columns} FROM of_{format} [NOW] AS S")
        formats.append(format)
    session.process_available(finish=True)
    place = rows.column_names.index(NUMBER)
    for format in formats:
        found = session.queries[format].table()
        given = found.select(range(rows.num_columns)).rename_columns(rows.column_names).cast(rows.schema).to_pylist()
        given.sort(key=lambda row: row[rows.column_names[place]])
        if repr(given) != repr(rows.to_pylist()):
            yield f"{format} gives {given}, not {rows.to_pylist()}"


def _with_awkward_texts(table: pa.Table, random: Random) -> pa.Table:
    texts = [random.choice([*AWKWARD, None]) for _ in range(table.num_rows)]
    return _in_microseconds(table).append_column("awkward", pa.array(texts, pa.string()))


def _written(rows: pa.Table, random: Random, folder: Path) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """The rows as a file of each format, in a folder of its own, with the options of its reader."""
    for format in ("parquet", "csv", "json"):
        (folder / format).mkdir(exist_ok=True)
    yield "parquet", _parquet(rows, folder / "parquet" / "rows"), {}
    yield "csv", _csv(rows, random, folder / "csv" / "rows"), {"header": "true"}
    yield "json", _json(rows, random, folder / "json" / "rows"), {}


def _in_microseconds(table: pa.Table) -> pa.Table:
    """The table with times as streams of files have them."""
    fields = [
        f.with_type(pa.timestamp("us", f.type.tz and "UTC")) if pa.types.is_timestamp(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(fields))


def _parquet(rows: pa.Table, path: Path) -> Path:
    pq.write_table(rows, path)
    return path


def _csv(rows: pa.Table, random: Random, path: Path) -> Path:
    names, end = random.sample(rows.column_names, rows.num_columns), random.choice(["\n", "\r\n"])
    always, capitals = random.random() < 0.3, random.random() < 0.3
    lines = [",".join(_quoted(name.upper() if capitals else name, always) for name in names)]
    for row in rows.to_pylist():
        kinds = {name: rows.schema.field(name).type for name in names}
        lines.append(",".join(_spelled(row[name], kinds[name], random, always) for name in names))
        lines += [""] * random.choice([0, 0, 0, 1])
    path.write_bytes((end.join(lines) + random.choice([end, ""])).encode())
    return path


def _spelled(value: Any, kind: pa.DataType, random: Random, always: bool) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(json_value(value))
    if pa.types.is_string(kind):
        return _quoted(text, always or not text)
    padded = text if random.random() < 0.9 else random.choice([f" {text}", f"{text}\t"])
    return _quoted(padded, always)


def _quoted(text: str, always: bool) -> str:
    if always or any(sign in text for sign in '",\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _json(rows: pa.Table, random: Random, path: Path) -> Path:
    lines = []
    for row in rows.to_pylist():
        values = {name: value if isinstance(value, float) else json_value(value) for name, value in row.items()}
        present = {name: value for name, value in values.items() if value is not None or random.random() < 0.5}
        keys = random.sample(list(present), len(present))
        lines.append(json.dumps({key: present[key] for key in keys}, ensure_ascii=random.random() < 0.5))
    path.write_text(random.choice(["\n", "\n\n", "\r\n"]).join(lines), newline="")
    return path
