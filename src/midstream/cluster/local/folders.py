"""A growing folder of files as a stream: each file is read once, whole, in the order in which files were written.

Which files were read is in the manifest of the batch that took their rows, so a file counts exactly when its batch
does. Files whose names begin with a dot or an underscore are somebody's unfinished work, as Spark has it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.plan import Project
from midstream.checkpoint.file_entries import SourceFile
from midstream.errors import InputError, JobError, MidstreamError
from midstream.inputs import NamedSource
from midstream.inputs.ddl import schema_of_ddl
from midstream.inputs.folder_paths import local_folder
from midstream.inputs.json_lines import json_lines
from midstream.language import parse
from midstream.operators.expressions import CompiledExpression, compile_expression

log = logging.getLogger(__name__)

FORMATS = ("parquet", "csv", "json")
OPTIONS = {"maxFilesPerTrigger", "pathGlobFilter", "header", "sep", "delimiter", "nullValue"}

ATTEMPTS = 3
"""How often a file is read that changes meanwhile."""

_EMPTY = ("Empty CSV file", "Empty JSON file")
"""What Arrow says of files without any row."""

_BLOCKS = (1 << 20, 1 << 24, 1 << 30)
"""In blocks of how many bytes text is read: larger ones if rows are longer."""

_FEW_ROWS = 20_000
"""Up to how many rows a file is read by one thread."""

_ROW_TIME = "#time"


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder of files of one format; `schema` are the columns of the files, `columns` those made of them."""

    name: str
    format: str
    folder: Path
    schema: pa.Schema
    options: Mapping[str, str]
    columns: tuple[tuple[str, CompiledExpression], ...] = ()

    @staticmethod
    def opened(source: NamedSource) -> FolderSource:
        """The source as it is declared; every mistake is named."""
        name, format, path = source.name, source.format, source.path
        if format not in FORMATS:
            raise InputError(
                f"stream {name} has the format {format!r}, which cannot be read in this process",
                hint=f"use one of {', '.join(FORMATS)}, or run on Spark",
            )
        if path is None or source.schema is None:
            raise InputError(f"stream {name} needs a path and a schema to be read from a folder")
        folder = local_folder(path)
        if "://" in path and not path.startswith("file:/"):
            raise InputError(f"stream {name} lies in {path}, which only Spark can read")
        require_folder(name, folder)
        require_options(name, source.options)
        raw = schema_of_ddl(source.schema, f"the schema of stream {name}")
        return FolderSource(name, format, folder, raw, dict(source.options)).with_columns(source.columns)

    def with_columns(self, columns: Sequence[str]) -> FolderSource:
        """The source with columns computed by SQL expressions; as it is if there are none."""
        return replace(self, columns=_computed(self.name, self.schema, columns))

    @property
    def produced(self) -> pa.Schema:
        """The columns of the stream."""
        if not self.columns:
            return self.schema
        return pa.schema([pa.field(name, expression.expression.type) for name, expression in self.columns])

    @property
    def at_once(self) -> int | None:
        """How many files a batch takes at most."""
        most = self.options.get("maxFilesPerTrigger")
        if most is None:
            return None
        if not most.isdecimal() or int(most) < 1:
            raise InputError(
                f"maxFilesPerTrigger of stream {self.name} must be a whole number above zero, not {most!r}"
            )
        return int(most)

    def present(self, but: Collection[str] = ()) -> list[SourceFile]:
        """The files that are there, oldest first, without some that are known; those are not looked at."""
        found = []
        pattern = self.options.get("pathGlobFilter", "*")
        for place, folders, names in os.walk(self.folder):
            folders[:] = sorted(f for f in folders if not f.startswith((".", "_")))
            within = "" if place == str(self.folder) else os.path.relpath(place, self.folder)
            for name in names:
                if not name.startswith((".", "_")) and fnmatchcase(name, pattern):
                    path = os.path.join(within, name)
                    found.append(None if path in but else self._seen(path))
        return sorted(filter(None, found), key=lambda file: (file.modified, file.path))

    def among(self, paths: Collection[str]) -> list[SourceFile]:
        """The files of the folder that are among absolute paths; of those that are gone only the names are known."""
        places = (str(self.folder), os.path.realpath(self.folder))
        here = {file.path: file for file in self.present()} if paths else {}
        spelled = {*paths, *_through_links(paths)}
        names = {path[len(place) + 1 :] for path in spelled for place in places if path.startswith(place + os.sep)}
        return [here.get(name, SourceFile(name, 0, 0)) for name in sorted(names)]

    def check_unchanged(self, read: Collection[SourceFile]) -> None:
        """Refuses files that were read and have another size now: what was added to them would be lost.

        Those of the same size that were written again are warned of: most are copies, whose rows were read.
        """
        now = {file.path: file for file in self.present()}
        again = []
        for file in read:
            known = now.get(file.path)
            if known is None:
                continue
            if known.modified != file.modified:
                again.append(file.path)
            if known.size != file.size:
                raise JobError(
                    f"the file {self.folder / file.path} of stream {self.name} has changed since it was read",
                    detail=f"it had {file.size:,} bytes and has {known.size:,}",
                    hint="add rows to the folder as new files, and put the old file back as it was",
                )
        if again:
            log.warning("%s", self._written_again(again))

    def _written_again(self, paths: Sequence[str]) -> str:
        """In words that files have another modification time than when they were read."""
        more = f", and {len(paths) - 1:,} more," if len(paths) > 1 else ""
        return (
            f"the file {self.folder / paths[0]} of stream {self.name}{more} has another modification time than when it "
            "was read, and the same size: it is taken for a copy and not read again. Add new rows as new files"
        )

    def read(self, files: Sequence[SourceFile]) -> tuple[pa.Table, list[SourceFile]]:
        """The rows of files, in order, with the stream's columns; and the files as they were when they were read."""
        tables, found = [], []
        for file in files:
            table, now = self._read_still(file.path)
            tables.append(table)
            found.append(now)
        return self._as_produced(tables), found

    def _as_produced(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The rows of files with the stream's columns."""
        raw = pa.concat_tables(tables) if tables else self.schema.empty_table()
        if not self.columns:
            return raw
        parts = [self._row_times(batch) for batch in raw.to_batches()]
        made = [[expression(batch) for _, expression in self.columns] for batch in parts]
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(a, schema=self.produced) for a in made], self.produced)

    @staticmethod
    def _row_times(batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [f"{_SOURCE}.{name}" for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(batch.columns, names=names)

    def _read_still(self, path: str) -> tuple[pa.Table, SourceFile]:
        """The rows of a file, and the file as it was all the while."""
        for _ in range(ATTEMPTS):
            before = self._seen(path)
            table = self._read(self.folder / path)
            if before is not None and self._seen(path) == before:
                return table, before
        raise InputError(
            f"the file {self.folder / path} of stream {self.name} changes while it is read",
            hint="write files under names that begin with a dot or an underscore, and rename them when they are whole",
        )

    def _seen(self, path: str) -> SourceFile | None:
        """A file as it is now, if it is there."""
        try:
            status = os.stat(os.path.join(self.folder, path))
        except FileNotFoundError:
            return None
        return SourceFile(path, status.st_size, status.st_mtime_ns)

    def _read(self, path: Path) -> pa.Table:
        try:
            return _READERS[self.format](path, self.schema, self.options)
        except (OSError, pa.ArrowException, ValueError, LookupError) as error:
            if str(error) in _EMPTY:
                return self.schema.empty_table()
            raise InputError(
                f"cannot read {path} as {self.format} for stream {self.name}",
                detail=str(error).split("\n")[0],
                hint="is the file whole, and does it have the columns of the stream's schema? To go on without it, "
                "move it out of the folder",
            ) from error


def require_folder(name: str, folder: Path) -> None:
    """Refuses a path that is no folder."""
    if folder.is_file():
        raise InputError(
            f"stream {name} cannot be read: {folder} is a file, and a stream is a folder of files",
            hint=f'give its folder as the path, and the option pathGlobFilter = "{folder.name}"',
        )
    if not folder.is_dir():
        raise InputError(
            f"stream {name} cannot be read: there is no folder {folder}",
            hint="relative paths in a job file are relative to the file",
        )


def _through_links(paths: Collection[str]) -> Iterator[str]:
    """The paths with the links of their folders followed."""
    folders = {path: os.path.realpath(path) for path in {os.path.dirname(path) for path in paths}}
    return (os.path.join(folders[os.path.dirname(path)], os.path.basename(path)) for path in paths)


def require_options(name: str, options: Mapping[str, str]) -> None:
    """Refuses options of a source that have no meaning in this process."""
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise InputError(
            f"stream {name} has options that mean nothing in this process: {', '.join(unknown)}",
            hint=f"known options: {', '.join(sorted(OPTIONS))}",
        )


_SOURCE = "source"


def _computed(name: str, raw: pa.Schema, columns: Sequence[str]) -> tuple[tuple[str, CompiledExpression], ...]:
    """The columns that expressions make of a source's, compiled."""
    if not columns:
        return ()
    # A query reads streams, and streams have times; these rows have none yet.
    declared = StreamDeclaration(_SOURCE, raw.append(pa.field(_ROW_TIME, pa.int64())), _ROW_TIME)
    try:
        relation = parse(f"SELECT {', '.join(columns)} FROM {_SOURCE} [NOW]", Catalog({_SOURCE: declared}))
    except MidstreamError as error:
        raise InputError(f"the columns of stream {name} cannot be computed: {error}") from error
    if not isinstance(relation, Project):
        raise InputError(f"the columns of stream {name} must be expressions over one row: {', '.join(columns)}")
    schema = pa.schema([pa.field(f"{_SOURCE}.{f.name}", f.type) for f in raw])
    return tuple((c.name, compile_expression(c.expression, schema)) for c in relation.columns)


def _read_parquet(path: Path, schema: pa.Schema, options: Mapping[str, str]) -> pa.Table:
    with pyarrow.parquet.ParquetFile(path) as file:
        declared = _declared_names(file.schema_arrow.names, schema.names)
        names = list(declared)
        if not any("." in name for name in names):
            # A dataset of one file takes several times as long to set up.
            table = file.read(names, use_threads=file.metadata.num_rows > _FEW_ROWS)
        else:
            table = pyarrow.parquet.read_table(path, columns=names)
    return _with_columns(table.rename_columns([declared[name] for name in table.column_names]), schema)


def _declared_names(present: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    """The declared name of each column of a file that has one, which may differ in case, as Spark has it.

    >>> _declared_names(["TS", "k", "more"], ["ts", "k", "v"])
    {'TS': 'ts', 'k': 'k'}
    """
    found = {name: name for name in present if name in set(declared)}
    for name in set(declared) - set(found):
        alike = [other for other in present if other.lower() == name.lower() and other not in found]
        if len(alike) > 1:
            raise ValueError(f"the columns {', '.join(alike)} differ in case only")
        found |= dict.fromkeys(alike, name)
    return {name: found[name] for name in present if name in found}


def _in_blocks(read: Callable[[int], pa.Table]) -> pa.Table:
    """What is read in blocks of so many bytes; a row must not be longer than one, so they grow if need be."""
    for block in _BLOCKS[:-1]:
        try:
            return read(block)
        except pa.ArrowInvalid as error:
            if "straddles two block boundaries" not in str(error):
                raise
    return read(_BLOCKS[-1])


def _read_csv(path: Path, schema: pa.Schema, options: Mapping[str, str]) -> pa.Table:
    header = options.get("header", "false").lower() == "true"
    delimiter = options.get("sep", options.get("delimiter", ","))
    names = None if header else schema.names
    parse_options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    convert_options = pyarrow.csv.ConvertOptions(
        column_types={f.name: _parsed_as(f.type) for f in schema},
        null_values=[options.get("nullValue", "")],
        strings_can_be_null=True,
    )

    def read(block: int) -> pa.Table:
        read_options = pyarrow.csv.ReadOptions(column_names=names, block_size=block)
        return pyarrow.csv.read_csv(path, read_options, parse_options, convert_options)

    return _with_columns(_in_blocks(read), schema)


def _read_json(path: Path, schema: pa.Schema, options: Mapping[str, str]) -> pa.Table:
    read_as = pa.schema([pa.field(f.name, _parsed_as(f.type)) for f in schema])
    parse_options = pyarrow.json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore")
    text = json_lines(path)

    def read(block: int) -> pa.Table:
        return pyarrow.json.read_json(pa.BufferReader(text), pyarrow.json.ReadOptions(block_size=block), parse_options)

    return _with_columns(_in_blocks(read), schema)


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """The type that text is first read as: Arrow forgets the zones of times unless they stay text."""
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Exactly the columns of a schema; those that a file lacks are null, as Spark has it."""
    columns = []
    for field in schema:
        found = table.column(field.name) if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        if pa.types.is_string(found.type) and pa.types.is_timestamp(field.type) and field.type.tz is not None:
            found = _moments(found, field.type)
        columns.append(found if found.type == field.type else found.cast(field.type))
    return pa.table(columns, schema=schema)


def _moments(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts as moments; those without a zone are in UTC, as in sessions of Spark that we open."""
    zoned = pc.match_substring_regex(texts, r"\d([Zz]|[+-]\d\d:?\d\d)$")
    return pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", "")).cast(kind)


_READERS = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json}
