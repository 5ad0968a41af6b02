"""A job's results over Arrow Flight SQL, for clients of ADBC and JDBC: SQL over what the queries have released.

A statement is its own handle and ticket, so the server keeps nothing of its clients. Every call needs the token, as
`Bearer TOKEN`, or as the password of any user. Nothing here changes the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from midstream.checkpoint.reading import StoredJob
from midstream.errors import MidstreamError
from midstream.interface.dashboard.relations import CURRENT, Relations
from midstream.interface.flight_access import AccessFactory, Handshake, serving

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
Fields = Mapping[int, Sequence[bytes | int]]
"""The fields of a message of Protobuf by number: numbers, and bytes of all that has a length."""

CATALOG, SCHEMA = "temp", "main"
"""Where DuckDB has the relations, so that names with both are understood, too."""

_CATALOG = pa.field("catalog_name", pa.string())
_PLACE, _TABLE, _KIND = (
    pa.field(name, pa.string(), nullable=False) for name in ("db_schema_name", "table_name", "table_type")
)
TABLES = pa.schema([_CATALOG, _PLACE.with_nullable(True), _TABLE, _KIND])
PLACES = {
    "CommandGetCatalogs": pa.table([[CATALOG]], schema=pa.schema([_CATALOG.with_nullable(False)])),
    "CommandGetDbSchemas": pa.table([[CATALOG], [SCHEMA]], schema=pa.schema([_CATALOG, _PLACE])),
    "CommandGetTableTypes": pa.table([["TABLE"]], schema=pa.schema([_KIND])),
}
"""The answers that are always the same."""


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers questions about the results of a job."""

    def __init__(self, location: str, relations: Relations, token: str) -> None:
        super().__init__(location, auth_handler=Handshake(), middleware={"access": AccessFactory(token)})
        self.relations = relations

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Where the answer to a command is had, which is here, and which columns it has."""
        endpoint = flight.FlightEndpoint(descriptor.command, [])
        return flight.FlightInfo(self._schema(descriptor.command), descriptor, [endpoint], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The columns of the answer to a command."""
        return flight.SchemaResult(self._schema(descriptor.command))

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The answer to a command."""
        name, fields = _command(ticket.ticket)
        with _refusing():
            return flight.RecordBatchStream(self._answer(name, fields))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Prepares a statement, which is to say that it can be answered."""
        name, fields = _command(action.body.to_pybytes())
        if action.type == "ClosePreparedStatement":
            return
        if action.type != "CreatePreparedStatement":
            raise NotImplementedError(f"{action.type} is not there: results are only read")
        with _refusing():
            columns = self._columns(_text(fields)).serialize().to_pybytes()
        prepared = _field(1, _bytes(fields)) + _field(2, columns)
        yield flight.Result(_packed("ActionCreatePreparedStatementResult", prepared))

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """What can be asked for besides answers."""
        return [("CreatePreparedStatement", "prepares a statement"), ("ClosePreparedStatement", "forgets it")]

    def _schema(self, command: bytes) -> pa.Schema:
        name, fields = _command(command)
        with _refusing():
            return self._columns(_text(fields)) if name in STATEMENTS else self._answer(name, fields).schema

    def _columns(self, text: str) -> pa.Schema:
        return self.relations.asked(f"SELECT * FROM ({text.strip().rstrip(';')}) LIMIT 0").schema

    def _answer(self, name: str, fields: Fields) -> pa.Table:
        if name in STATEMENTS:
            return self.relations.asked(_text(fields))
        if name in PLACES:
            return PLACES[name]
        if name == "CommandGetTables":
            return self._tables(fields)
        if name == "CommandGetSqlInfo":
            return _about(fields)
        raise NotImplementedError(f"{name} is not answered")

    def _tables(self, fields: Fields) -> pa.Table:
        """The relations: of each query all results, and those that are valid now."""
        pattern = _text(fields, 3).replace("%", "*").replace("_", "?") if 3 in fields else "*"
        queries = StoredJob.open(self.relations.checkpoint).manifest.queries
        names = [name for query in queries for name in (query, query + CURRENT) if fnmatchcase(name, pattern)]
        kinds = [bytes(kind).decode() for kind in fields.get(4, ()) if isinstance(kind, bytes)]
        names = names if not kinds or "TABLE" in kinds else []
        places = [[CATALOG] * len(names), [SCHEMA] * len(names)]
        found = pa.table([*places, names, ["TABLE"] * len(names)], schema=TABLES)
        if not fields.get(5, [0])[0]:
            return found
        columns = [self._columns(f'SELECT * FROM "{name}"').serialize().to_pybytes() for name in names]
        return found.append_column(pa.field("table_schema", pa.binary(), False), [pa.array(columns, pa.binary())])


