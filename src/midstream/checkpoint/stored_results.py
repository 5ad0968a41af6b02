"""A query's results as its checkpoint has them: the files that a manifest names, as far as they are released.

The folder of results also holds files that were merged into others or that no manifest names, so files are never found
by looking there. What a result's columns are stands in the manifest and in the files.
"""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import results_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.outputs import read_results
from midstream.checkpoint.retention import kept_from, warn_of_removed
from midstream.checkpoint.stops import newest_manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import QueryError, query_in
from midstream.operators.ordering import total_order
from midstream.operators.vectors import column_of, numbers_of


def released_files(files: Files, manifest: Manifest, query: str, since: int = BEGINNING) -> list[ResultFile]:
    """The files that hold results that start at or after `since` and are released."""
    until = manifest.released.get(query, BEGINNING)
    return [f for f in results_of(files, manifest, query) if f.first_from < until and f.last_from >= since]


def stored_results(files: Files, manifest: Manifest, query: str, since: int = BEGINNING) -> pa.Table:
    """The released results that start at or after `since`, ordered by their start, then by all columns.

    Of a query that has none yet, and whose manifest does not tell its columns, a table without columns.
    """
    require_query(manifest, query)
    warn_of_removed(manifest, query, since)
    since = max(since, kept_from(manifest, query))
    tables = [read_results(files, file) for file in released_files(files, manifest, query, since)]
    schema = _schema(manifest, query, tables)
    if schema is None:
        return pa.table({})
    table = pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()
    start = start_of(schema)
    until = manifest.released.get(query, BEGINNING)
    if until != INFINITY:
        table = table.filter(pc.less(table.column(_place(schema, start)), _moment(schema, until)))
    if since > BEGINNING:
        table = table.filter(pc.greater_equal(table.column(_place(schema, start)), _moment(schema, since)))
    return in_order(table, [start] if start == "ts" else [start, "valid_to"])


def newest_results(files: Files, manifest: Manifest, query: str, rows: int) -> pa.Table:
    """The released results that start last, no more than `rows`, ordered by their start.

    Only files that can hold one of them are read: those from the earliest start in the newest files that have enough.
    """
    require_query(manifest, query)
    until, since, found = manifest.released.get(query, BEGINNING), INFINITY, 0
    for file in sorted(released_files(files, manifest, query), key=lambda f: -f.last_from):
        if found >= rows:
            break
        since = min(since, file.first_from)
        found += file.rows if file.last_from < until else 0
    table = stored_results(files, manifest, query, since if found >= rows else BEGINNING)
    return table.slice(max(0, table.num_rows - rows))


def read_query_results(checkpoint: str, query: str, *, current: bool = False) -> pa.Table:
    """The results of a query that a job, running or not, has released; or only what is valid at the newest instant."""
    store = CheckpointStore(checkpoint)
    while True:
        manifest = newest_manifest(store)
        try:
            table = stored_results(store.files, manifest, query)
            break
        except MissingFile:
            if not is_superseded(store, manifest):
                raise
    table = valid_now(table, manifest, query) if current else table
    text = manifest.queries[query].cql if query in manifest.queries else ""  # a plan of one's own has no text
    if not text:
        return table
    from midstream.language.result_order import result_order  # the language, which nothing else here needs
    from midstream.operators.result_order import sorted_by

    return sorted_by(table, result_order(text, table.schema))


def is_superseded(store: CheckpointStore, manifest: Manifest) -> bool:
    """Whether there is a newer manifest; then files of this one, merged since, may have gone."""
    return newest_manifest(store).batch_id != manifest.batch_id


def valid_now(table: pa.Table, manifest: Manifest, query: str) -> pa.Table:
    """The results that are valid at the last instant for which all are known."""
    if not table.column_names:
        return table
    if start_of(table.schema) == "ts":
        raise QueryError(
            f"query {query} gives a stream, of which nothing is valid for longer than an instant",
            hint="leave --current out",
        )
    until = manifest.released.get(query, BEGINNING)
    if until <= BEGINNING:
        return table.slice(0, 0)
    now = _moment(table.schema, newest_instant(manifest, until))
    begun = pc.less_equal(table.column(_place(table.schema, "valid_from")), now)
    valid_to = table.column(_place(table.schema, "valid_to"))
    return table.filter(pc.and_(begun, pc.or_(pc.is_null(valid_to), pc.fill_null(pc.greater(valid_to, now), True))))


def newest_instant(manifest: Manifest, until: int) -> int:
    """The last instant for which all results are known, if they are released up to one."""
    if until == INFINITY:  # all streams have ended: after their newest row nothing changes but by time
        return max(manifest.streams.latest.values(), default=BEGINNING)
    return until - 1


def start_of(schema: pa.Schema) -> str:
    """The column that says when a result starts: `valid_from`, or `ts` of streams."""
    return "ts" if schema.names[-1] == "ts" else "valid_from"


def in_order(table: pa.Table, leading: list[str], piece: int = 2**30) -> pa.Table:
    """The table ordered by the leading times, then by all columns; what never ends comes last.

    A table of more than about `piece` bytes is given in several pieces: an array of text holds 2 GB.
    """
    if table.num_rows < 2:
        return table
    whole = pa.table([_in_one(column) for column in table.columns], names=table.column_names)
    numbers, times = [], [_place(whole.schema, name) for name in leading]
    for place in times:
        column = whole.column(place).chunk(0)
        ticks = numbers_of(column)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers.append(ticks if bool(valid.all()) else np.where(valid, ticks, INFINITY))
    rest = [whole.column(i).chunk(0) for i in range(whole.num_columns) if i not in times]
    order = total_order(rest, numbers)
    if order is None:
        return table
    rows = max(1, piece * table.num_rows // max(1, table.nbytes))
    taken = (whole.take(pa.array(order[start : start + rows])) for start in range(0, len(order), rows))
    return pa.concat_tables([part.cast(table.schema) for part in taken])


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    """A column in one array; text in an array that can hold more than 2 GB of it."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
    return (column if large is None else column.cast(large)).combine_chunks()


def require_query(manifest: Manifest, query: str) -> None:
    """Refuses a query that a checkpoint has no results of."""
    if query not in manifest.queries and query not in manifest.outputs.results:
        gone = "@" in query and "replaced" in manifest.settings.retention
        query_in(manifest.queries, query, "retention removes the results of replaced queries" if gone else None)


def _schema(manifest: Manifest, query: str, tables: list[pa.Table]) -> pa.Schema | None:
    record = manifest.account(query).graph
    if record is not None:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record["schema"])))
    return tables[0].schema.remove_metadata() if tables else None


def _place(schema: pa.Schema, name: str) -> int:
    """Where a time stands: last of all that have its name, because times follow what is selected."""
    return int(max(schema.get_all_field_indices(name)))


def _moment(schema: pa.Schema, ticks: int) -> pa.Scalar:
    return column_of(np.array([ticks]), schema.field(_place(schema, start_of(schema))).type)[0]
