"""Messages of Avro and Protobuf whose schemas a registry has: rows, or dead letters that say why they are none."""

from __future__ import annotations

import base64
import datetime
import io
import json
import pickle
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from midstream.cluster.sources import connect
from midstream.connectors.messages import Messages
from midstream.errors import InputError, JobError

fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install 'midstream[kafka]'")
pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install 'midstream[kafka]'")

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "to", "type": ["null", "Address"]},
    ],
}
REFERENCE = {"name": "Address", "subject": "a/b", "version": 3}


def proto_file() -> Any:
    """Order { int64 id; Timestamp at; Kind kind; optional string note; repeated int32 sizes; message Line { … } }"""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="order.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="LARGE", number=1)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_note")
    plain = {"label": Field.LABEL_OPTIONAL}
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, **plain)
    order.field.add(name="at", number=2, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", **plain)
    order.field.add(name="kind", number=3, type=Field.TYPE_ENUM, type_name=".Kind", **plain)
    order.field.add(name="note", number=4, type=Field.TYPE_STRING, proto3_optional=True, oneof_index=0, **plain)
    order.field.add(name="sizes", number=5, type=Field.TYPE_INT32, label=Field.LABEL_REPEATED)
    order.nested_type.add(name="Line").field.add(name="id", number=1, type=Field.TYPE_INT64, **plain)
    return file


class Registry(ThreadingHTTPServer):
    """A schema registry that has what the tests put in, for who knows the password."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[str] = []
        avro = {"schema": json.dumps(ORDER), "references": [REFERENCE]}
        proto = {"schema": base64.b64encode(proto_file().SerializeToString()).decode(), "schemaType": "PROTOBUF"}
        self.known = {
            "/schemas/ids/1": avro,
            "/subjects/a%2Fb/versions/3": {"schema": json.dumps(ADDRESS)},
            "/schemas/ids/2?format=serialized": proto,
            "/schemas/ids/2": proto,
        }

    @property
    def address(self) -> str:
        return f"http://me:secret%21@127.0.0.1:{self.server_port}/"


class Answer(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        trusted = self.headers.get("Authorization") == "Basic " + base64.b64encode(b"me:secret!").decode()
        found = self.server.known.get(self.path)
        self.send_response(401 if not trusted else 404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def avro(row: dict[str, Any], number: int = 1) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(ORDER, named_schemas=named), row)
    return b"\0" + number.to_bytes(4, "big") + content.getvalue()


def test_messages_of_avro_are_rows_and_others_say_why_they_are_none(registry):
    at = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    row = {"id": 7, "at": at, "price": Decimal("12.50"), "to": {"city": "Bonn"}}
    schema = "id INT, at TIMESTAMP, price DECIMAL(9, 2), to STRUCT<city: STRING>, more STRING"
    messages = Messages.of("avro", schema, pa.schema([]), "topic t", registry.address)
    whole = avro(row)
    values = [whole, None, b"{}", whole[:-3], whole + b"x", avro(row, 9), avro(row, 2), avro({**row, "id": 2**40})]
    values.append(avro({**row, "id": 8, "to": None}))
    found = pickle.loads(pickle.dumps(messages)).rows(values, lambda n: {"offset": n}, {}).to_pylist()
    assert found[0] == {**row, "more": None, "#bad": None}
    assert (found[1]["id"], found[1]["to"]) == (8, None)
    reasons = {letter["at"]["offset"]: letter["reason"] for letter in (json.loads(r["#bad"]) for r in found[2:])}
    assert [*reasons] == [1, 2, 3, 4, 5, 6, 7]
    assert reasons[1] == "it has no value" and "number of a schema" in reasons[2]
    assert reasons[3].startswith("it is no row of schema 1: ") and "1 bytes are left over" in reasons[4]
    assert (reasons[5], reasons[6]) == ("the schema registry has no schema 9", "schema 2 is protobuf, not avro")
    assert reasons[7] == f"id: {2**40} is no int32"
    assert registry.asked.count("/schemas/ids/1") == 1


def test_messages_of_protobuf_are_rows(registry):
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(proto_file())
    types = pool.FindFileByName("order.proto").message_types_by_name
    order = message_factory.GetMessageClass(types["Order"])(id=7, kind=1, sizes=[3, 4])
    order.at.FromMilliseconds(1_700_000_000_123)
    line = message_factory.GetMessageClass(types["Order"].nested_types[0])(id=9)
    start = b"\0" + (2).to_bytes(4, "big")
    values = [
        start + b"\0" + order.SerializeToString(),
        start + b"\4\0\0" + line.SerializeToString(),
        start + b"\0\x08",
    ]
    schema = "id BIGINT, at TIMESTAMP, kind STRING, note STRING, sizes ARRAY<INT>"
    messages = Messages.of("protobuf", schema, pa.schema([]), "topic t", registry.address)
    table = messages.rows(values, lambda n: {"offset": n}, {})
    first, second, bad = table.to_pylist()
    assert (first["id"], first["kind"], first["note"], first["sizes"]) == (7, "LARGE", None, [3, 4])
    assert pa.scalar(first["at"], pa.timestamp("ms", "UTC")).value == 1_700_000_000_123
    assert (second["id"], second["at"]) == (9, None)
    assert "it is no row of schema 2" in bad["#bad"]


def test_a_registry_that_is_missing_or_refuses_is_named(registry):
    known = {"servers": "127.0.0.1:9", "topic": "t", "schema": "id BIGINT"}
    with pytest.raises(InputError, match="kafka topic t of the format avro needs a schema registry"):
        connect("kafka", **known, format="avro")
    with pytest.raises(InputError, match="has a schema registry, which its format json does not use"):
        connect("kafka", **known, registry=registry.address)
    with pytest.raises(JobError, match="the schema registry is no address"):
        connect("kafka", **known, format="avro", registry="host:8081")
    stranger = registry.address.replace("secret", "other")
    source: Any = connect("kafka", **known, format="avro", registry=stranger)
    with pytest.raises(OSError, match="401"):
        source._messages.rows([b"\0\0\0\0\1"], lambda n: {}, {})
    assert urlsplit(source._messages.registry.address).password is None
