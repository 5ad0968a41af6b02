"""Rows that come too late and streams that others wait for are told of, in the log and by `status`."""

from __future__ import annotations

import logging
import os
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest
from tests.job.many import Many

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.names import copy_name
from midstream.checkpoint.status import job_at, status_record
from midstream.cluster.sessions import Session
from midstream.interface.jobs.job_file import read_job
from midstream.job.outputs.progress import late_text, warnings_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
JOIN = "SELECT A.k FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k"
CATALOG = ask(JOIN, {name: SCHEMA.empty_table() for name in "AB"}).catalog


def rows(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array([1] * len(times), pa.int64()), "ts": pa.array(times, pa.int64())})


def warned(job: Many, **streams: pa.RecordBatch) -> list[str]:
    """What a batch warns of."""
    batch = job.batch(streams)
    return warnings_of(batch, job.manifest)


def job_of(folder: Path) -> Many:
    job = Many(catalog=CATALOG, folder=folder, slots=2)
    job.add("join", JOIN)
    job.add("alone", "SELECT k FROM A [NOW]")
    return job


def test_a_batch_that_comes_too_late_is_warned_of_with_the_lateness_it_would_have_needed(tmp_path):
    job = job_of(tmp_path)
    assert warned(job, A=rows(100), B=rows(100)) == []
    (sentence,) = warned(job, A=rows(100, 70, 95), B=rows(100))
    assert sentence == late_text(CATALOG.streams["A"], 2, 3, 30)
    assert "2 of 3 rows of stream A" in sentence and "a lateness of 30 would have done" in sentence


@pytest.mark.parametrize("heard", [True, False])
def test_a_silent_stream_that_holds_a_query_back_is_named(heard, tmp_path):
    job = job_of(tmp_path)
    job.batch({"A": rows(10), **({"B": rows(5)} if heard else {})})
    told: list[list[str]] = []
    while len(told) < 4:
        told.append(warned(job, A=rows(20 + len(told))))
        assert warned(job) == []  # what was said is not said again after a batch without rows
    (sentence,) = told[2 if heard else 1]
    assert "query join waits for stream B" in sentence and [len(t) for t in told].count(1) == 1
    assert status_record(job_at(job.driver.store.uri))["queries"]["join"]["waits_for"] == {
        "stream": "B",
        "behind": 18 if heard else None,
        "batches": 4 if heard else 5,
    }
    assert status_record(job_at(job.driver.store.uri))["queries"]["alone"]["waits_for"] is None
    assert warned(job, B=rows(30), A=rows(30)) == []
    assert status_record(job_at(job.driver.store.uri))["queries"]["join"]["waits_for"] is None


class TestInThisProcess:
    def session(self, **options: Any) -> Any:
        session = Session()
        session.stream("A", SCHEMA).stream("B", SCHEMA, **options)
        session.query("join", JOIN)
        return session

    def test_late_rows_that_are_pushed_are_warned_of(self):
        session = self.session()
        session.push("A", pa.Table.from_batches([rows(10)]))
        with pytest.warns(ms.DeadLetterWarning, match=r"2 of A \(late\)") as caught:
            session.push("A", pa.Table.from_batches([rows(11, 3, 4)]))
        assert caught[0].filename == __file__

    def test_late_rows_pushed_into_a_durable_session_are_warned_of(self, tmp_path):
        with ms.Session(checkpoint=str(tmp_path), on="local") as session:
            session.stream("A", SCHEMA)
            session.query("q", "SELECT k FROM A [NOW]")
            session.start()
            session.push("A", pa.Table.from_batches([rows(10)]))
            with pytest.warns(ms.DeadLetterWarning, match=r"2 of A \(late\)") as caught:
                session.push("A", pa.Table.from_batches([rows(11, 3, 4)]))
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("skew", [None, 0])
    def test_a_silent_stream_that_holds_a_query_back_is_named(self, skew, caplog):
        session = self.session(skew=skew)
        with caplog.at_level(logging.WARNING):
            for time in range(5):
                session.push("A", pa.Table.from_batches([rows(time)]))
        waits = session.queries["join"].statistics["waits_for"]
        assert waits == (None if skew == 0 else {"stream": "B", "behind": None, "batches": 5})
        assert [record.message.count("waits for stream B") for record in caplog.records] == ([] if skew == 0 else [1])


def test_the_copy_by_which_a_migration_is_verified_is_not_named(tmp_path, caplog):
    join = "SELECT A.k FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.k = B.k AND B.k = C.k"
    made: Any = ms.Session(checkpoint=str(tmp_path), on="local")
    with made as session:
        for name in "ABC":
            session.stream(name, SCHEMA)
        session.query("q", join, plan="((A B) C)")
        session.start()
        session.push({name: pa.Table.from_batches([rows(0)]) for name in "ABC"})
        session.queries["q"].migrate("(A (B C))", verify=1000)
        with caplog.at_level(logging.WARNING):
            for time in range(1, 6):
                session.push({name: pa.Table.from_batches([rows(time)]) for name in "AB"})
        assert copy_name("q") in session._job.queries
        (message,) = [message for message in caplog.messages if "waits for stream" in message]
        assert message.startswith("query q waits for stream C")
        assert [wait.partition(",")[0] for wait in session.waits] == ["query q waits for stream C"]


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_the_orders_are_the_same_in_whatever_order_their_files_were_written(order, tmp_path):
    job = read_job(EXAMPLES / "orders.toml")
    session: Any = ms.Session(checkpoint=str(tmp_path / "checkpoint"), on="local")
    inputs = {}
    for stream in job.streams:
        folder = tmp_path / stream.name
        folder.mkdir()
        files = sorted(Path(str(stream.path)).glob("*.json"))
        for i, place in enumerate(order):
            (folder / files[place].name).write_bytes(files[place].read_bytes())
            os.utime(folder / files[place].name, (i, i))
        inputs[stream.name] = pa.concat_tables([pyarrow.json.read_json(file) for file in files])
        session.open_stream(
            stream.name,
            stream.format,
            path=str(folder),
            schema=stream.schema,
            options=stream.options,
            lateness=stream.settings.lateness,
        )
    with session:
        for query in job.queries:
            session.query(query.name, query.cql)
        session.process_available()
        session.finish()
        assert session._job.manifest.streams.late == {}
        for query in job.queries:
            expected = ms.run(query.cql, _zoned(inputs))
            assert session.queries[query.name].table().num_rows == expected.num_rows > 0


def _zoned(inputs: dict[str, pa.Table]) -> dict[str, pa.Table]:
    kind = pa.timestamp("us", "UTC")
    return {n: t.set_column(t.schema.get_field_index("ts"), "ts", t["ts"].cast(kind)) for n, t in inputs.items()}
