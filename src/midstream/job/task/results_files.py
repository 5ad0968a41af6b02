"""The files of what queries gave in a batch: one each, or one for several that give the same columns.

A file costs its name, its footer and a sync, whatever it holds; so many queries with few results each share one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.plan import ToStream
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import RESULTS, SHARED_RESULTS, name_for, query_of
from midstream.checkpoint.outputs import checksum_of
from midstream.checkpoint.parquet import written_as
from midstream.checkpoint.result_files import QUERY
from midstream.job.task.output_buffer import ResultsBuffer
from midstream.job.task.result_table import result_table
from midstream.operators.elements import Elements, concatenate
from midstream.optimizer.plans import Plan

ALONE = 50_000
"""From how many rows on a query's results have a file of their own."""

GROUP_ROWS = 8_192
"""How many rows of a shared file, of whichever queries, make a row group."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where results of a batch come from."""

    files: Files
    batch_id: int
    slot: int
    stage: int


def write_results(place: Place, given: Mapping[str, ResultsBuffer]) -> dict[str, ResultFile]:
    """Writes what queries, or sides of them, gave; says where it is for those that gave something."""
    found: dict[str, ResultFile] = {}
    alike: dict[str, list[str]] = {}
    for name, results in given.items():
        few = not results.spool.rows and results.rows < ALONE
        if results.rows and few and QUERY not in results.plan.query.schema.names:
            alike.setdefault(_columns(results.plan, results.held[0]), []).append(name)
        elif results.rows:
            found[name] = _alone(place, name, results)
    for columns, names in alike.items():
        if len(names) == 1:
            found[names[0]] = _alone(place, names[0], given[names[0]])
        else:
            found |= _together(place, columns, {name: given[name] for name in sorted(names)})
    return found


def _alone(place: Place, name: str, given: ResultsBuffer) -> ResultFile:
    path = name_for(f"{RESULTS}/{query_of(name)}", place.batch_id, place.slot, place.stage)
    content = given.content()
    assert content is not None
    place.files.write_atomic(path, content, point="results", sync=False)
    checksum = checksum_of(content)
    return ResultFile(path, given.rows, given.first, given.last, place.batch_id, "", checksum, content.size)


def _together(place: Place, columns: str, given: Mapping[str, ResultsBuffer]) -> dict[str, ResultFile]:
    path = name_for(f"{SHARED_RESULTS}/{_digest(columns)}", place.batch_id, place.slot, place.stage)
    pieces = [piece for results in given.values() for piece in results.held]
    plan = next(iter(given.values())).plan
    names = pa.array(list(given)).take(pa.array(np.repeat(np.arange(len(given)), [g.rows for g in given.values()])))
    content = shared_parquet(result_table(plan, concatenate(pieces)), names)
    place.files.write_atomic(path, content, point="results", sync=False)
    checksum, rows = checksum_of(content), sum(g.rows for g in given.values())
    return {
        n: ResultFile(path, g.rows, g.first, g.last, place.batch_id, n, checksum, content.size * g.rows // rows)
        for n, g in given.items()
    }


def shared_parquet(rows: pa.Table, names: pa.Array | pa.ChunkedArray) -> pa.Buffer:
    """Rows, sorted by whose they are, as the content of a shared file."""
    sink = pa.BufferOutputStream()
    table = rows.append_column(QUERY, names)
    how = {**written_as(rows.schema), "use_dictionary": [QUERY]}
    pq.write_table(table, sink, row_group_size=GROUP_ROWS, **how)
    return sink.getvalue()


def _columns(plan: Plan, elements: Elements) -> str:
    """Results of equal texts can lie in one table."""
    kinds = [str(kind) for kind in elements.columns.schema.types]
    return str((plan.query.schema.names, kinds, isinstance(plan.query, ToStream), plan.query.domain.output_type))


def _digest(columns: str) -> str:
    return hashlib.blake2b(columns.encode(), digest_size=6).hexdigest()
