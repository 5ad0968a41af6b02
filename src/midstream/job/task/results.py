"""What fragments give in a batch: kept while it is little, in files beyond, and as users see it.

A file costs its name, its footer and a sync, whatever it holds; so many queries with few results each share one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.plan import ToStream
from midstream.algebra.time import BEGINNING, INFINITY, TimeDomain
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.names import RESULTS, SHARED_RESULTS, name_for, query_of
from midstream.checkpoint.outputs import QUERY, checksum_of, parquet_bytes, written_as
from midstream.job.task.memory import ParquetSpool, Spill, size_of
from midstream.operators.elements import Elements, Ticks, concatenate, rows_without_columns
from midstream.operators.vectors import Numbers, column_of
from midstream.optimizer.plans import Plan


def result_table(plan: Plan, elements: Elements | None) -> pa.Table:
    """Released results as a table: payload and `valid_from`, `valid_to`, or `ts` for streams."""
    schema, domain = plan.schema, plan.domain
    columns = [] if elements is None else list(elements.columns.columns)
    if elements is None:
        columns = [pa.array([], f.type) for f in schema]
    none = np.empty(0, np.int64)
    start, end = (none, none) if elements is None else (elements.valid_from, elements.valid_to)
    if isinstance(plan.query, ToStream):
        names, times = ["ts"], [_times(start, domain)]
    else:
        names, times = ["valid_from", "valid_to"], [_times(start, domain), _times(end, domain)]
    return pa.table([*columns, *times], names=[*schema.names, *names])


def _times(ticks: Ticks, domain: TimeDomain) -> pa.Array:
    for_ever = ticks == INFINITY
    valid = ~for_ever if for_ever.any() else None
    return column_of(np.where(for_ever, 0, ticks) if valid is not None else ticks, domain.output_type, valid)


FROM, TO = "#from", "#to"


class OutputBuffer:
    """Elements given so far; what is more than `most` bytes does not stay in memory."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = 0
        self.held: list[Elements] = []
        self.bytes = 0
        self.first, self.last = INFINITY, BEGINNING

    def add(self, elements: Elements) -> None:
        """Takes what was given."""
        self.rows += len(elements)
        self.held.append(elements)
        self.bytes += size_of(elements.columns) + 16 * len(elements)
        if self.bytes > self.most:
            self._put(concatenate(self.held))
            self.held, self.bytes = [], 0

    def _put(self, elements: Elements) -> None:
        raise NotImplementedError

    def take(self) -> Iterator[Elements]:
        """What goes on to a next stage and was given since the last time."""
        return iter(())

    def content(self) -> pa.Buffer | None:
        """The Parquet file of a query's results; None if there are none."""
        return None


class ForwardBuffer(OutputBuffer):
    """What goes to a next stage."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.spill: Spill | None = None
        self.schema: pa.Schema | None = None

    def _put(self, elements: Elements) -> None:
        columns = elements.columns
        self.schema = columns.schema
        arrays = [pa.array(elements.valid_from), pa.array(elements.valid_to), *columns.columns]
        names = [FROM, TO, *columns.schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        if self.spill is None:
            self.spill = Spill(batch.schema)
        self.spill.write(batch)

    def take(self) -> Iterator[Elements]:
        """All that was given since the last time, in pieces of bounded size where it is much."""
        spill, held = self.spill, self.held
        self.spill, self.held, self.bytes = None, [], 0
        if spill is not None:
            for batch in spill.batches():
                yield from _pieces(self._back(batch), self.most)
        if held:
            yield concatenate(held)

    def _back(self, batch: pa.RecordBatch) -> Elements:
        assert self.schema is not None
        if len(self.schema):
            columns = pa.RecordBatch.from_arrays(batch.columns[2:], schema=self.schema)
        else:
            columns = rows_without_columns(batch.num_rows)
        valid_from, valid_to = (batch.column(i).to_numpy(zero_copy_only=True) for i in range(2))
        return Elements(columns, valid_from, valid_to)


def _pieces(elements: Elements, most: int) -> Iterator[Elements]:
    size = elements.columns.nbytes + 16 * len(elements)
    rows = max(1, len(elements) * most // max(1, size))
    for start in range(0, len(elements), rows):
        yield elements.slice(start, min(rows, len(elements) - start))


FEW = 65_536
"""Of how many results, at most, the starts are kept until they are released."""


class ResultsBuffer(OutputBuffer):
    """A query's results, which become a file of the results table."""

    def __init__(self, most: int, plan: Plan) -> None:
        super().__init__(most)
        self.plan = plan
        self.spool = ParquetSpool(0)  # what comes there is too much for memory already

    def add(self, elements: Elements) -> None:
        """Takes results."""
        self.first = min(self.first, int(elements.valid_from.min()))
        self.last = max(self.last, int(np.max(elements.valid_from)))
        super().add(elements)

    @property
    def has_few(self) -> bool:
        """Whether there are results, all of them in memory, and no more than one would rather keep than read again."""
        return bool(self.held) and not self.spool.rows and self.rows <= FEW

    @property
    def starts(self) -> Numbers:
        """When the results in memory start."""
        return np.concatenate([piece.valid_from for piece in self.held])

    def _put(self, elements: Elements) -> None:
        self.spool.add(result_table(self.plan, elements))

    def content(self) -> pa.Buffer | None:
        """The Parquet file; None if there are no results."""
        held, self.held = self.held, []
        if self.spool.rows == 0:
            return parquet_bytes(result_table(self.plan, concatenate(held))) if held else None
        if held:
            self._put(concatenate(held))
        return self.spool.content()


ALONE = 50_000
"""From how many rows on a query's results have a file of their own."""

GROUP_ROWS = 8_192
"""How many rows of a shared file, of whichever queries, make a row group."""


@dataclass(frozen=True, slots=True)
class ResultPlace:
    """Where results of a batch come from."""

    files: Files
    batch_id: int
    slot: int
    stage: int


def write_results(place: ResultPlace, given: Mapping[str, ResultsBuffer]) -> dict[str, ResultFile]:
    """Writes what queries, or sides of them, gave; says where it is for those that gave something."""
    some = [(name, results) for name, results in given.items() if results.rows]
    if len(some) == 1:
        return {name: _alone(place, name, results) for name, results in some}
    found: dict[str, ResultFile] = {}
    alike: dict[str, list[str]] = {}
    for name, results in some:
        few = not results.spool.rows and results.rows < ALONE
        if few and QUERY not in results.plan.schema.names:
            alike.setdefault(_columns(results.plan, results.held[0]), []).append(name)
        else:
            found[name] = _alone(place, name, results)
    for columns, names in alike.items():
        if len(names) == 1:
            found[names[0]] = _alone(place, names[0], given[names[0]])
        else:
            found |= _together(place, columns, {name: given[name] for name in sorted(names)})
    return found


def _alone(place: ResultPlace, name: str, given: ResultsBuffer) -> ResultFile:
    path = name_for(f"{RESULTS}/{query_of(name)}", place.batch_id, place.slot, place.stage)
    content = given.content()
    assert content is not None
    place.files.write_atomic(path, content, point="results", sync=False)
    checksum = checksum_of(content)
    return ResultFile(path, given.rows, given.first, given.last, place.batch_id, "", checksum, content.size)


def _together(place: ResultPlace, columns: str, given: Mapping[str, ResultsBuffer]) -> dict[str, ResultFile]:
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
    return str((plan.schema.names, kinds, isinstance(plan.query, ToStream), plan.domain.output_type))


def _digest(columns: str) -> str:
    return hashlib.blake2b(columns.encode(), digest_size=6).hexdigest()
