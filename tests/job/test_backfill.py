"""Windows that reach further back than anybody keeps are filled from sources, which are read again.

From the instant on that the history promises, results are the oracle's of the new text over all rows since the
beginning. What cannot be read again is said before; what is lost meanwhile ends the change, and the old text goes on.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.profiles import always
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.commands import AddQuery, CancelMigration, ForecastOf, ReplaceQuery
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import carry_out
from midstream.cluster.sinks import connect
from midstream.connectors.source import Position, Positions, Source
from midstream.connectors.sources.sqlite import SqliteRows
from midstream.interface.answers import answer_text, forecast_text
from midstream.interface.cli.app import app
from midstream.job.commands.forecast import forecast
from midstream.lab.fuzz.changed_jobs import ReadJob, clipped, wrong_after_change
from midstream.lab.fuzz.changes import draw_change
from midstream.lab.simulated_cluster.cluster import OnDemandBackend, SimulatedSource

SHORT = "SELECT k, COUNT(*) AS n FROM A [RANGE 10] GROUP BY k"
LONG = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM A [RANGE 60] GROUP BY k"
SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"
EACH = 5
"""How many rows a file has."""


@pytest.mark.parametrize("seed", always(3, range(80)))
def test_a_query_that_is_filled_from_files_keeps_what_it_promises(seed):
    change = draw_change(seed)
    wrong = wrong_after_change(change, Random(f"job {seed}"), Counter(), ReadJob)
    assert wrong is None, f"{wrong}\n{change}"


def rows_of(first: int, last: int) -> pa.Table:
    columns = {"k": [ts % 3 for ts in range(first, last)], **{name: range(first, last) for name in ("v", "ts")}}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


@dataclass
class FolderJob:
    """A job over a folder of files, one of which is a batch."""

    home: Path
    cql: str = SHORT
    options: dict[str, Any] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        (self.home / "a").mkdir()
        self.open()

    def open(self) -> None:
        self.session = CheckpointSession(None, checkpoint=str(self.home / "c"), on="local", slots=2)
        each = {"maxFilesPerTrigger": "1"}
        self.session.open_stream("A", "parquet", path=str(self.home / "a"), schema=SCHEMA, options=each)
        self.session.query("q", self.cql, **self.options)

    def file(self, first: int) -> Path:
        return self.home / "a" / f"{first:04d}.parquet"

    def write(self, last: int) -> None:
        for first in range(self.written, last, EACH):
            pq.write_table(rows_of(first, first + EACH), self.file(first))
        self.written = last
        self.session.process_available()

    def replace(self, cql: str = LONG, **options: Any) -> dict[str, Any]:
        told: dict[str, Any] = carry_out(self.session, ReplaceQuery("q", cql, **{"backfill_rate": 10, **options}))
        return told

    def restart(self) -> None:
        self.session.stop()
        self.open()

    @property
    def text(self) -> str:
        return self.session.queries["q"].cql

    def ended(self) -> tuple[pa.Table, list[Any]]:
        self.session.finish()
        found = self.session.results("q"), [record.record for record in self.session.queries["q"].history]
        self.session.stop()
        return found

    def require_complete(self, cql: str = LONG, since: int | None = None) -> int:
        """Compares what is promised to be complete with the oracle; gives from when on it is."""
        got, history = self.ended()
        whole: int = history[-1]["complete_from"] if since is None else since
        expected = ms.reference(cql, {"A": rows_of(0, self.written)})
        assert ms.snapshot_equal(clipped(got, whole), clipped(expected, whole)) and got.num_rows
        return whole


def test_a_longer_window_is_filled_from_the_folder_while_the_old_text_answers(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    for old in range(0, 35, EACH):  # nothing of these is valid any more
        job.file(old).unlink()
    (told,) = job.replace()["windows"]
    assert (told["how"], told["of"], told["rows"]) == ("backfilled", "A", 65) and told["batches"] == 7
    texts = []
    for last in range(105, 160, EACH):
        job.write(last)
        texts.append(job.text)
        if last == 120:
            job.restart()
    short = texts.count(SHORT)
    assert 3 < short < 9 and texts == [SHORT] * short + [LONG] * (11 - short)
    old = job.session.queries["q"].history[0].record["old_results"]
    before, at = job.session.results(old), job.session.queries["q"].history[-1].record["at"]
    assert ms.snapshot_equal(before, clipped(ms.reference(SHORT, {"A": rows_of(0, 160)}), 0, at))
    assert job.require_complete() == at < 150


def test_no_more_rows_are_read_with_a_batch_than_the_rate_says(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    job.replace(backfill_rate=2)
    begun = job.session.job.manifest.batch_id
    for last in range(105, 130, EACH):
        job.write(last)
        manifest = job.session.job.manifest
        held = [e for slots in manifest.segments["q~verify"].values() for entries in slots.values() for e in entries]
        batches = manifest.batch_id - begun
        assert last - 100 < sum(entry.rows for entry in held) <= last - 100 + 2 * batches
    job.session.stop()
    assert job.text == SHORT


def test_a_text_that_is_being_filled_can_be_cancelled_and_leaves_nothing(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    job.replace()
    job.write(110)
    carry_out(job.session, CancelMigration("q"))
    job.write(150)
    got, history = job.ended()
    assert [one["status"] for one in history] == ["cancelled"] and ms.snapshot_equal(got, expected(SHORT, 150))
    assert set(ms.open(str(tmp_path / "c")).manifest.segments) <= {"q"}


def expected(cql: str, last: int) -> pa.Table:
    return ms.reference(cql, {"A": rows_of(0, last)})


@pytest.mark.parametrize("withhold", [False, True])
def test_a_new_query_is_filled_once_it_has_begun(withhold, tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    how = "withhold" if withhold else "emit"
    new = job.session.query("new", LONG, backfill_rate=20, incomplete=how)
    job.write(150)
    job.session.finish()
    record, got = new.history[-1].record, job.session.results("new")
    job.session.stop()
    whole = record["complete_from"]
    assert record["complete"] == "all results are complete" and whole < 99 + 60 - 20
    assert ms.snapshot_equal(clipped(got, whole), clipped(expected(LONG, 150), whole)) and got.num_rows
    assert not withhold or min(got["valid_from"].to_pylist()) >= whole


def test_a_query_that_is_added_by_request_is_filled_from_the_source(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    carry_out(job.session, AddQuery("more", LONG, backfill_rate=10))
    job.write(105)
    job.restart()
    assert job.session.restore_added() == ["more"]
    job.write(180)
    job.session.finish()
    since = job.session.queries["more"].history[-1].record["complete_from"]
    expected = ms.reference(LONG, {"A": rows_of(0, 180)})
    assert since < 140 and ms.snapshot_equal(clipped(job.session.results("more"), since), clipped(expected, since))
    job.session.stop()


def test_a_job_file_fills_a_changed_text_from_the_source(tmp_path):
    def ran(cql: str, last: int, *options: str) -> str:
        for first in range(last - 50, last, EACH):
            pq.write_table(rows_of(first, first + EACH), tmp_path / "a" / f"{first:04d}.parquet")
        (tmp_path / "job.toml").write_text(
            f'[job]\ncheckpoint = "c"\non = "local"\n[streams.A]\nformat = "parquet"\npath = "a"\nschema = "{SCHEMA}"\n'
            f'options = {{ maxFilesPerTrigger = 1 }}\n[queries.q]\ncql = "{cql}"\nbackfill_rate = 20\n'
        )
        done = CliRunner().invoke(app, ["run", str(tmp_path / "job.toml"), "--available", *options])
        assert done.exit_code == 0, done.output
        return done.output

    (tmp_path / "a").mkdir()
    ran(SHORT, 50)
    ran(SHORT, 100)
    assert "its source is read once the job runs, 20 rows a batch" in ran(LONG, 100, "--replace", "--dry-run")
    ran(LONG, 150, "--replace")
    job = ms.open(str(tmp_path / "c"))
    got, whole = job.results("q"), job.queries["q"].history[-1].record["complete_from"]
    until = job.manifest.released["q"]
    assert job.queries["q"].cql == LONG and whole < 130 < until
    assert ms.snapshot_equal(clipped(got, whole, until), clipped(expected(LONG, 150), whole, until))


def test_rows_that_did_not_count_do_not_when_they_are_read_again(tmp_path):
    job = FolderJob(tmp_path)
    job.write(50)
    bad = pa.Table.from_pylist([{"k": 0, "v": 1, "ts": None}, {"k": 0, "v": 1000, "ts": 40}], rows_of(0, 1).schema)
    pq.write_table(bad, tmp_path / "a" / "0049.parquet")
    job.session.process_available()
    job.write(100)
    job.replace()
    job.write(150)
    got, history = job.ended()
    whole = history[-1]["complete_from"]
    assert ms.snapshot_equal(clipped(got, whole), clipped(expected(LONG, 150), whole)) and got.num_rows


def test_a_stream_of_a_source_is_read_again_from_its_first_position(tmp_path):
    def add(first: int, last: int) -> None:
        with closing(sqlite3.connect(tmp_path / "in.db")) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS a (k BIGINT, v BIGINT, ts BIGINT)")
            connection.executemany("INSERT INTO a VALUES (:k, :v, :ts)", rows_of(first, last).to_pylist())
            connection.commit()

    add(0, 100)
    session = CheckpointSession(None, checkpoint=str(tmp_path / "c"), on="local", slots=2)
    session.open_stream("A", SqliteRows(str(tmp_path / "in.db"), "a", SCHEMA))
    session.query("q", SHORT)
    session.process_available()
    (told,) = session.replace("q", LONG, backfill_rate=40)["windows"]
    assert (told["how"], told["rows"], told["batches"]) == ("backfilled", 100, 3)
    for first in range(100, 150, 5):
        add(first, first + 5)
        session.process_available()
    with closing(sqlite3.connect(tmp_path / "in.db")) as connection:
        connection.execute("DELETE FROM a WHERE ts < 10")
        connection.commit()
    (gone,) = session.replace("q", SHORT.replace("10", "99"), backfill_rate=40, dry_run=True)["windows"]
    session.finish()
    got, whole = session.results("q"), session.queries["q"].history[-1].record["complete_from"]
    session.stop()
    assert gone["why"].endswith("the source of stream A has 140 of 150 rows that were read")
    assert ms.snapshot_equal(clipped(got, whole), clipped(expected(LONG, 150), whole)) and whole < 130


class Letters(Source):
    """Rows in two partitions, of which nobody can count those that wait."""

    name = "letters"

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, int]]] = {"even": [], "odd": []}

    def schema(self) -> pa.Schema:
        return rows_of(0, 0).schema

    def partitions(self) -> Positions:
        return dict.fromkeys(self.rows, 0)

    def end(self, partition: str, start: Position, limit: int | None = None) -> Position:
        last = len(self.rows[partition])
        return last if limit is None else min(last, int(start) + limit)

    def read(self, partition: str, start: Position, end: Position) -> pa.Table:
        some = [row for row in self.rows[partition][int(start) : int(end)] if row]
        return pa.Table.from_pylist(some, self.schema())

    def add(self, first: int, last: int) -> None:
        for row in rows_of(first, last).to_pylist():
            self.rows["odd" if row["ts"] % 2 else "even"].append(row)


@pytest.mark.parametrize("lost", [False, True])
def test_a_source_that_gives_fewer_rows_than_were_read_ends_the_change(lost, tmp_path):
    letters = Letters()
    session = CheckpointSession(None, checkpoint=str(tmp_path / "c"), on="local", slots=2)
    session.open_stream("A", letters)
    session.query("q", SHORT)
    letters.add(0, 100)
    session.process_available()
    assert session.replace("q", LONG, backfill_rate=40)["paced"]
    if lost:
        letters.rows["odd"][40] = {}
    for first in range(100, 150, 10):
        letters.add(first, first + 10)
        session.process_available()
    session.finish()
    text, got, record = session.queries["q"].cql, session.results("q"), session.queries["q"].history[-1].record
    session.stop()
    if lost:
        assert text == SHORT and ms.snapshot_equal(got, expected(SHORT, 150))
        assert record["why"].startswith("the source of stream A has 99 of 100 rows that were read")
    else:
        whole = record["complete_from"]
        assert text == LONG and ms.snapshot_equal(clipped(got, whole), clipped(expected(LONG, 150), whole))


def test_a_query_of_changes_that_answers_nothing_yet_keeps_what_it_was_filled_with(tmp_path):
    sources = {name: SimulatedSource(rows_of(0, 1).schema, None) for name in "AB"}
    session = CheckpointSession(None, checkpoint=str(tmp_path), on=OnDemandBackend, slots=1)
    for name, files in sources.items():
        session.stream(name, files)
    session.query("q", "SELECT B.v FROM A [RANGE 3], B [RANGE 3] WHERE A.k = B.k")
    session.start()
    new = "SELECT ISTREAM * FROM (SELECT k, v FROM B [RANGE 10] EXCEPT ALL SELECT k, v FROM A [RANGE 9]) AS x"
    for ts in range(20):
        if ts == 10:
            assert session.replace("q", new, backfill_rate=9)["complete"] == "all results are complete"
        sources["B"].files[f"{ts}"] = rows_of(ts, ts + 1)
        session._backend.take(session._job)  # type: ignore[attr-defined]
    session.finish()
    text, got = session.queries["q"].cql, session.results("q")
    session.stop()
    rows = {"A": rows_of(0, 0), "B": rows_of(0, 20)}
    assert text == new and ms.snapshot_equal(got, ms.reference(new, rows))


def test_a_file_that_is_gone_is_named_before_anything_happens(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    job.file(50).unlink()
    told = job.session.replace("q", LONG, backfill_rate=10, dry_run=True)
    assert "the file 0050.parquet of stream A, which was read, is gone" in told["windows"][0]["why"]
    assert told["complete_from"] == 99 + 61 and not told["paced"]
    job.write(110)
    assert job.text == SHORT
    job.require_complete(SHORT, 0)


def test_the_answer_to_a_replacement_says_why_windows_start_empty_as_its_forecast_does(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    job.file(50).unlink()
    command = ReplaceQuery("q", LONG, backfill_rate=10)
    expected = forecast_text(command, carry_out(job.session, ForecastOf(command))).split("\n")
    answer = answer_text(command, carry_out(job.session, command)).split("\n")
    job.session.stop()
    assert answer[1:] == expected[1:] and "0050.parquet of stream A, which was read, is gone" in answer[1]


def test_the_answer_to_a_replacement_that_waits_says_what_its_windows_start_with(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    answer = answer_text(ReplaceQuery("q", LONG), job.replace()).split("\n")
    job.session.stop()
    assert answer[0].startswith("query q is replaced once") and "is backfilled from the source of stream A" in answer[1]


def test_a_file_that_goes_while_windows_are_filled_ends_the_change_and_the_old_text_goes_on(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    job.replace()
    job.write(105)
    job.file(70).unlink()
    job.write(170)
    got, history = job.ended()
    assert job.session.queries["q"].cql == SHORT and ms.snapshot_equal(got, expected(SHORT, 170))
    assert history[-1]["status"] == "cancelled" and "0070.parquet" in history[-1]["why"]


def test_without_a_source_a_window_beyond_what_is_retained_says_when_it_is_complete(tmp_path):
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    session.stream("A", rows_of(0, 1).schema)
    session.query("kept", "SELECT KEEP * FROM A [RANGE 30]")
    session.query("q", SHORT)
    session.start()
    session.push("A", rows_of(0, 100))
    told = session.replace("q", LONG, backfill_rate=10)
    for first in range(100, 200, 20):
        session.push("A", rows_of(first, first + 20))
    session.finish()
    got = session.results("q")
    session.stop()
    assert told["windows"][0]["why"].endswith("; stream A has no source that can be read again")
    assert "keeps rows for a shorter time" in told["windows"][0]["why"] and told["complete_from"] == 99 + 61
    assert ms.snapshot_equal(clipped(got, 160), clipped(expected(LONG, 200), 160))


def test_a_text_whose_columns_a_sink_cannot_take_is_refused_before_it_begins(tmp_path):
    job = FolderJob(tmp_path)
    out = connect("sqlite", path=str(tmp_path / "out.db"), table="t")
    job.session.sink("q", out)
    job.write(50)
    with pytest.raises(ms.JobError, match="sink sqlite table t has column n of query q as int64"):
        job.replace("SELECT k, SUM(v) / 2.5 AS n FROM A [RANGE 60] GROUP BY k")
    job.replace("SELECT k, COUNT(*) AS n, SUM(v) AS more FROM A [RANGE 60] GROUP BY k")
    job.write(100)
    job.session.finish()
    job.session.stop()
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        found = connection.execute("SELECT more IS NULL, COUNT(*) FROM t GROUP BY 1 ORDER BY 1").fetchall()
    assert [old for old, _ in found] == [0, 1]


def test_two_changes_at_once_are_refused_for_a_query_and_independent_for_two(tmp_path):
    job = FolderJob(tmp_path)
    job.session.query("other", SHORT.replace("10", "20"))
    job.write(100)
    job.replace()
    with pytest.raises(ms.JobError, match="query q is being replaced already"):
        job.replace(LONG.replace("60", "70"))
    longer = LONG.replace("60", "80")
    carry_out(job.session, ReplaceQuery("other", longer, backfill_rate=30))
    job.write(105)
    with pytest.raises(ms.JobError, match="query q is being replaced already"):
        job.replace(LONG.replace("60", "70"))
    job.write(170)
    job.session.finish()
    other, whole = job.session.results("other"), job.session.queries["other"].history[-1].record["complete_from"]
    assert ms.snapshot_equal(clipped(other, whole), clipped(expected(longer, 170), whole)) and whole < 160
    assert job.require_complete() < 160


def test_a_text_that_a_job_is_started_with_ends_the_change_under_way(tmp_path):
    job = FolderJob(tmp_path)
    job.write(100)
    job.replace()
    job.write(105)
    job.cql, job.options = LONG.replace("60", "30"), {"replace": True, "backfill_rate": 40}
    job.restart()
    job.write(160)
    assert job.text == job.cql and job.require_complete(job.cql) < 130


def test_a_query_in_quarantine_is_filled_with_what_it_did_not_see(tmp_path):
    failing = (
        "SELECT k, SUM(CAST(CASE WHEN v = 60 THEN 'no number' ELSE '1' END AS BIGINT)) AS n FROM A [RANGE 5] GROUP BY k"
    )
    job = FolderJob(tmp_path, failing)
    job.write(100)
    assert ms.open(str(tmp_path / "c")).queries["q"].quarantine is not None
    assert job.replace()["windows"][0]["how"] == "backfilled"
    carry_out(job.session, CancelMigration("q"))
    job.replace()
    job.write(150)
    assert job.text == LONG and job.require_complete() < 150


def test_what_a_new_query_would_read_is_told_before_it_is_added(tmp_path):
    job = FolderJob(tmp_path)
    job.write(80)
    begins = forecast(job.session._job, AddQuery("long", LONG, backfill_rate=10), job.session.catalog)["begins"]
    ((rows, bytes_read, batches),) = [(w["rows"], w["bytes"], w["batches"]) for w in begins["windows"]]
    assert begins["windows"][0]["how"] == "backfilled" and 60 <= rows <= 80 and bytes_read > 0 and batches >= 6
    assert begins["complete"] == "all results are complete"
    command = AddQuery("few", SHORT.replace("n FROM", "c FROM"))
    told = forecast(job.session._job, command, job.session.catalog)
    assert [window["how"] for window in told["begins"]["windows"]] == ["kept"]
    assert "is kept from query q" in forecast_text(command, told)
    starts_empty = forecast(job.session._job, AddQuery("long", LONG), job.session.catalog)["begins"]
    assert "with a backfill_rate its source is read" in starts_empty["windows"][0]["why"]
    assert set(job.session.queries) == {"q"}
    job.session.stop()
