"""A starter job from a folder of files: its streams, their columns and time, and first queries that run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from midstream.errors import InputError, MidstreamError
from midstream.inputs import read_table
from midstream.inputs.ddl import ddl_of_schema
from midstream.language.dialect import CQL

FORMATS = {"parquet": "parquet", "pq": "parquet", "csv": "csv", "tsv": "csv"} | dict.fromkeys(
    ("json", "jsonl", "ndjson"), "json"
)
SAMPLED_FILES = 3
TIME_NAMES = ("ts", "time", "timestamp", "event_time", "datetime", "date", "created_at", "at")
WINDOWS = ((60, "1 SECOND"), (3_600, "1 MINUTE"), (5 * 86_400, "1 HOUR"))
"""Up to how many seconds of data are cut into windows of which length; into days beyond."""


@dataclass(frozen=True, slots=True)
class Found:
    """A stream that a folder holds, with a sample of its rows."""

    name: str
    format: str
    path: Path
    sample: pa.Table
    time: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def is_timed(self) -> bool:
        """Whether time is a timestamp, not a number."""
        return bool(pa.types.is_timestamp(self.sample.schema.field(self.time).type))

    @property
    def times(self) -> pa.ChunkedArray:
        """The times in the sample, in ticks."""
        column = self.sample.column(self.time)
        return (column.cast(pa.timestamp("us", column.type.tz)) if self.is_timed else column).cast(pa.int64())

    @property
    def disorder(self) -> int:
        """How far a row of the sample is behind one before it, in ticks."""
        times = pc.fill_null(self.times, pc.min(self.times)).combine_chunks()
        return int(pc.max(pc.subtract(pc.cumulative_max(times), times)).as_py() or 0) if len(times) else 0

    @property
    def window(self) -> str:
        """A length that cuts the sample's time into a readable number of windows."""
        span = (pc.max(self.times).as_py() or 0) - (pc.min(self.times).as_py() or 0)
        if not self.is_timed:
            return str(10 ** max(0, len(str(max(1, span // 20))) - 1))
        return next((window for most, window in WINDOWS if span <= most * 1_000_000), "1 DAY")

    @property
    def few_valued(self) -> str | None:
        """A column with few values, to group by."""
        for column in self.sample.schema:
            groupable = pa.types.is_string(column.type) or pa.types.is_boolean(column.type)
            if groupable and 1 < len(pc.unique(self.sample.column(column.name))) <= 20:
                return str(column.name)
        return None


def streams_in(folder: Path) -> tuple[list[Found], list[str]]:
    """The streams of a folder, one for each sub-folder and each loose file, and why others are none."""
    found: list[Found] = []
    skipped: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or path.name.endswith((".checkpoint", ".toml")):
            continue
        files = data_files(path)
        if not files:
            continue
        try:
            found.append(_stream(path, files, {stream.name for stream in found}))
        except MidstreamError as error:
            skipped.append(f"{path.name}: {error.message}")
    return found, skipped


def job_text(found: Sequence[Found], checkpoint: str, base: Path) -> str:
    """A job file for streams; paths in it are relative to `base`."""
    parts = [f'[job]\ncheckpoint = {_text(checkpoint)}\non = "local"  # or "spark"']
    parts += [_stream_text(stream, base) for stream in found]
    parts += [_query_text(name, cql) for name, cql in first_queries(found)]
    return "\n\n".join(parts) + "\n"


def first_queries(found: Sequence[Found]) -> Iterator[tuple[str, str]]:
    """A count over each stream, and the join of the first two streams that have a key in common."""
    for stream in found:
        group = stream.few_valued
        name = _quoted(stream.name)
        if group is None:
            yield f"{stream.name}_counted", f"SELECT count(*) AS seen FROM {name} [TUMBLE {stream.window}]"
        else:
            column = _quoted(group)
            text = f"SELECT {column}, count(*) AS seen FROM {name} [TUMBLE {stream.window}] GROUP BY {column}"
            yield f"{stream.name}_counted", text
    for left, right, key in _joins(found):
        a, b, k = _quoted(left.name), _quoted(right.name), _quoted(key)
        window = left.window
        text = f"SELECT {a}.{k}\nFROM {a} [RANGE {window}], {b} [RANGE {window}]\nWHERE {a}.{k} = {b}.{k}"
        yield f"{left.name}_with_{right.name}", text
        return


def _joins(found: Sequence[Found]) -> Iterator[tuple[Found, Found, str]]:
    """Pairs of streams with a column of equal name and type that mostly tells rows apart in one of them."""
    for i, left in enumerate(found):
        for right in found[i + 1 :]:
            if left.is_timed != right.is_timed:
                continue
            for column in left.sample.schema:
                both = column.name in right.sample.schema.names
                if both and column.name not in (left.time, right.time) and _is_key(column, left, right):
                    yield left, right, column.name


def _is_key(column: pa.Field, left: Found, right: Found) -> bool:
    if right.sample.schema.field(column.name).type != column.type:
        return False
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        return False
    return any(2 * len(pc.unique(s.sample.column(column.name))) > s.sample.num_rows for s in (left, right))


def data_files(path: Path) -> list[Path]:
    """The file, or the files with rows in a folder and below, in order of their names."""
    inside = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return [file for file in inside if _suffix(file) in FORMATS and not file.name.startswith((".", "_"))]


def _suffix(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2].lower()


def _stream(path: Path, files: list[Path], taken: set[str]) -> Found:
    formats = {(FORMATS[_suffix(file)], _suffix(file) == "tsv") for file in files}
    if len(formats) > 1:
        raise InputError("it holds files of several formats")
    ((kind, tabs),) = formats
    tables = [read_table(file) for file in files[:SAMPLED_FILES]]
    try:
        sample = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError("its files have columns of different types") from error
    sample = sample.select([c.name for c in sample.schema if ddl_of_schema(pa.schema([c])) is not None])
    options = {"header": "true", **({"sep": "\t"} if tabs else {})} if kind == "csv" else {}
    if path.is_file():
        options["pathGlobFilter"] = re.sub(r"([*?\[])", r"[\1]", path.name)
    return Found(_name(path, taken), kind, path, sample, usual_time_column(sample.schema), options)


def usual_time_column(schema: pa.Schema) -> str:
    """A timestamp, by a usual name if there is one; else a whole number by a usual name."""
    timed = [c.name for c in schema if pa.types.is_timestamp(c.type)]
    whole = [c.name for c in schema if pa.types.is_integer(c.type) and c.name.lower() in TIME_NAMES]
    usual = sorted((name for name in timed if name.lower() in TIME_NAMES), key=lambda n: TIME_NAMES.index(n.lower()))
    candidates = [*usual, *timed, *whole]
    if not candidates:
        raise InputError(f"it has no time column among {', '.join(schema.names)}")
    return str(candidates[0])


def _name(path: Path, taken: set[str]) -> str:
    plain = re.sub(r"\W+", "_", path.name.split(".")[0], flags=re.ASCII).strip("_") or "stream"
    plain = plain if not plain[0].isdigit() else f"s_{plain}"
    number = 2
    name = plain
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    return name


def _stream_text(stream: Found, base: Path) -> str:
    lines = [f"[streams.{stream.name}]", f"format = {_text(stream.format)}"]
    folder = stream.path if stream.path.is_dir() else stream.path.parent
    lines.append(f"path = {_text(os.path.relpath(folder, base))}")
    schema = stream.sample.schema
    if stream.format != "parquet":  # times in texts without a zone are in UTC, here and on Spark
        schema = pa.schema([_zoned(column) for column in schema])
    lines.append(f"schema = {_text(str(ddl_of_schema(schema)))}")
    if stream.time != "ts":
        lines.append(f"time = {_text(stream.time)}")
    if stream.disorder:
        late = f"{-(-stream.disorder // 1_000_000)} seconds" if stream.is_timed else str(stream.disorder)
        lines.append(f"lateness = {_text(late)}  # as far as rows of the files are out of order")
    if stream.options:
        lines.append("options = { " + ", ".join(f"{key} = {_text(v)}" for key, v in stream.options.items()) + " }")
    return "\n".join(lines)


def _zoned(column: pa.Field) -> pa.Field:
    return column.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else column


def _query_text(name: str, cql: str) -> str:
    shown = f"'''\n{cql}\n'''" if "\n" in cql else (f"'{cql}'" if "'" not in cql else _text(cql))
    return f"[queries.{name}]\ncql = {shown}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _quoted(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.upper() not in CQL.Tokenizer.KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'
