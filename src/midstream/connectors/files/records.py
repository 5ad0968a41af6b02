"""Files of records that are no text: Avro, and Arrow as a file or a stream. How they are packed inside is their own."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa

from midstream.connectors.files.columns import as_declared, declared_names
from midstream.connectors.files.text_values import BadRecord, TextRows
from midstream.connectors.values import columns_of_values


def read_arrow(content: bytes, schema: pa.Schema) -> TextRows:
    """The rows of a file of Arrow; one whose columns have other types is refused as a whole."""
    opened = pa.ipc.open_file if content.startswith(b"ARROW1") else pa.ipc.open_stream
    with opened(pa.BufferReader(content)) as reader:
        rows = as_declared(reader.read_all(), schema)
    return TextRows(rows, record_of=lambda place: (place + 1, str(rows.slice(place, 1).to_pylist()).encode()))


def read_avro(content: bytes, schema: pa.Schema) -> TextRows:
    """The rows of a file of Avro; a record whose values are not of the columns' types is bad, by its number."""
    import fastavro

    try:
        records: list[Any] = list(fastavro.reader(io.BytesIO(content)))
    except (EOFError, IndexError, TypeError) as error:
        raise ValueError(f"it is no whole file of Avro: {error}") from None
    if not all(isinstance(record, dict) for record in records):
        raise ValueError("what is in it are no records")
    names = {own: name for name, own in declared_names(list(records[0]) if records else [], schema.names).items()}
    columns = [[record.get(names.get(field.name, field.name)) for record in records] for field in schema]
    rows, wrong = columns_of_values(columns, schema)

    def record_of(place: int) -> tuple[int, bytes]:
        return place + 1, str(records[place]).encode()

    return TextRows.among(rows, wrong, list[BadRecord](), record_of)
