"""A folder of Parquet files with the results of queries, each result once.

The name of a file says which instants of which query it holds. Before results are written, the folder is asked which it
has of the query: results of these instants are compared with those that are there, and not written again. So
neither a delivery that is repeated nor a checkpoint that was restored from a copy doubles anything or leaves anything
out; results that differ from those that are there are refused. Queries and checkpoints may share a folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import AlreadyThere
from midstream.checkpoint.outputs import parquet_bytes
from midstream.connectors.digest import digest_of
from midstream.connectors.environment import hidden
from midstream.connectors.forms import between
from midstream.connectors.registry import Option
from midstream.connectors.retrying import retried
from midstream.connectors.sink import Delivery, arrow
from midstream.errors import JobError

_NAME = re.compile(
    r"\d{12,}-.*-(?P<key>[0-9a-f]{16})-(?P<since>[0-9a-f]{16})-(?P<until>[0-9a-f]{16})-[0-9a-f-]+\.parquet"
)
_LONGEST = 80
"""How many bytes of a query's name the name of a file has at most."""


Span = tuple[int, int]
"""From an instant to before another."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of the folder, and the instants whose results it has."""

    path: str
    since: int
    until: int


class Folder:
    """Writes one Parquet file per batch into a folder, which Spark can read as a stream."""

    options: ClassVar[Mapping[str, Option]] = {"path": Option(str, "The folder.", needed=True, place="folder")}

    def __init__(self, path: str) -> None:
        self.files = files_at(path, private=False)
        self._had: dict[str, list[Span]] = {}
        """The instants whose results of queries the folder has, by their keys, in order, once it was looked at."""

    @property
    def name(self) -> str:
        """What the record of deliveries calls the sink."""
        return hidden(f"folder {self.files.uri}")

    @property
    def place(self) -> str:
        """Where it writes."""
        return self.files.uri

    def last(self, delivery: Delivery) -> int | None:
        """Up to which instant the folder has had the query's results, from any checkpoint of the history."""
        spans = self._spans(delivery.key)
        return spans[-1][1] if spans else None

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Takes results; those that the folder has had are compared with it."""
        words = f"sink {self.name} does not take results of query {delivery.query}"
        retried(lambda: self._deliver(arrow(results), delivery), words)

    def _deliver(self, table: pa.Table, delivery: Delivery) -> None:
        key = delivery.key
        had = [span for span in self._spans(key) if span[0] < delivery.until and span[1] > delivery.since]
        if had:
            self._require_same(table, delivery, had)
        for since, until in _gaps(delivery.since, delivery.until, had):
            self._write(between(table, since, until) if had else table, delivery, since, until)

    def __call__(self, results: Any, batch_id: int) -> None:
        """Takes results of which nothing else is known: equal results of a batch are taken once."""
        table = arrow(results)
        if table.num_rows:
            self._put(f"{batch_id:012d}-{digest_of(table)}.parquet", table)

    def _write(self, table: pa.Table, delivery: Delivery, since: int, until: int) -> None:
        key = delivery.key
        if table.num_rows:
            digest = digest_of(table)
            ticks = "-".join(f"{tick - BEGINNING:016x}" for tick in (since, until))
            name = f"{delivery.batch_id:012d}-{_short(delivery.query)}-{key}-{ticks}-{digest}.parquet"
            self._put(name, _described(table, delivery, since, until, digest))
            self._had[key] = _merged([*self._spans(key), (since, until)])

    def _put(self, name: str, table: pa.Table) -> None:
        try:
            self.files.write_atomic(name, parquet_bytes(table), only_if_absent=True, point="sink")
        except AlreadyThere:
            self.files.sync("")  # whoever wrote it may have been interrupted before its name was safe

    def _spans(self, key: str) -> list[Span]:
        if key not in self._had:
            held = list(self._held(key))
            if held:
                self.files.sync("")  # what is not written again must be safe
            self._had[key] = _merged([(file.since, file.until) for file in held])
        return self._had[key]

    def _held(self, key: str) -> Iterator[WrittenFile]:
        for path in self.files.list(""):
            found = _NAME.fullmatch(path)
            if found is not None and found["key"] == key:
                yield WrittenFile(path, *(int(found[part], 16) + BEGINNING for part in ("since", "until")))

    def _require_same(self, table: pa.Table, delivery: Delivery, had: list[Span]) -> None:
        """Refuses results other than those that the folder has for the same instants."""
        since, until = max(had[0][0], delivery.since), min(had[-1][1], delivery.until)
        given = pa.concat_tables([between(table, max(a, since), min(b, until)) for a, b in had])
        held = [file for file in self._held(delivery.key) if file.until > since]
        tables = [
            pq.read_table(pa.BufferReader(self.files.read(file.path)), partitioning=None)
            for file in held
            if file.since < until
        ]
        there = pa.concat_tables([between(table, since, until).cast(given.schema) for table in tables] or [given[:0]])
        if digest_of(there) != digest_of(given):
            again = sorted({min(file.path for file in held), max(file.path for file in held)}) if held else ["none"]
            raise JobError(
                f"the folder {self.files.uri} has other results of query {delivery.query} for the same instants",
                detail=f"there {there.num_rows:,} results start from tick {since} to before {until}, and now there are "
                f"{given.num_rows:,}: the checkpoint was restored from a copy, and since then its rows came in other "
                "batches, or were others",
                hint="use another folder; or remove these files, to have their results written again: "
                + " to ".join(again),
            )


def folder(uri: str) -> Folder:
    """A sink that writes into a folder."""
    return Folder(uri)


def _described(table: pa.Table, delivery: Delivery, since: int, until: int, digest: str) -> pa.Table:
    """The table with what a reader may want to know of it, as JSON in its metadata."""
    whose = {"checkpoint": delivery.checkpoint, "history": delivery.history, "batch": delivery.batch_id}
    query = {"query": delivery.query, "query_identity": delivery.identity}
    said = json.dumps({**whose, **query, "since": since, "until": until, "digest": digest})
    return table.replace_schema_metadata({**(table.schema.metadata or {}), b"midstream": said.encode()})


def _merged(spans: list[Span]) -> list[Span]:
    """Instants in order, those that follow each other as one.

    >>> _merged([(5, 7), (1, 3), (3, 4)])
    [(1, 4), (5, 7)]
    """
    found: list[Span] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        else:
            found.append((since, until))
    return found


def _gaps(since: int, until: int, had: list[Span]) -> list[Span]:
    """The instants between two that are not among some.

    >>> _gaps(0, 10, [(2, 3), (5, 12)]), _gaps(0, 10, [])
    ([(0, 2), (3, 5)], [(0, 10)])
    """
    edges = [since, *(edge for span in had for edge in span), until]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def _short(query: str) -> str:
    return query.encode()[:_LONGEST].decode(errors="ignore")