STATEMENTS = ("CommandStatementQuery", "CommandPreparedStatementQuery")


@contextmanager
def serving_flight(checkpoint: str, host: str, port: int, token: str) -> Iterator[int]:
    """Serves while inside; gives the port, which is a free one for 0."""
    with serving(host, port, lambda location: FlightSqlServer(location, Relations(checkpoint), token)) as found:
        yield found


@contextmanager
def _refusing() -> Iterator[None]:
    """Says of what is wrong with a question what it is, in the words of the protocol."""
    try:
        yield
    except MidstreamError as error:
        raise pa.ArrowInvalid(str(error)) from None


_INFO = pa.field("info_name", pa.uint32(), nullable=False)


def _about(fields: Fields) -> pa.Table:
    """What clients may want to know of the server: its name, versions, and that it is only read."""
    from midstream import __version__

    asked = _numbers(fields.get(1, ()))
    known: dict[int, Any] = {0: "Midstream", 1: __version__, 2: pa.__version__, 3: True}
    names = [name for name in known if not asked or name in asked]
    texts = pa.array([known[name] for name in names if name < 3], pa.string())
    flags = pa.array([known[name] for name in names if name == 3], pa.bool_())
    kinds = [
        ("string_value", texts),
        ("bool_value", flags),
        ("bigint_value", pa.array([], pa.int64())),
        ("int32_bitmask", pa.array([], pa.int32())),
        ("string_list", pa.array([], pa.list_(pa.string()))),
        ("int32_to_int32_list_map", pa.array([], pa.map_(pa.int32(), pa.list_(pa.int32())))),
    ]
    types = pa.array([1 if name == 3 else 0 for name in names], pa.int8())
    places = pa.array([0 if name == 3 else number for number, name in enumerate(names)], pa.int32())
    values = pa.UnionArray.from_dense(types, places, [array for _, array in kinds], [name for name, _ in kinds])
    return pa.table(
        [pa.array(names, pa.uint32()), values], schema=pa.schema([_INFO, pa.field("value", values.type, False)])
    )


def _command(message: bytes) -> tuple[str, Fields]:
    """The name of a command, and its fields."""
    try:
        fields = _fields(message)
        return _text(fields).removeprefix(PREFIX), _fields(_bytes(fields, 2) if 2 in fields else b"")
    except (IndexError, ValueError, KeyError):
        raise pa.ArrowInvalid("this is no command of Flight SQL") from None


def _fields(message: bytes) -> Fields:
    """The fields of a message.

    >>> _fields(b"\\x0a\\x02ab\\x10\\x96\\x01")
    {1: [b'ab'], 2: [150]}
    """
    found: dict[int, list[bytes | int]] = {}
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        value, at = _number(message, at)
        if key & 7 == 2:
            content = message[at : at + value]
            if len(content) < value:
                raise ValueError("the message ends too early")
            at += value
            found.setdefault(key >> 3, []).append(content)
        elif key & 7 == 0:
            found.setdefault(key >> 3, []).append(value)
        else:
            raise ValueError("a field of a kind that no command has")
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    """A number at a place, and the place behind it."""
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return value, at


def _numbers(values: Sequence[bytes | int]) -> list[int]:
    """Numbers that are repeated, packed or not."""
    found = list[int]()
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _number(value, at)
            found.append(number)
    return found


def _bytes(fields: Fields, number: int = 1) -> bytes:
    value = fields[number][-1]
    return value if isinstance(value, bytes) else b""


def _text(fields: Fields, number: int = 1) -> str:
    return _bytes(fields, number).decode("utf-8", "replace")


def _field(number: int, content: bytes) -> bytes:
    """A field that has a length, as a message has it.

    >>> _field(1, b"ab")
    b'\\n\\x02ab'
    """
    length, rest = b"", len(content)
    while True:
        length += bytes([rest & 127 | (128 if rest > 127 else 0)])
        rest >>= 7
        if not rest:
            return bytes([number << 3 | 2]) + length + content


def _packed(name: str, message: bytes) -> bytes:
    return _field(1, (PREFIX + name).encode()) + _field(2, message)
