"""The entries of a Redis stream: fields are columns, and a position is the id of the last entry that was read.

Streams are mostly trimmed, oldest entries first. So as long as the entry of a position is there, no later one is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from midstream.connectors.environment import conceal
from midstream.connectors.registry import SCHEMA, Option
from midstream.connectors.source import Position, Positions, Source
from midstream.connectors.values import rows_of_values
from midstream.errors import JobError
from midstream.inputs.ddl import schema_of_ddl

PART = "entries"
TIME = "redis_time"
"""The column of the time that an entry's id has, if a schema names it and no field does."""


class RedisStream(Source):
    """A stream of Redis."""

    options: ClassVar[Mapping[str, Option]] = {
        "url": Option(str, "Where Redis is: redis://user:password@host:6379/0.", needed=True),
        "key": Option(str, "The key of the stream.", needed=True),
        "schema": SCHEMA,
    }

    def __init__(self, url: str, key: str, schema: str) -> None:
        conceal(url, "url")
        self.url, self.key = url, key
        self._schema = schema_of_ddl(schema, f"the schema of {self.name}")
        self._client: Any = None

    @property
    def name(self) -> str:
        return f"redis stream {self.key}"

    def schema(self) -> pa.Schema:
        return self._schema

    def partitions(self) -> Positions:
        return {PART: _position("0-0")}

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        if limit is None:
            found = self._redis().xrevrange(self.key, count=1)
        else:
            found = self._redis().xrange(self.key, f"({start}", count=limit)
        return max(str(start), _position(found[-1][0].decode())) if found else start

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        entries = self._redis().xrange(self.key, f"({start}", str(end))
        columns = [[_value(field, at, fields) for at, fields in entries] for field in self._schema]
        return rows_of_values(columns, self._schema, lambda n: {"stream": self.key, "entry": entries[n][0].decode()})

    def require(self, starts: Positions) -> None:
        start = str(starts[PART])
        if start != _position("0-0") and not self._redis().xrange(self.key, start, start):
            raise JobError(
                f"{self.name} does not have the entry {start} any more, which was the last to be read",
                detail="it was trimmed or made again, and entries that were not read may be gone",
                hint="keep entries longer; give the stream another name to read what there is",
            )

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def _redis(self) -> Any:
        if self._client is None:
            import redis

            self._client = redis.Redis.from_url(self.url, socket_timeout=10, socket_connect_timeout=10)
        return self._client


def _position(entry: str) -> str:
    """An entry's id, written so that later ones are greater texts; Redis reads it as the same id.

    >>> _position("1700000000000-3")
    '00000001700000000000-00000000000000000003'
    """
    milliseconds, _, number = entry.partition("-")
    return f"{int(milliseconds):020}-{int(number):020}"


def _value(field: pa.Field, at: bytes, fields: Mapping[bytes, bytes]) -> Any:
    """A field of an entry as a text, or as bytes where its column has these or it is no text."""
    value = fields.get(field.name.encode())
    if value is None:
        return int(at.partition(b"-")[0]) * 1000 if field.name == TIME else None
    if pa.types.is_binary(field.type):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
