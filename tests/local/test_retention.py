"""Retention: what is old goes, what is left is whole from an instant on, and nobody takes a part for all."""

from __future__ import annotations

import json
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.check import check
from midstream.checkpoint.failures import MissingFile, NotRetained
from midstream.checkpoint.process import this_process
from midstream.checkpoint.refused import RefusedRow, keep_refused, refused_rows
from midstream.checkpoint.retention import RemovedWarning, Retention, RetentionLimit, removed_letters
from midstream.checkpoint.status import job_at, status_record
from midstream.cluster.sinks import connect
from midstream.interface.cli.app import app
from midstream.interface.jobs.job_file import job_of

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
QUERY = "SELECT k FROM A [RANGE 3]"
BATCHES = 24


def opened(folder: Path, retention: dict[str, str] | None, cql: str = QUERY, **options: Any) -> Any:
    session = ms.Session(checkpoint=str(folder), on="local", slots=2, retained=3, retention=retention)
    session.stream("A", SCHEMA)
    session.query("q", cql, **options)
    return session


def rows(batch: int) -> pa.Table:
    times = [None, *range(10 * batch, 10 * batch + 10)]
    return pa.table({"ts": times, "k": [batch] * len(times)}, schema=SCHEMA)


def everything(batches: int = BATCHES) -> pa.Table:
    whole = pa.concat_tables([rows(i) for i in range(batches)])
    return ms.reference(QUERY, {"A": whole.filter(pc.is_valid(whole["ts"]))})


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ms.DeadLetterWarning)
        yield


def run(folder: Path, retention: dict[str, str] | None, restarts: bool = False) -> dict[int, pa.Table]:
    given: dict[int, pa.Table] = {}

    def take(table: pa.Table, batch: int) -> None:
        given[batch] = table

    session = opened(folder, retention)
    session.sink("q", take)
    session.start()
    for i in range(BATCHES):
        if restarts and i % 5 == 4:
            session.stop()
            session = opened(folder, retention)
            session.sink("q", take)
            session.start()
        session.push("A", rows(i))
    session.finish()
    session.stop()
    return given


@pytest.mark.parametrize("limit", ["6 batches", "0.01 MB"])
def test_old_results_go_and_what_is_left_is_whole_from_an_instant_on(tmp_path: Path, limit: str) -> None:
    given = run(tmp_path, {"results": limit}, restarts=True)
    assert ms.snapshot_equal(pa.concat_tables(given.values()), everything())
    stored = ms.open(tmp_path)
    removed = stored.manifest.account("q").removed
    assert removed is not None and 0 < removed["before"] < 10 * BATCHES
    with pytest.warns(RemovedWarning, match=f"start before {removed['before']} were removed"):
        left = stored.results("q")
    whole = everything()
    kept = whole.filter(pc.greater_equal(whole["valid_from"], removed["before"]))
    assert ms.snapshot_equal(left, kept) and left.num_rows
    assert not check(stored.store.files, stored.manifest)
    told = status_record(job_at(stored.store.uri))
    assert told["retention"] == {"results": limit} and told["queries"]["q"]["removed"] == removed


def test_files_that_have_gone_are_not_there_any_more(tmp_path: Path) -> None:
    run(tmp_path / "all", None)
    run(tmp_path / "some", {"results": "3 batches", "dead_letters": "3 batches"})
    for kind in ("results", "dead_letters"):
        whole, left = (len(list((tmp_path / job / kind).rglob("*.parquet"))) for job in ("all", "some"))
        assert left < whole


def test_without_retention_everything_is_kept(tmp_path: Path) -> None:
    run(tmp_path, None)
    stored = ms.open(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RemovedWarning)
        assert ms.snapshot_equal(stored.results("q"), everything())
        assert stored.dead_letters().num_rows == stored.dead_letter_rows == BATCHES


def test_old_dead_letters_go_and_are_still_counted(tmp_path: Path) -> None:
    run(tmp_path, {"dead_letters": "6 batches"})
    stored = ms.open(tmp_path)
    assert stored.dead_letter_rows == BATCHES
    with pytest.warns(RemovedWarning, match="dead letters, up to batch"):
        left = stored.dead_letters()
    # Files that were merged go with the newest of their rows.
    assert set(range(BATCHES - 5, BATCHES)) <= set(left["batch_id"].to_pylist()) < set(range(BATCHES))
    assert ms.snapshot_equal(stored.results("q"), everything())


def refused_by(folder: Path, retention: dict[str, str] | None) -> Any:
    """A job whose table takes no odd keys."""
    with sqlite3.connect(folder / "out.db") as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (k BIGINT CHECK (k % 2 = 0), valid_from BIGINT, valid_to BIGINT)")
    checkpoint = folder / f"kept {retention}"
    session = opened(checkpoint, retention)
    session.sink("q", connect("sqlite", path=str(folder / "out.db"), table="t", on_bad="dead_letter"))
    with session.start():
        for i in range(BATCHES):
            session.push("A", rows(i).slice(1))
    return ms.open(checkpoint)


