"""Files of results and of dead letters: each has the checksum that its manifest gives it, or is an error.

A reader verifies each file, once in a process.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.file_entries import DeadLetterFile, FileLog, ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import dead_letters_of, results_of
from midstream.checkpoint.manifest import Manifest
from midstream.errors import JobError
from midstream.operators.vectors import Numbers, numbers_of

Output = ResultFile | DeadLetterFile

DEAD_LETTER_COLUMNS = pa.schema(
    [("batch_id", pa.int64()), ("stream", pa.string()), ("reason", pa.string()), ("row", pa.string())]
)
"""The columns of the dead-letter table; `row` is the row as JSON, whatever its values are."""

_RESTORE = "restore it from a copy of the checkpoint, or give it up: midstream repair CHECKPOINT --give-up"


def checksum_of(content: pa.Buffer) -> int:
    """What a manifest says of a file's content."""
    return zlib.crc32(content)


def open_output(files: Files, output: Output) -> pa.Buffer:
    """The content of a file, mapped."""
    try:
        mapped = files.mapped(output.path)
    except MissingFile as error:
        raise _missing(files, [output]) from error
    if output.checksum is not None and 0 not in mapped.verified:
        if checksum_of(mapped.content) != output.checksum:
            raise JobError(
                f"{_kind(output)} {files.full(output.path)} is damaged",
                detail=f"its checksum does not agree; it holds {output.rows:,} rows of batch {output.batch_id}",
                hint=_RESTORE,
            )
        mapped.verified.add(0)
    return mapped.content


def outputs_of(files: Files, manifest: Manifest) -> Iterator[Output]:
    """All files of results and dead letters, each once however many queries share it."""
    seen: set[str] = set()
    named: list[Iterable[Output]] = [
        *(results_of(files, manifest, query) for query in manifest.outputs.results),
        dead_letters_of(files, manifest),
    ]
    for outputs in named:
        for output in outputs:
            if output.path not in seen:
                seen.add(output.path)
                yield output


def require_present(files: Files, outputs: Iterable[Output]) -> None:
    """Fails by name if files are not there; their content is not looked at."""
    wanted = list(outputs)
    folders = {output.path.rpartition("/")[0] for output in wanted}
    present = {path for folder in folders for path in files.list(folder)}
    missing = [output for output in wanted if output.path not in present]
    if missing:
        raise _missing(files, missing)


def _missing(files: Files, missing: list[Output]) -> MissingFile:
    first, more = missing[0], len(missing) - 1
    return MissingFile(
        f"{_kind(first)} {files.full(first.path)} is missing" + (f", and {more} more" if more else ""),
        detail=f"{sum(output.rows for output in missing):,} rows were written there; nothing else has them",
        hint=_RESTORE,
    )


def _kind(output: Output) -> str:
    return "the result file" if isinstance(output, ResultFile) else "the dead-letter file"


NUMBERS = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date32)


def numbers_in(schema: pa.Schema) -> list[str]:
    """The columns whose neighbouring values have small differences, mostly."""
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in NUMBERS)]


