"""The results table in this process: the result files that a manifest names, as far as they are released."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import results_of
from midstream.checkpoint.manifest import Manifest, ResultFile
from midstream.checkpoint.result_files import read_results
from midstream.job.result_table import result_table
from midstream.operators.ordering import total_order
from midstream.operators.vectors import column_of, numbers_of
from midstream.optimizer.plans import Plan


def released_files(files: Files, manifest: Manifest, query: str, since: int = BEGINNING) -> list[ResultFile]:
    """The files that hold results that start at or after `since` and are released."""
    until = manifest.released.get(query, BEGINNING)
    return [f for f in results_of(files, manifest, query) if f.first_from < until and f.last_from >= since]


def results_of_query(files: Files, manifest: Manifest, query: str, plan: Plan, since: int = BEGINNING) -> pa.Table:
    """The released results that start at or after `since`, ordered by their start, then by all columns."""
    empty = result_table(plan, None)
    tables = [read_results(files, file).cast(empty.schema) for file in released_files(files, manifest, query, since)]
    table = pa.concat_tables(tables) if tables else empty
    until = manifest.released.get(query, BEGINNING)
    start = start_column(plan)
    if until != INFINITY:
        table = table.filter(pc.less(table.column(start), _scalar(plan, until)))
    if since > BEGINNING:
        table = table.filter(pc.greater_equal(table.column(start), _scalar(plan, since)))
    return in_order(table, [start] if start == "ts" else [start, "valid_to"])


def in_order(table: pa.Table, leading: list[str], piece: int = 2**30) -> pa.Table:
    """The table ordered by the leading times, then by all columns; what never ends comes last.

    A table of more than about `piece` bytes is given in several pieces: an array of text holds 2 GB.
    """
    if table.num_rows < 2:
        return table
    whole = pa.table([_in_one(column) for column in table.columns], names=table.column_names)
    numbers = []
    for name in leading:
        column = whole.column(name).chunk(0)
        ticks = numbers_of(column)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        numbers.append(ticks if bool(valid.all()) else np.where(valid, ticks, INFINITY))
    rest = [whole.column(i).chunk(0) for i, name in enumerate(whole.column_names) if name not in leading]
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


def start_column(plan: Plan) -> str:
    """The column that says when a result starts."""
    names = result_table(plan, None).column_names
    return "ts" if names[-1] == "ts" and len(names) == len(plan.query.schema) + 1 else "valid_from"


def _scalar(plan: Plan, ticks: int) -> pa.Scalar:
    return column_of(np.array([ticks]), plan.query.domain.output_type)[0]
