"""Delta and Iceberg tables in an object store: results are there once, and each row is read once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileSystem
from tests.connectors.nats_server import serving

from midstream.cluster import sinks, sources
from midstream.connectors.sink import Delivery, deliver

ROWS = pa.table({"k": range(9), "valid_from": range(9), "valid_to": [99] * 9})


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The settings of a store in another process: the client of Delta does not let others work while it asks."""
    pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    with serving(sys.executable, "-m", "moto.server", "-p", "PORT") as port:
        known = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        known["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
        with monkeypatch.context() as patched:
            for name, value in known.items():
                patched.setenv(name, value)
            FileSystem.from_uri("s3://tables?allow_bucket_creation=true")[0].create_dir("tables")
        yield {**known, "AWS_ALLOW_HTTP": "true"}


def declared(kind: str, storage: dict[str, str], folder: Path) -> dict[str, Any]:
    """How a table is declared, as a sink and as a source."""
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake", reason="it is not installed: pip install 'midstream[delta]'")
        feed = {"delta.enableChangeDataFeed": "true"}
        deltalake.write_deltalake("s3://tables/t", ROWS[:0], configuration=feed, storage_options=storage)
        return {"path": "s3://tables/t", "storage": storage}
    pytest.importorskip("pyiceberg", reason="it is not installed: pip install 'midstream[iceberg]'")
    named = {"endpoint": "ENDPOINT_URL", "access-key-id": "ACCESS_KEY_ID", "secret-access-key": "SECRET_ACCESS_KEY"}
    known = {f"s3.{name}": storage[f"AWS_{words}"] for name, words in {**named, "region": "REGION"}.items()}
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": "s3://tables", **known}
    return {"catalog": catalog, "table": "sales.t"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_an_object_store_has_each_result_once_and_each_row_is_read_once(
    kind: str, storage: dict[str, str], tmp_path: Path
) -> None:
    options = declared(kind, storage, tmp_path)
    for until in (3, 3, 9):
        since = 0 if until == 3 else 3
        delivery = Delivery("q", "i", "c", "h", until, since, until, ROWS.schema, since or None)
        for _ in range(2):
            deliver(sinks.connect(kind, **options), ROWS.slice(since, until - since), delivery)
    source = sources.connect(kind, **options)
    ((part, at),) = source.partitions().items()
    found = list[int]()
    while (end := source.end(part, at, 1)) != at:
        found += source.read(part, at, end).column("k").to_pylist()
        at = end
    assert sorted(found) == list(range(9))
