"""Sinks hold one law, whatever they write to; what is peculiar to a target is tested by itself."""

from __future__ import annotations

import datetime
import importlib.util
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import Delivery, connect
from midstream.connectors import registry
from midstream.connectors.forms import Form
from midstream.connectors.sink import deliver
from midstream.errors import JobError
from midstream.testing import check_sink

FORMS: list[tuple[str, list[str]]] = [("rows", []), ("changelog", []), ("current", []), ("current", ["k"])]
ROWS = pa.table({"k": [1, 2], "valid_from": [1, 4], "valid_to": [3, None]})


def delivery(since: int = 0, until: int = 10, **changed: Any) -> Delivery:
    known: dict[str, Any] = {"query": "q", "identity": "i", "checkpoint": "c", "history": "h", "batch_id": 3}
    return Delivery(**{**known, "since": since, "until": until, "schema": ROWS.schema, **changed})


def read_sqlite(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


def read_duckdb(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(duckdb.connect(str(path))) as connection:
        rows: list[dict[str, Any]] = connection.sql(f'SELECT * FROM "{table}"').to_arrow_table().to_pylist()
        return rows


READ = {"sqlite": read_sqlite, "duckdb": read_duckdb}


@pytest.mark.parametrize(
    ("kind", "form", "key", "kills"),
    [
        *(("sqlite", *form, 4) for form in FORMS),
        *(pytest.param("duckdb", *form, 3, marks=pytest.mark.slow) for form in FORMS),
        *(
            pytest.param(kind, *form, 40, marks=pytest.mark.slow)
            for kind in ("sqlite", "duckdb")
            for form in FORMS[::3]
        ),
    ],
)
def test_a_database_file_has_each_result_once(kind, form, key, kills, tmp_path):
    options = {"form": form, **({"key": key} if key else {})}
    path = tmp_path / "out.db"
    check_sink(
        lambda place: connect(kind, path=str(path), table=place, **options),
        lambda place: READ[kind](path, place),
        kills=kills,
    )


class Kept:
    """A sink in a list that forgets to ask, to record, or to refuse, as it is told."""

    name = "kept"
    form: Form = "rows"

    def __init__(self, path: Path, wrong: str) -> None:
        self.path, self.wrong = path, wrong

    def open(self, schema: pa.Schema) -> None:
        if not self.path.exists():
            self.path.write_text("[]\n")

    def _lines(self) -> list[list[Any]]:
        return [eval(line) for line in self.path.read_text().splitlines()[1:]]

    def last(self, delivery: Delivery) -> int | None:
        whose = [line[1] for line in self._lines() if line[0] == (delivery.history, delivery.query, delivery.identity)]
        return None if self.wrong == "never asks" else max(whose, default=None)

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        had = self.last(delivery)
        if self.wrong != "no fence" and had is not None and had > delivery.since:
            raise JobError("somebody else has written")
        key = (delivery.history, delivery.query, "" if self.wrong == "one identity" else delivery.identity)
        with self.path.open("a") as file:
            file.write(repr([key, delivery.until, table.to_pylist()]) + "\n")


def read_kept(path: Path) -> Iterable[Mapping[str, Any]]:
    return [row for line in path.read_text().splitlines()[1:] for row in eval(line)[2]]


def test_a_sink_of_thirty_lines_holds_the_law(tmp_path):
    check_sink(lambda place: Kept(tmp_path / place, ""), lambda place: read_kept(tmp_path / place), kills=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("never asks", "lost|too many"), ("no fence", "two writers have both written"), ("one identity", "lost|too many")],
)
def test_a_sink_that_breaks_the_law_is_found_out(wrong, said, tmp_path):
    with pytest.raises((AssertionError, JobError), match=said):
        check_sink(lambda place: Kept(tmp_path / place, wrong), lambda place: read_kept(tmp_path / place), kills=2)


def run_job(tmp_path: Path, sink: Any, batches: Iterable[list[int]], cql: str = "SELECT k FROM A [RANGE 5]") -> Any:
    session = CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local")
    session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
    session.query("q", cql, replace=True)
    session.sink("q", sink)
    session.start()
    for times in batches:
        session.push("A", pa.table({"ts": times, "k": [at % 3 for at in times]}))
    return session


def test_a_job_keeps_the_current_relation_in_a_table(tmp_path):
    path = tmp_path / "out.db"
    sink = connect("sqlite", path=str(path), table="now", form="current", key=["k"])
    cql = "SELECT k, count(*) AS n FROM A [RANGE 5] GROUP BY k"
    session = run_job(tmp_path, sink, [[1, 2, 3], [7, 8, 9]], cql)
    session.finish()
    now = read_sqlite(path, "now")
    assert sorted((row["k"], row["n"]) for row in now) == [(0, 1), (1, 1), (2, 1)]
    session.stop()


def test_a_job_that_is_started_again_writes_into_its_table_only_what_follows(tmp_path):
    path = tmp_path / "out.db"
    for batches in ([[1, 2], [11, 12]], [[21, 22], [31]]):
        session = run_job(tmp_path, connect("duckdb", path=str(path), table="paid"), batches)
        session.stop()
    rows = read_duckdb(path, "paid")
    assert sorted(row["valid_from"] for row in rows) == [1, 2, 11, 12, 21, 22]


def test_a_job_whose_table_was_emptied_is_refused_by_name(tmp_path):
    path = tmp_path / "out.db"
    run_job(tmp_path, connect("sqlite", path=str(path), table="paid"), [[1, 2], [11, 12]]).stop()
    path.unlink()
    with pytest.raises(JobError, match="sink sqlite table paid has lost results of query q that it had"):
        run_job(tmp_path, connect("sqlite", path=str(path), table="paid"), [[21, 22], [31]])


def test_batches_without_results_are_no_loss(tmp_path):
    path = tmp_path / "out.db"
    cql = "SELECT k FROM A [RANGE 5] WHERE k = 1"
    session = run_job(tmp_path, connect("sqlite", path=str(path), table="paid"), [[1], [3], [6], [9], [10], [12]], cql)
    session.stop()
    assert [row["valid_from"] for row in read_sqlite(path, "paid")] == [1, 10]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_table_keeps_values_of_every_type(kind, tmp_path):
    at = datetime.datetime(2026, 5, 4, 3, 2, 1, 5)
    table = pa.table(
        {
            "flag": [True, None],
            'a.b "c"': [1, 2],
            "amount": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
            "day": [at.date(), None],
            "bytes": [b"\x00\xff", None],
            "tags": pa.array([["a", "b"], None], pa.list_(pa.string())),
            "valid_from": pa.array([at, at], pa.timestamp("us")),
            "valid_to": pa.array([None, at + datetime.timedelta(hours=1)], pa.timestamp("us")),
        }
    )
    sink = connect(kind, path=str(tmp_path / "out.db"), table="every type")
    deliver(sink, table, delivery(schema=table.schema, since=0, until=2**60))
    first, second = READ[kind](tmp_path / "out.db", "every type")
    wanted = {"sqlite": (1, "12.50", "2026-05-04", '["a", "b"]', "2026-05-04 03:02:01.000005")}.get(
        kind, (True, Decimal("12.50"), at.date(), ["a", "b"], at)
    )
    assert tuple(first[name] for name in ("flag", "amount", "day", "tags", "valid_from")) == wanted
    assert first["bytes"] == b"\x00\xff" and first["valid_to"] is None and second['a.b "c"'] == 2
    assert {name for name, value in second.items() if value is None} == {"flag", "amount", "day", "bytes", "tags"}


def test_two_rows_of_one_key_are_refused_with_the_key(tmp_path):
    sink = connect("sqlite", path=str(tmp_path / "out.db"), table="t", form="current", key=["k"])
    rows = pa.table({"k": [7, 7], "valid_from": [1, 2], "valid_to": pa.array([None, None], pa.int64())})
    with pytest.raises(JobError, match="cannot have two rows of the key k = 7"):
        deliver(sink, rows, delivery())


def test_a_row_without_a_key_is_refused_by_the_name_of_its_column(tmp_path):
    sink = connect("sqlite", path=str(tmp_path / "out.db"), table="t", form="current", key=["k"])
    rows = pa.table({"k": pa.array([None], pa.int64()), "valid_from": [1], "valid_to": pa.array([None], pa.int64())})
    with pytest.raises(JobError, match="cannot have a row whose key k is null"):
        deliver(sink, rows, delivery())


def test_a_table_that_is_none_of_such_results_is_refused_by_name(tmp_path):
    path = str(tmp_path / "out.db")
    deliver(connect("duckdb", path=path, table="t"), ROWS, delivery())
    other = pa.table({"k": [1], "ts": [1]})
    with pytest.raises(JobError, match="duckdb table t has no column ts, which all results have"):
        deliver(connect("duckdb", path=path, table="t"), other, delivery(identity="j"))


def test_two_columns_of_one_name_are_refused_by_name(tmp_path):
    twice = pa.Table.from_arrays([*ROWS.columns, ROWS.column("k")], names=["K", "valid_from", "valid_to", "k"])
    sink = connect("sqlite", path=str(tmp_path / "out.db"), table="t", form="current")
    with pytest.raises(JobError, match="cannot have two columns named k"):
        sink.open(twice.schema)


def test_a_current_relation_belongs_to_one_query(tmp_path):
    sink = connect("sqlite", path=str(tmp_path / "out.db"), table="t", form="current")
    deliver(sink, ROWS, delivery())
    with pytest.raises(JobError, match="current relation of query q"):
        deliver(sink, ROWS, delivery(query="other"))


def test_a_stream_of_events_has_no_current_relation(tmp_path):
    sink = connect("sqlite", path=str(tmp_path / "out.db"), table="t", form="current")
    with pytest.raises(JobError, match="query q gives a stream, which has no form 'current'"):
        deliver(sink, pa.table({"k": [1], "ts": [2]}), delivery())


def test_a_function_is_called_with_results_and_their_delivery(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_sink.py").write_text(
        "CALLS = []\ndef take(table, delivery):\n    CALLS.append((table.num_rows, delivery.query))\n"
    )
    import own_sink

    run_job(tmp_path, connect("function", python="own_sink:take", form="changelog"), [[1, 2], [11, 12]]).stop()
    assert own_sink.CALLS[-1] == (4, "q")


def test_the_value_of_a_variable_is_in_no_message_and_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT_FILE", str(tmp_path / "s3cret" / "out.db"))
    with pytest.raises(JobError) as failed:
        run_job(tmp_path, connect("sqlite", path="${OUT_FILE}", table="t"), [[1], [20]])
    assert "s3cret" not in str(failed.value) and failed.value.__cause__ is None
    stored = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert stored and not any(b"s3cret" in content for content in stored)


@pytest.mark.parametrize(("kind", "needs"), [("postgres", "psycopg"), ("delta", "deltalake")])
def test_a_sink_whose_package_is_missing_names_what_to_install(kind, needs, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == needs else importlib.util.find_spec(name))
    options = {"path": "t"} if kind == "delta" else {"url": "postgresql://", "table": "t"}
    with pytest.raises(JobError, match=rf"pip install 'midstream\[{kind}\]'"):
        connect(kind, **options)
    with pytest.raises(JobError, match=rf"did you mean {kind} \(pip install 'midstream\[{kind}\]'\)"):
        connect(f"{kind}x")


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(JobError, match=r"path needs the environment variable NOT_SET, which is not set"):
        connect("sqlite", path="${NOT_SET}", table="t")


def test_a_table_of_what_is_current_has_the_rows_of_the_newest_instant_once_all_streams_have_ended(tmp_path):
    session = CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local")
    session.stream("A", pa.schema([("ts", pa.int64()), ("k", pa.int64())]))
    session.query("q", "SELECT k, COUNT(*) AS n FROM A [RANGE 60] GROUP BY k")
    session.sink("q", connect("sqlite", path=str(tmp_path / "out.db"), table="t", form="current", key=["k"]))
    session.start()
    session.push("A", [{"ts": ts, "k": ts % 2} for ts in range(100)])
    session.finish()
    session.stop()
    assert sorted((row["k"], row["n"]) for row in read_sqlite(tmp_path / "out.db", "t")) == [(0, 30), (1, 31)]
