"""Messages whose schemas a registry has: a zero, the number of the schema, then the row as Avro or Protobuf writes it.

A schema never changes under its number, so each is asked for once.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from midstream.connectors.environment import conceal
from midstream.errors import JobError

PATIENCE = 10.0
"""For how many seconds an answer of the registry is waited for."""

Row: TypeAlias = Mapping[str, Any]
Decoder: TypeAlias = Callable[[bytes], Row]


class SchemaRegistry:
    """The schemas of a registry as Confluent's serves them, over HTTP; it is asked when a message needs one."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise JobError("the schema registry is no address", hint="write http://user:password@host:8081")
        self._headers = {}
        if parts.username is not None:
            secret = unquote(parts.password or "")
            conceal(secret, "password")
            pair = f"{unquote(parts.username)}:{secret}".encode()
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        place = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._decoders: dict[tuple[str, int], Decoder] = {}

    def decoded(self, format: str, message: bytes | None) -> Row:
        """The row in a message; raises ValueError if it is none."""
        if message is None:
            raise ValueError("it has no value")
        if len(message) < 5 or message[0] != 0:
            raise ValueError("it does not begin with a zero and the number of a schema")
        number = int.from_bytes(message[1:5], "big")
        known = self._decoders.get((format, number))
        if known is None:
            known = self._decoders[format, number] = self._decoder(format, number)
        try:
            return known(message[5:])
        except Exception as error:  # whatever a decoder says of bytes that it does not expect
            raise ValueError(f"it is no row of schema {number}: {type(error).__name__}: {error}") from None

    def _decoder(self, format: str, number: int) -> Decoder:
        serialized = "?format=serialized" if format == "protobuf" else ""
        try:
            known = self._get(f"/schemas/ids/{number}{serialized}")
        except HTTPError as error:
            if error.code != 404:
                raise
            raise ValueError(f"the schema registry has no schema {number}") from None
        kind = known.get("schemaType", "AVRO").lower()
        if kind != format:
            raise ValueError(f"schema {number} is {kind}, not {format}")
        return _avro(known, self._referred) if format == "avro" else _protobuf(known, self._referred)

    def _referred(self, schema: Mapping[str, Any], serialized: str = "") -> list[tuple[str, Mapping[str, Any]]]:
        """The schemas that a schema refers to, and those that they do, by the names that they are referred to by."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        for one in schema.get("references", ()):
            known = self._get(f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}{serialized}")
            found += [*self._referred(known, serialized), (one["name"], known)]
        return found

    def _get(self, path: str) -> Any:
        with urlopen(Request(self.address + path, headers=self._headers), timeout=PATIENCE) as answer:
            return json.load(answer)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoders": {}}


Referred: TypeAlias = Callable[..., list[tuple[str, Mapping[str, Any]]]]


def _avro(schema: Mapping[str, Any], referred: Referred) -> Decoder:
    import fastavro

    named: dict[str, Any] = {}
    for _, one in referred(schema):
        fastavro.parse_schema(json.loads(one["schema"]), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(schema["schema"]), named_schemas=named)

    def decode(content: bytes) -> Row:
        stream = io.BytesIO(content)
        row = fastavro.schemaless_reader(stream, parsed, None)
        if not isinstance(row, dict):
            raise ValueError("it is no record")
        if stream.tell() < len(content):
            raise ValueError(f"{len(content) - stream.tell()} bytes are left over")
        return row

    return decode


def _protobuf(schema: Mapping[str, Any], referred: Referred) -> Decoder:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for known in _well_known():
        pool.AddSerializedFile(known)
    for name, one in [*referred(schema, "?format=serialized"), ("", schema)]:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(one["schema"]))
        file.name = name or file.name or "schema.proto"
        pool.Add(file)
    types = pool.FindFileByName(file.name)

    def decode(content: bytes) -> Row:
        path, at = _path(content)
        found = list(types.message_types_by_name.values())[path[0]]
        for place in path[1:]:
            found = found.nested_types[place]
        return _fields(message_factory.GetMessageClass(found).FromString(content[at:]))

    return decode


def _well_known() -> list[bytes]:
    """The files of Protobuf's own that schemas may import without a reference."""
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    return [file.DESCRIPTOR.serialized_pb for file in (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)]


def _path(content: bytes) -> tuple[list[int], int]:
    """Which message of a file a row is, by the places of it and of those around it, and where the row begins.

    >>> _path(bytes([0, 8])), _path(bytes([4, 2, 0, 8]))
    (([0], 1), ([1, 0], 3))
    """
    numbers, at = list[int](), 0
    while not numbers or len(numbers) <= numbers[0]:
        value, shift = 0, 0
        while True:
            value |= (content[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if content[at - 1] < 128:
                break
        numbers.append(value >> 1 ^ -(value & 1))
    return (numbers[1:] or [0]), at


def _fields(message: Any) -> Row:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    """A field as a value: times in microseconds, enumerations by name, messages as dictionaries; None if not there."""
    from google.protobuf.json_format import MessageToDict

    value = getattr(message, field.name)
    if field.is_repeated:
        whole = MessageToDict(message, preserving_proto_field_name=True)
        plain = field.message_type is None and field.enum_type is None
        return list(value) if plain else whole.get(field.name, [])
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.message_type is None:
        return value
    kind = field.message_type.full_name
    if kind == "google.protobuf.Timestamp":
        return int(value.seconds * 1_000_000 + value.nanos // 1000)
    if kind.startswith("google.protobuf.") and kind.endswith("Value") and kind != "google.protobuf.Value":
        return value.value
    return MessageToDict(value, preserving_proto_field_name=True)
