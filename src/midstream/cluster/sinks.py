"""Where results go besides the results table: each is called with the results that a batch released.

A batch can be repeated after a crash, with the same number and the same results, so a sink that must not double
anything looks at the number. The folder sink writes one file per batch, query and checkpoint under a name made of all
three, and only once, so that any number of jobs can share a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere
from midstream.inputs.json_values import json_texts
from midstream.job.outputs.delivery import Delivery
from midstream.job.task.spill import parquet_bytes
from midstream.terminal import visible_lines

Results: TypeAlias = Any
"""A table, or a DataFrame of Spark's."""

Sink = Callable[[Results, int], None]


def console(name: str, rows: int = 20) -> Sink:
    """Shows the first rows of each batch."""

    def show(results: Results, batch_id: int) -> None:
        print(f"{name}, batch {batch_id}", flush=True)
        first = results.slice(0, rows) if isinstance(results, pa.Table) else _arrow(results.limit(rows))
        print(visible_lines(first.to_pandas().to_string(index=False)), flush=True)

    return show


class Memory:
    """Keeps the results of each batch in the driver; for tests and small jobs."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, results: Results, batch_id: int) -> None:
        """Takes the results of a batch; a repeated batch replaces itself."""
        self.batches[batch_id] = _arrow(results)

    @property
    def table(self) -> pa.Table:
        """All results so far, in order."""
        return pa.concat_tables([self.batches[i] for i in sorted(self.batches)])


class Folder:
    """Writes one Parquet file per batch into a folder, which Spark can read as a stream."""

    def __init__(self, uri: str) -> None:
        self.files = files_at(uri, private=False)

    def deliver(self, results: Results, delivery: Delivery) -> None:
        """Takes the results of a batch; once they are in the folder, nothing is done."""
        name = f"{delivery.batch_id:012d}"
        if delivery.checkpoint is not None:  # results of earlier versions have files by batch alone
            name += f"-{delivery.query}-{delivery.checkpoint}"
        self._write(name, _arrow(results))

    def __call__(self, results: Results, batch_id: int) -> None:
        """Takes results of which nothing else is known: equal results of a batch are taken once."""
        table = _arrow(results)
        self._write(f"{batch_id:012d}-{_digest(table)}", table)

    def _write(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            with suppress(AlreadyThere):
                self.files.write_atomic(f"{name}.parquet", parquet_bytes(table), only_if_absent=True, point="sink")


def folder(uri: str) -> Folder:
    """A sink that writes into a folder."""
    return Folder(uri)


def _arrow(results: Results) -> pa.Table:
    return results if isinstance(results, pa.Table) else results.toArrow()


def _digest(table: pa.Table) -> str:
    """A name for a multiset of rows."""
    texts = sorted(text for batch in table.to_batches() for text in json_texts(batch))
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()
