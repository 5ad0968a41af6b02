"""A folder of Parquet files in partitions as Hive names them: `country=AT/….parquet`, readable by Spark, DuckDB, Arrow.

A delivery is several files, and at its end a mark that names them, beside which nothing counts: it is there as a whole
once the mark is, and a mark is written once. Files of a delivery that was interrupted are removed before the query's
next one. On Spark, tasks write the files; the driver has only their names.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.outputs import parquet_bytes
from midstream.connectors.environment import hidden
from midstream.connectors.forms import Form, require_distinct_names
from midstream.connectors.registry import Option
from midstream.connectors.sink import Delivery, deliver, raced, require_named
from midstream.errors import JobError

MARKS = "_midstream"
"""The folder of marks; readers pass over names that begin with an underscore."""

NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""How a partition without a value is named."""

_MARK = re.compile(rf"{MARKS}/(?P<key>[0-9a-f]{{16}})-(?P<since>[0-9a-f]{{16}})-(?P<until>[0-9a-f]{{16}})\.json")
_FILE = re.compile(r".*/(?P<key>[0-9a-f]{16})-(?P<attempt>[0-9a-f]{16})-[0-9a-f]+\.parquet")
_TASK = f"{MARKS} task"


class Hive:
    """Files of results in a folder or an object store, by the values of some columns."""

    options: ClassVar[Mapping[str, Option]] = {
        "path": Option(str, "The folder.", needed=True, place="folder"),
        "by": Option(list, "The columns whose values are the partitions; files do not have them.", needed=True),
    }
    form: Form = "rows"

    def __init__(self, path: str, by: Sequence[str]) -> None:
        if not by:
            raise JobError("the sink 'hive' has no columns in by", hint='such as by = ["day"]')
        self.path, self.by, self.files = path, list(by), files_at(path, private=False)
        self._had: dict[str, int | None] = {}
        """Before which instant the folder has had results, by the keys of queries, once it was looked at."""

    @property
    def name(self) -> str:
        """What the record of deliveries calls the sink."""
        return hidden(f"hive {self.files.uri}")

    @property
    def place(self) -> str:
        """Where it writes."""
        return self.files.uri

    def require(self, schema: pa.Schema) -> None:
        """Refuses results that lack a column of partitions, or have two of one name."""
        require_distinct_names(schema, self.name)
        require_named(self, "by", self.by, schema)

    open = require

    def last(self, delivery: Delivery) -> int | None:
        """Before which instant the folder has had the query's results; what is there of others is removed."""
        key = delivery.key
        if key not in self._had:
            paths = self.files.list("")
            marks = [found for path in paths if (found := _MARK.fullmatch(path)) and found["key"] == key]
            whole = {json.loads(self.files.read(mark.string))["attempt"] for mark in marks}
            for path in paths:
                if (found := _FILE.fullmatch(path)) and found["key"] == key and found["attempt"] not in whole:
                    self.files.delete(path)
            self._had[key] = max((int(mark["until"], 16) + BEGINNING for mark in marks), default=None)
        return self._had[key]

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Writes the files of a delivery, then its mark."""
        attempt = self._attempt(delivery)
        self._mark(delivery, attempt, write_parts(self.path, self.by, f"{delivery.key}-{attempt}", table))

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Takes results: a table, or a DataFrame of Spark's, whose files tasks write unless some were there before."""
        had = None if isinstance(results, pa.Table) else self.last(delivery)
        if isinstance(results, pa.Table) or (had is not None and had > delivery.since):
            deliver(self, results if isinstance(results, pa.Table) else results.toArrow(), delivery)
            return
        self.open(delivery.schema)
        attempt = self._attempt(delivery)
        write = partial(_write_batches, self.path, self.by, f"{delivery.key}-{attempt}")
        numbered = results.repartition(*self.by).selectExpr("*", f"spark_partition_id() AS `{_TASK}`")
        written = numbered.mapInArrow(write, "path string").toArrow()
        if written.num_rows:
            self._mark(delivery, attempt, written.column("path").to_pylist())

    def _attempt(self, delivery: Delivery) -> str:
        """A name for files; if they are not all written, whoever asks next looks for them, and removes them."""
        self._had.pop(delivery.key, None)
        return secrets.token_hex(8)

    def _mark(self, delivery: Delivery, attempt: str, paths: Sequence[str]) -> None:
        """Says that all files of a delivery are there."""
        for folder in {path.rpartition("/")[0] for path in paths}:
            self.files.sync(folder)
        key = delivery.key
        ticks = "-".join(f"{tick - BEGINNING:016x}" for tick in (delivery.since, delivery.until))
        said = {"attempt": attempt, "query": delivery.query, "batch": delivery.batch_id, "files": list(paths)}
        try:
            self.files.write_atomic(
                f"{MARKS}/{key}-{ticks}.json", json.dumps(said).encode(), only_if_absent=True, point="sink"
            )
        except AlreadyThere:
            for path in paths:
                self.files.delete(path)
            raise raced(self, delivery) from None
        self._had[key] = delivery.until


def write_parts(path: str, by: Sequence[str], name: str, table: pa.Table, task: int = 0) -> list[str]:
    """Writes rows into the files of their partitions; gives the names of the files.

    A task that runs again writes the same names, so that nothing is left of a run that failed.
    """
    files, paths, alike = files_at(path, private=False), list[str](), Counter[str]()
    for values, rows in _parts(table, by):
        folder = "/".join(f"{quote(column)}={_text(value)}" for column, value in zip(by, values, strict=True))
        files.make(folder)
        paths.append(f"{folder}/{name}-{task:x}{alike[folder]:02x}.parquet")
        alike[folder] += 1  # by other values that are written in the same way
        files.write_atomic(paths[-1], parquet_bytes(rows.drop_columns(list(by))), point="sink", sync=False)
    return paths


def _write_batches(
    path: str, by: Sequence[str], name: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a task of Spark does: writes its rows, each with the task's number, and gives the names of its files."""
    paths = list[str]()
    if given := [batch for batch in batches if batch.num_rows]:
        table = pa.Table.from_batches(given)
        paths = write_parts(path, by, name, table.drop_columns([_TASK]), table.column(_TASK)[0].as_py())
    yield pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], names=["path"])


def _parts(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each partition, with its values.

    >>> table = pa.table({"k": [1, None, 1], "v": [5, 6, 7]})
    >>> [(values, rows["v"].to_pylist()) for values, rows in _parts(table, ["k"])]
    [((1,), [5, 7]), ((None,), [6])]
    """
    codes = np.zeros(table.num_rows, np.int64)
    for column in by:
        encoded = table.column(column).combine_chunks().dictionary_encode("encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    for places in np.split(order, cuts) if len(order) else ():
        rows = table.take(pa.array(places))
        yield tuple(rows.column(column)[0].as_py() for column in by), rows


def _text(value: Any) -> str:
    return NOTHING if value is None else quote(str(value), safe=" ")
