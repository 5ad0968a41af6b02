"""A folder of Parquet files with the results of queries, each result once.

The name of a file says which instants of which query it holds. Before results are written, the folder is asked what it
has had of the query: results before that instant are compared with those that are there, and not written again. So
neither a delivery that is repeated nor a checkpoint that was restored from a copy doubles anything or leaves anything
out; results that differ from those that are there are refused. Queries and checkpoints may share a folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.stored_results import start_of
from midstream.errors import JobError
from midstream.job.outputs.delivery import Delivery
from midstream.job.outputs.digest import digest_of
from midstream.job.task.spill import parquet_bytes
from midstream.operators.vectors import numbers_of

_NAME = re.compile(
    r"\d{12,}-.*-(?P<key>[0-9a-f]{16})-(?P<since>[0-9a-f]{16})-(?P<until>[0-9a-f]{16})-[0-9a-f-]+\.parquet"
)
_LONGEST = 80
"""How many bytes of a query's name the name of a file has at most."""


@dataclass(frozen=True, slots=True)
class Held:
    """A file of the folder, and the instants whose results it has."""

    path: str
    since: int
    until: int


class Folder:
    """Writes one Parquet file per batch into a folder, which Spark can read as a stream."""

    def __init__(self, uri: str) -> None:
        self.files = files_at(uri, private=False)
        self._reached: dict[str, tuple[int, int] | None] = {}
        """From and up to which instant the folder has the results of queries, by their keys, once it was looked at."""

    @property
    def name(self) -> str:
        """What the record of deliveries calls the sink."""
        return f"folder {self.files.uri}"

    @property
    def place(self) -> str:
        """Where it writes."""
        return self.files.uri

    def last(self, delivery: Delivery) -> tuple[int, int] | None:
        """From and up to which instant the folder has had the query's results, from any checkpoint of the history."""
        key = _key(delivery)
        if key not in self._reached:
            held = list(self._held(key))
            reached = (min(file.since for file in held), max(file.until for file in held)) if held else None
            self._reached[key] = reached
        return self._reached[key]

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Takes results; those that the folder has had are compared with it."""
        table = _arrow(results)
        reached = self.last(delivery)
        if reached is None:
            self._write(table, delivery, delivery.since, delivery.until)
            return
        since, until = max(reached[0], delivery.since), min(reached[1], delivery.until)
        if since < until:
            self._require_same(_between(table, since, until), delivery, since, until)
        if delivery.since < reached[0]:
            self._write_between(table, delivery, delivery.since, min(reached[0], delivery.until))
        if reached[1] < delivery.until:
            self._write_between(table, delivery, max(reached[1], delivery.since), delivery.until)

    def __call__(self, results: Any, batch_id: int) -> None:
        """Takes results of which nothing else is known: equal results of a batch are taken once."""
        table = _arrow(results)
        if table.num_rows:
            self._put(f"{batch_id:012d}-{digest_of(table)}.parquet", table)

    def _write_between(self, table: pa.Table, delivery: Delivery, since: int, until: int) -> None:
        self._write(_between(table, since, until), delivery, since, until)

    def _write(self, table: pa.Table, delivery: Delivery, since: int, until: int) -> None:
        key, whole = _key(delivery), (since, until) == (delivery.since, delivery.until)
        digest = delivery.digest if whole and delivery.digest is not None else digest_of(table)
        if table.num_rows:
            ticks = "-".join(f"{tick - BEGINNING:016x}" for tick in (since, until))
            name = f"{delivery.batch_id:012d}-{_short(delivery.query)}-{key}-{ticks}-{digest}.parquet"
            self._put(name, _described(table, delivery, since, until, digest))
            first, last = self._reached.get(key) or (since, until)
            self._reached[key] = min(first, since), max(last, until)

    def _put(self, name: str, table: pa.Table) -> None:
        with suppress(AlreadyThere):
            self.files.write_atomic(name, parquet_bytes(table), only_if_absent=True, point="sink")

    def _held(self, key: str) -> Iterator[Held]:
        for path in self.files.list(""):
            found = _NAME.fullmatch(path)
            if found is not None and found["key"] == key:
                yield Held(path, *(int(found[part], 16) + BEGINNING for part in ("since", "until")))

    def _require_same(self, given: pa.Table, delivery: Delivery, since: int, until: int) -> None:
        """Refuses results other than those that the folder has for the same instants."""
        held = [file for file in self._held(_key(delivery)) if file.since < until and file.until > since]
        tables = [pq.read_table(pa.BufferReader(self.files.read(file.path)), partitioning=None) for file in held]
        there = pa.concat_tables([_between(table, since, until).cast(given.schema) for table in tables] or [given[:0]])
        if digest_of(there) != digest_of(given):
            again = [file.path for file in self._held(_key(delivery)) if file.until > since]
            raise JobError(
                f"the folder {self.files.uri} has other results of query {delivery.query} for the same instants",
                detail=f"there {there.num_rows:,} results start from tick {since} to before {until}, and now there are "
                f"{given.num_rows:,}: the checkpoint was restored from a copy, and since then its rows came in other "
                "batches, or were others",
                hint="use another folder; or remove these files, to have their results written again: "
                + (" to ".join(sorted({min(again), max(again)})) if again else "none"),
            )


def folder(uri: str) -> Folder:
    """A sink that writes into a folder."""
    return Folder(uri)


def _key(delivery: Delivery) -> str:
    """What results have in common that belong to one history of a query."""
    whose = f"{delivery.history}\0{delivery.query}\0{delivery.identity}"
    return hashlib.blake2b(whose.encode(), digest_size=8).hexdigest()


def _described(table: pa.Table, delivery: Delivery, since: int, until: int, digest: str) -> pa.Table:
    """The table with what a reader may want to know of it, as JSON in its metadata."""
    whose = {"checkpoint": delivery.checkpoint, "history": delivery.history, "batch": delivery.batch_id}
    query = {"query": delivery.query, "query_identity": delivery.identity}
    said = json.dumps({**whose, **query, "since": since, "until": until, "digest": digest})
    return table.replace_schema_metadata({**(table.schema.metadata or {}), b"midstream": said.encode()})


def _short(query: str) -> str:
    return query.encode()[:_LONGEST].decode(errors="ignore")


def _between(table: pa.Table, since: int, until: int) -> pa.Table:
    """The results that start between two instants."""
    column = table.column(max(table.schema.get_all_field_indices(start_of(table.schema))))
    starts = np.concatenate([numbers_of(chunk) for chunk in column.chunks]) if table.num_rows else np.empty(0, np.int64)
    return table.filter(pa.array((starts >= since) & (starts < until)))


def _arrow(results: Any) -> pa.Table:
    return results if isinstance(results, pa.Table) else results.toArrow()