@lru_cache(maxsize=256)
def written_as(schema: pa.Schema) -> Mapping[str, Any]:
    """How tables are written: numbers as packed differences, a third of the time of compressing them, and smaller."""
    numbers = numbers_in(schema)
    # The leaves of nested columns have other names, which would have to be listed.
    nested = any(pa.types.is_nested(field.type) for field in schema)
    by_column = {field.name: "none" if field.name in numbers else "zstd" for field in schema}
    return {
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "compression": "zstd" if nested else by_column,
        "use_dictionary": False,
    }


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """A table as the content of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **written_as(table.schema))
    return sink.getvalue()


QUERY = "#query"
"""The column that says whose a row is."""


AT_ONCE = 16_384
"""Of how many rows starts are read at a time."""


def read_results(files: Files, file: ResultFile) -> pa.Table:
    """The rows that a file has for a query."""
    content = pa.BufferReader(open_output(files, file))
    if not file.part:
        return pq.ParquetFile(content).read()
    parquet = pq.ParquetFile(content)
    rows = parquet.read_row_groups(_groups(parquet, file.part))
    return rows.filter(pc.equal(rows.column(QUERY), file.part)).drop_columns([QUERY])


def read_starts(files: Files, file: ResultFile) -> Iterator[Numbers]:
    """The starts of the rows that a file has for a query, in ticks, some at a time."""
    parquet = pq.ParquetFile(pa.BufferReader(open_output(files, file)))
    names = [name for name in parquet.schema_arrow.names if name != QUERY or not file.part]
    # Times follow what is selected, which may have the same names.
    start = names[-1] if names[-1] == "ts" else names[-2]
    groups = _groups(parquet, file.part) if file.part else None
    columns = [start, QUERY] if file.part else [start]
    for rows in parquet.iter_batches(AT_ONCE, groups, columns):
        mine = rows.filter(pc.equal(rows.column(QUERY), file.part)) if file.part else rows
        yield numbers_of(mine.column(mine.schema.get_field_index(start)))


def read_whole(files: Files, file: Output) -> pa.Table:
    """All rows of a file; of one that is shared with their names."""
    return pq.ParquetFile(pa.BufferReader(open_output(files, file))).read(use_threads=False)


def _groups(parquet: pq.ParquetFile, part: str) -> list[int]:
    """The row groups that can have rows of a name."""
    metadata, found = parquet.metadata, []
    column = parquet.schema_arrow.get_field_index(QUERY)
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(column).statistics
        if known is None or not known.has_min_max or known.min <= part <= known.max:
            found.append(group)
    return found


Starts = Mapping[tuple[str, str], Numbers]
"""When the results of files start, by path and part, as far as that is known without reading them."""


def must_be_read(manifest: Manifest, known: Starts) -> bool:
    """Whether a file of the manifest's own batch has to be read to be counted: some of it is released, some waits."""
    return any(
        file.batch_id == manifest.batch_id
        and file.first_from < manifest.released.get(query, BEGINNING) <= file.last_from
        and (file.path, file.part) not in known
        for query, log in manifest.outputs.results.items()
        for file in log.newer
    )


STARTS = 4 * 2**20
"""Of how many results that wait starts are kept in memory; those of older ones are read when they are released."""


def still_waiting(manifest: Manifest, known: Starts) -> Starts:
    """What is known of files of which results wait after a batch, the newest files first."""
    waiting = {
        (file.path, file.part)
        for query, log in manifest.outputs.results.items()
        for file in log.newer
        if file.last_from >= manifest.released.get(query, BEGINNING)
    }
    found, most = dict[tuple[str, str], Numbers](), STARTS
    for place, starts in reversed(list(known.items())):
        if place in waiting and (most := most - len(starts)) >= 0:
            found[place] = starts
    return dict(reversed(list(found.items())))


def counted(
    files: Files, manifest: Manifest, before: Manifest | None, queries: Iterable[str], known: Starts
) -> Manifest:
    """The manifest of a batch with what it has released of queries counted; what was lost in between never is."""
    accounts = {**manifest.accounts}
    for query in queries:
        since = BEGINNING if before is None else before.released.get(query, BEGINNING)
        until, named = manifest.released.get(query, BEGINNING), manifest.outputs.results.get(query, FileLog()).newer
        came, waiting = (rows_between(files, named, *span, known) for span in ((since, until), (until, INFINITY)))
        account = manifest.account(query)
        if came or waiting != account.waiting:
            accounts[query] = replace(account, results=account.results + came, waiting=waiting)
    return replace(manifest, accounts=accounts)


def rows_between(files: Files, named: Iterable[ResultFile], since: int, until: int, known: Starts | None = None) -> int:
    """How many results start from one instant to before another; only files that lie across one of them are read."""
    if since >= until:
        return 0
    found = 0
    for file in named:
        if file.last_from < since or file.first_from >= until:
            continue
        if since <= file.first_from and file.last_from < until:
            found += file.rows
        elif known is None or (starts := known.get((file.path, file.part))) is None:
            found += _rows_from(files, file, since) - _rows_from(files, file, until)
        else:
            found += int(((starts >= since) & (starts < until)).sum())
    return found


@lru_cache(maxsize=4_096)
def _rows_from(files: Files, file: ResultFile, since: int) -> int:
    """The results of a file that start at an instant or later; a file never changes."""
    if file.last_from < since:
        return 0
    if file.first_from >= since:
        return file.rows
    return sum(int((starts >= since).sum()) for starts in read_starts(files, file))
