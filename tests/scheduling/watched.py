"""Sessions in this process that remember their input, so that every query can be held against the oracle."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import midstream as ms
from midstream.cluster.local.embedded_query import EmbeddedQuery
from midstream.cluster.local.embedded_session import EmbeddedSession

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
WINDOW = 9


def session(**options: object) -> EmbeddedSession:
    made = EmbeddedSession(**options)  # type: ignore[arg-type]
    for name in "ABC":
        made.stream(name, SCHEMA)
    return made


def table(rows: list[tuple[int, int, int]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*sorted(rows), strict=True)] or [[], [], []], schema=SCHEMA)


def drawn(rng: random.Random, start: int, count: int = 4) -> list[tuple[int, int, int]]:
    return [(start + rng.randrange(4), rng.randrange(3), rng.randrange(5)) for _ in range(count)]


class Watched:
    """A session that remembers what it was given, so that every query can be asked of the oracle."""

    def __init__(self) -> None:
        self.session = session()
        self.rows: dict[str, list[tuple[int, int, int]]] = {name: [] for name in "ABC"}
        self.before: dict[str, dict[str, int]] = {}
        self.pushes: list[tuple[str, int]] = []

    def push(self, name: str, rows: list[tuple[int, int, int]]) -> None:
        self.pushes.append((name, len(self.rows[name])))
        self.rows[name] += sorted(rows)
        self.session.push(name, table(rows))

    def add(self, name: str, cql: str, **options: Any) -> EmbeddedQuery:
        self.before[name] = {stream: len(rows) for stream, rows in self.rows.items()}
        return self.session.query(name, cql, **options)

    def _begun(self, stream: str, push: int) -> int:
        """How many rows of a stream came before a push."""
        return next((n for s, n in self.pushes[push - 1 :] if s == stream), len(self.rows[stream]))

    def check(self, query: EmbeddedQuery) -> None:
        """A result equals, from its start on, the query alone over streams that begin with what it inherited."""
        started = query.history[0].record
        start = started["at"]
        streams = {}
        istream = "ISTREAM" in query.cql or "DSTREAM" in query.cql
        for stream, rows in self.rows.items():
            early = self.before[query.name][stream]
            begun = self._begun(stream, started["inherited"].get(stream, len(self.pushes) + 1))
            kept = [r for r in rows[begun:early] if r[0] + WINDOW >= (start or 0) - istream]
            streams[stream] = table([*kept, *rows[early:]])
        expected = ms.reference(query.cql, streams)
        if start is not None:
            expected = from_(expected, start)
        assert ms.snapshot_equal(query.results(), expected), (query.name, query.cql, started)


def from_(results: pa.Table, start: int) -> pa.Table:
    """Results from an instant on."""
    if "ts" in results.schema.names:
        return results.filter(pa.compute.field("ts") >= start)
    begins = pa.compute.max_element_wise(results["valid_from"], start)
    clipped = results.set_column(results.schema.get_field_index("valid_from"), "valid_from", begins)
    unending = pa.compute.field("valid_to").is_null()
    return clipped.filter(unending | (pa.compute.field("valid_from") < pa.compute.field("valid_to")))