def test_old_results_that_a_sink_did_not_take_go_too(tmp_path: Path) -> None:
    whole = list(refused_rows(refused_by(tmp_path, None).store.files))
    assert {json.loads(one.row)["k"] for one in whole} == set(range(1, BATCHES, 2))
    for limit in ("6 batches", "0.01 MB"):
        stored = refused_by(tmp_path, {"dead_letters": limit})
        removed = stored.manifest.outputs.removed_dead_letters["of_sinks"]
        left = list(refused_rows(stored.store.files))
        assert left == [one for one in whole if one.batch_id > removed] and 0 < len(left) < len(whole)
        assert [
            f"results that sinks did not take, up to batch {removed}, were removed by retention"
        ] == removed_letters(stored.manifest)


def test_results_that_a_sink_did_not_take_are_kept_once_whichever_batch_repeats_them(tmp_path: Path) -> None:
    files = files_at(str(tmp_path))
    for batch, rows in ((3, 1), (5, 2)):
        keep_refused(files, [RefusedRow("q", "s", batch, "why", "{}")] * rows, "i/0")
    keep_refused(files, [RefusedRow("q", "s", 4, "why", "{}")], "i/9")
    assert [row.batch_id for row in refused_rows(files)] == [4, 5, 5] and len(files.list("deliveries/refused")) == 2


def test_a_job_as_of_a_batch_that_is_no_longer_retained_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, {"results": "1 batches", "dead_letters": "1 batches"}) as session:
        session.start()
        session.push("A", rows(0))
        session.push("A", rows(1))
        old = ms.open(tmp_path)
        for i in range(2, BATCHES):
            session.push("A", rows(i))
        for read in (lambda: old.results("q"), old.dead_letters):
            with pytest.raises(NotRetained, match=f"batch {old.batch} of .* is no longer retained") as raised:
                read()
            assert "refresh()" in str(raised.value) and "repair" not in str(raised.value)
        with pytest.raises(NotRetained, match=r"is not retained\n.*keeps batches"):
            old.at(old.batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RemovedWarning)
            newest = old.refresh()
            assert newest.results("q").equals(ms.read_results(tmp_path, "q"))
            assert newest.dead_letters().num_rows


def test_a_file_of_a_retained_batch_that_is_lost_is_named(tmp_path: Path) -> None:
    run(tmp_path, None)
    stored = ms.open(tmp_path)
    for path in (tmp_path / "dead_letters").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(MissingFile, match="the dead-letter file .* is missing") as raised:
        stored.dead_letters()
    assert not isinstance(raised.value, NotRetained) and "midstream repair" in str(raised.value)


def test_results_go_by_their_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    for clock in ("now", "steady"):
        monkeypatch.setattr(type(this_process()), clock, lambda _: now[0])
    session = opened(tmp_path, {"results": "1 hour"})
    session.start()
    for i in range(BATCHES):
        now[0] += 600.0
        session.push("A", rows(i))
    session.stop()
    removed = ms.open(tmp_path).manifest.account("q").removed
    assert removed is not None and 0 < removed["before"] <= 10 * (BATCHES - 6)


def test_results_of_replaced_queries_go_and_then_the_query(tmp_path: Path) -> None:
    session = opened(tmp_path, None)
    session.start()
    for i in range(8):
        session.push("A", rows(i))
    session.stop()
    session = opened(tmp_path, {"replaced": "6 batches"}, "SELECT k + 1 AS k FROM A [RANGE 3]", replace=True)
    session.start()
    session.push("A", rows(8))
    (old,) = (name for name in session.job.queries if "@" in name)
    for i in range(9, BATCHES):
        session.push("A", rows(i))
    assert list(session.job.queries) == ["q"]
    with pytest.raises(ms.QueryError, match="there is no query") as refused:
        session.job.results(old)
    assert refused.value.hint == "retention removes the results of replaced queries"
    session.stop()


def test_the_command_line_says_what_was_removed(tmp_path: Path) -> None:
    run(tmp_path, {"results": "6 batches", "dead_letters": "6 batches"})
    runner = CliRunner()
    shown = runner.invoke(app, ["results", str(tmp_path), "q"])
    assert shown.exit_code == 0 and "were removed by retention" in shown.stderr
    status = runner.invoke(app, ["status", str(tmp_path)]).stdout
    assert "retention: dead_letters 6 batches, results 6 batches" in status
    assert "results of query q that start before" in status and "dead letters, up to batch" in status


def test_limits_are_ages_sizes_or_batches() -> None:
    assert RetentionLimit.of("2 hours", "x").seconds == 7200
    assert RetentionLimit.of("1.5 MB", "x").bytes == 3 * 2**19
    assert RetentionLimit.of("7 batches", "x").batches == 7
    for wrong in ("", "7", "some days", "0 days", "1.5 batches", 7, None):
        with pytest.raises(ms.JobError, match="x cannot be"):
            RetentionLimit.of(wrong, "x")
    with pytest.raises(ms.JobError, match="no retention of 'state'"):
        Retention.of({"state": "1 day"})


def test_a_job_file_says_what_is_kept(tmp_path: Path) -> None:
    def job(retention: object) -> Any:
        stream = {"format": "parquet", "path": "a", "schema": "ts BIGINT"}
        return job_of({"job": {"checkpoint": "c", "retention": retention}, "streams": {"A": stream}}, tmp_path)

    assert job({"results": "30 days"}).options.retention == {"results": "30 days"}
    with pytest.raises(ms.JobError, match=r"job.retention.results cannot be 'for ever'"):
        job({"results": "for ever"})
