"""Results over Arrow Flight SQL, and rows put by Arrow Flight: clients have both, and nobody without the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.inbox import inbox_of

flight = pytest.importorskip("pyarrow.flight", reason="this pyarrow was built without Flight")
pytest.importorskip("starlette", reason="serving needs starlette: pip install 'midstream[dashboard]'")
dbapi = pytest.importorskip(
    "adbc_driver_flightsql.dbapi", reason="the client is not installed: pip install adbc-driver-flightsql"
)

TOKEN = "another token for base64"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from midstream.interface.flight_sql import serving_flight

    folder: Path = tmp_path_factory.mktemp("flight") / "checkpoint"
    with CheckpointSession(checkpoint=str(folder), on="local") as session:
        session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
        session.query("rows", "SELECT k FROM A [RANGE 10]")
        session.start()
        for at in range(6):
            session.push({"A": [{"ts": at, "k": at}]})
    with serving_flight(str(folder), "127.0.0.1", 0, TOKEN) as port:
        yield f"grpc://127.0.0.1:{port}"


def connected(address: str, **options: str) -> Any:
    return dbapi.connect(address, db_kwargs=options, autocommit=True)


def test_a_client_asks_sql_over_results_and_sees_which_there_are(address):
    header = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
    with connected(address, **header) as client, client.cursor() as cursor:
        cursor.execute("SELECT count(*) AS n, max(k) AS most FROM rows;")
        assert cursor.fetch_arrow_table().to_pylist() == [{"n": 5, "most": 4}]
        cursor.execute("SELECT k FROM temp.main.rows_current ORDER BY k")
        assert [k for (k,) in cursor.fetchall()] == [0, 1, 2, 3, 4]
        found = client.adbc_get_objects(depth="columns").read_all().to_pylist()
        tables = {
            table["table_name"]: [column["column_name"] for column in table["table_columns"]]
            for catalog in found
            for schema in catalog["catalog_db_schemas"]
            for table in schema["db_schema_tables"]
        }
        assert tables == {"rows": ["k", "valid_from", "valid_to"], "rows_current": ["k", "valid_from", "valid_to"]}
        assert client.adbc_get_info()["vendor_name"] == "Midstream"


def test_a_question_that_cannot_be_answered_says_why(address):
    options = {"username": "anybody", "password": TOKEN}
    with connected(address, **options) as client, client.cursor() as cursor:
        for text, why in [
            ("SELECT nothing FROM rows", "the question cannot be answered"),
            ("SELECT FROM WHERE", "this is not SQL"),
            ("SELECT * FROM read_csv('/etc/passwd')", "the question cannot be answered"),
        ]:
            with pytest.raises(dbapi.Error, match=why):
                cursor.execute(text)
        with pytest.raises(dbapi.Error):
            cursor.adbc_ingest("rows", pa.table({"k": [1]}), mode="append")


def test_nobody_without_the_token_is_answered(address):
    for options in ({}, {"adbc.flight.sql.authorization_header": "Bearer another"}):
        with pytest.raises(dbapi.Error, match="needs its token"), connected(address, **options) as client:
            client.cursor().execute("SELECT 1")
    with pytest.raises(dbapi.Error), connected(address, username="me", password="wrong") as client:
        client.cursor().execute("SELECT 1")


def test_rows_that_are_put_are_files_of_a_stream_once_under_each_key(tmp_path, monkeypatch):
    from midstream.interface.flight_inbox import listening_flight

    monkeypatch.setenv("MIDSTREAM_LISTEN_TOKEN", TOKEN)
    rows = pa.table({"id": [1, 2], "ts": [1, 2]})
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])

    def put(client: Any, table: pa.Table, *path: str) -> str:
        writer, reader = client.do_put(flight.FlightDescriptor.for_path(*path), table.schema, options)
        with writer:
            writer.write_table(table)
            writer.done_writing()
            return str(reader.read().to_pybytes().decode())

    inbox = inbox_of({"orders": ("parquet", str(tmp_path))})
    with listening_flight(inbox, "127.0.0.1", 0) as (place, _), flight.connect(place) as client:
        name = put(client, rows, "orders", "order-7")
        assert put(client, rows, "orders", "order-7") == name and [one.name for one in tmp_path.iterdir()] == [name]
        assert pq.read_table(tmp_path / name).equals(rows)
        for table, path, why in [
            (rows, ("order",), "rows cannot be pushed into order: did you mean orders"),
            (rows[:1], ("orders", "order-7"), "a request with this Idempotency-Key had other rows"),
        ]:
            with pytest.raises(pa.ArrowInvalid, match=why):
                put(client, table, *path)
        options = flight.FlightCallOptions()
        with pytest.raises(flight.FlightUnauthenticatedError):
            put(client, rows, "orders")


def test_what_is_no_command_is_refused(address):
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with flight.connect(address) as client:
        for command in (b"", b"\xff\xff", b"\x0a\x7fx"):
            with pytest.raises(pa.ArrowInvalid, match="no command of Flight SQL"):
                client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
