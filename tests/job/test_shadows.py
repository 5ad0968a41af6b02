"""Another text runs beside a query, and is compared with it where both are meant to agree, before it counts."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from tests.job.test_changed_queries import SAME as WITH_MOST
from tests.job.test_changed_queries import WITH_LOW, declared
from tests.job.test_replacing import clipped
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.commands import CancelMigration, ForecastOf, ReplaceQuery, SwitchQuery
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import carry_out
from midstream.interface.answers import answer_text, forecast_text
from midstream.interface.cli.app import app

FEWER = "SELECT k, COUNT(*) AS n, MIN(v) AS low FROM A [RANGE 12] WHERE k < 2 OR v < 28 GROUP BY k"
OLD = WITH_LOW.replace("30", "12")
MOST = WITH_MOST.replace("30", "12")


def pushed(session: CheckpointSession, first: int, last: int) -> None:
    """Pushes the rows of a stretch of time, some instants at a time."""
    for start in range(first, last, 4):
        session.push("A", [{"k": ts % 3, "v": ts, "ts": ts} for ts in range(start, min(start + 4, last))])


def answers(cql: str) -> pa.Table:
    return ms.reference(cql, {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(45)])})


@pytest.mark.parametrize(
    ("how", "switches"),
    [
        ({"where": "k < 2"}, True),
        ({"where": "n < 9 AND k BETWEEN 0 AND 1", "columns": "n"}, True),
        ({"where": "low >= 0"}, False),
        ({"columns": "n"}, False),
        ({}, False),
    ],
)
def test_texts_are_compared_where_they_are_meant_to_agree(how, switches, tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    session.replace("q", FEWER, verify=20, **how)
    pushed(session, 15, 27)
    session.stop()
    session = declared(tmp_path, OLD)
    pushed(session, 27, 45)
    query, record = session.queries["q"], session.queries["q"].history[-1].record
    session.finish()
    got = session.results("q")
    session.stop()
    start = record.get("complete_from") or 0
    assert (query.cql == FEWER) == switches
    if not switches:
        assert record["verified"]["instant"] == ms.snapshot_equal(answers(OLD), answers(FEWER)).instant == 29
    assert ms.snapshot_equal(clipped(got, start), clipped(answers(FEWER if switches else OLD), start))


@pytest.mark.parametrize(("text", "switch"), [(MOST, True), (FEWER, True), (FEWER, False)])
def test_a_text_that_waits_changes_by_hand_alone_whatever_was_found(text, switch, tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    with pytest.raises(ms.MigrationError, match="not compared with another text"):
        session.queries["q"].switch()
    carry_out(session, ReplaceQuery("q", text, verify=5, columns="k, n", then="wait"))
    with pytest.raises(ms.MigrationError, match="no complete results yet"):
        carry_out(session, SwitchQuery("q"))
    pushed(session, 15, 35)
    session.stop()
    session = declared(tmp_path, OLD)
    pushed(session, 35, 38)
    record = session.queries["q"].history[-1].record
    assert session.queries["q"].cql == OLD and record["status"] == "verifying"
    assert record["verified"]["instant"] == (29 if text == FEWER else None)
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).stdout
    assert ("snapshots differ first at 29" if text == FEWER else "the same so far") in shown
    if switch:
        assert carry_out(session, SwitchQuery("q"))["verified"] == record["verified"]
    else:
        carry_out(session, CancelMigration("q"))
    pushed(session, 38, 45)
    query, records = session.queries["q"], [done.record for done in session.queries["q"].history]
    session.finish()
    got = session.results("q")
    session.stop()
    assert query.cql == (text if switch else OLD)
    assert [done["verified"] for done in records if "verified" in done] == [record["verified"]]
    start = records[-1].get("complete_from") or 0
    assert ms.snapshot_equal(clipped(got, start), clipped(answers(query.cql), start))


def test_a_condition_that_fails_on_a_result_ends_the_comparison_and_not_the_job(tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    session.replace("q", MOST, verify=5, where="CAST('x' || CAST(n AS STRING) AS BIGINT) > 0")
    pushed(session, 15, 25)
    record = session.queries["q"].history[-1].record
    assert session.queries["q"].cql == OLD and record["status"] == "differs"
    assert "cannot be compared where" in record["verified"]["difference"]
    session.stop()


def test_a_comparison_that_does_not_fit_both_texts_is_refused_before_anything_happens(tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 5)
    for how, why in (
        ({"verify": 5, "columns": "k, low"}, "columns to compare, of the same types: low"),
        ({"verify": 5, "where": "low > 3"}, "unknown column low"),
        ({"verify": 5, "where": "n > 1 GROUP BY n"}, "not one condition"),
        ({"verify": 5, "where": "k >"}, "no condition on what both texts give"),
        ({"where": "k > 1"}, "where is about texts that are compared"),
        ({"columns": "k"}, "columns is about texts that are compared"),
        ({"then": "wait"}, "then is about texts that are compared"),
        ({"verify": 5, "then": "later"}, "unknown then"),
        ({"verify": 0}, "0 ticks"),
        ({"verify": "1 hour"}, "1 hour"),
    ):
        for dry_run in (True, False):
            with pytest.raises(ms.MidstreamError, match=why):
                session.replace("q", MOST, dry_run=dry_run, **how)
    pushed(session, 5, 7)
    assert not session.queries["q"].history and session.queries["q"].cql == OLD
    session.stop()


@pytest.mark.parametrize(
    "other",
    [
        "SELECT k, SUM(v) AS n, MAX(v) AS low FROM A [RANGE 9] WHERE v > 2 GROUP BY k",
        "SELECT x.k, COUNT(*) AS n, MIN(x.v) AS low FROM A [RANGE 12] x, A [RANGE 5] y WHERE x.k = y.k GROUP BY x.k",
    ],
)
def test_a_text_that_follows_a_cancelled_one_before_the_next_batch_begins_anew(other, tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    session.replace("q", FEWER, verify=20)
    pushed(session, 15, 19)
    session.queries["q"].cancel_migration()
    session.replace("q", other, verify=5, where="k < 0")
    pushed(session, 19, 45)
    query, record = session.queries["q"], session.queries["q"].history[-1].record
    session.finish()
    got = session.results("q")
    session.stop()
    assert query.cql == other
    assert ms.snapshot_equal(clipped(got, record["complete_from"]), clipped(answers(other), record["complete_from"]))


def test_a_migration_of_a_query_that_has_not_begun_is_not_verified(tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 5)
    session.query("late", "SELECT x.k, y.v FROM A [RANGE 8] x, A [RANGE 6] y WHERE x.k = y.k")
    with pytest.raises(ms.MigrationError, match="has not begun"):
        session.queries["late"].migrate(plan="(y x)", verify=5)
    pushed(session, 5, 9)
    session.queries["late"].migrate(plan="(y x)", verify=5)
    pushed(session, 9, 29)
    assert session.queries["late"].plan.text == "(y x)"
    session.stop()


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_change_that_waited_and_compared_nothing_is_told_of_at_times_as_at_numbers(cancelled, tmp_path):
    def pushed(first: int, last: int) -> None:
        for second in range(first, last):
            session.push("A", [{"k": second % 3, "ts": dt.datetime(2026, 1, 1) + dt.timedelta(seconds=second)}])

    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local")
    session.stream("A", pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))]))
    session.query("q", "SELECT k, COUNT(*) AS n FROM A [RANGE 9 SECONDS] GROUP BY k")
    session.start()
    pushed(0, 12)
    assert session.replace("q", "SELECT k, COUNT(*) AS n FROM A [RANGE 20 SECONDS] GROUP BY k")["paced"]
    pushed(12, 13)
    if cancelled:
        session.queries["q"].cancel_migration()
    pushed(13, 20)
    shown = CliRunner().invoke(app, ["status", str(tmp_path)])
    session.stop()
    assert shown.exit_code == 0 and "verified from" not in shown.stdout
    assert ("another text: cancelled" if cancelled else "another text: done") in shown.stdout


def test_a_text_that_gives_something_else_ends_with_the_difference_in_the_log_and_in_the_status(tmp_path, caplog):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    session.replace("q", FEWER, verify=20)
    pushed(session, 15, 45)
    record = session.queries["q"].history[-1].record
    assert record["status"] == "differs" and "event" not in record and record["start_batch"] < record["end_batch"]
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).stdout
    session.stop()
    assert "only in the new plan's results" in shown and "snapshots differ first at 29" in shown
    assert "query q keeps its text: snapshots differ first at 29" in caplog.text
    assert "query q began to run by another text, too, with batch" in caplog.text


def test_a_text_that_still_waits_when_the_streams_end_is_told_of_as_ended(tmp_path, caplog):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    session.replace("q", MOST, verify=20)
    pushed(session, 15, 20)
    session.finish()
    record = session.queries["q"].history[-1].record
    session.stop()
    assert record["status"] == "ended" and "complete" not in record
    assert "query q keeps its text: the streams have ended" in caplog.text


def test_a_query_in_quarantine_has_nothing_that_another_text_could_be_compared_with(tmp_path):
    session = declared(tmp_path, "SELECT k, 100 // (v - 7) AS x FROM A [RANGE 12]")
    pushed(session, 0, 15)
    for dry_run in (True, False):
        with pytest.raises(ms.JobError, match="cannot be verified: it is in quarantine"):
            session.replace("q", "SELECT k, 100 // (v + 7) AS x FROM A [RANGE 12]", verify=5, dry_run=dry_run)
    session.stop()


def test_what_waits_is_told_by_its_first_instant_and_by_what_giving_it_up_would_do(tmp_path):
    session = declared(tmp_path, OLD)
    pushed(session, 0, 15)
    longer = OLD.replace("12", "40")
    for dry_run in (True, False):
        assert session.replace("q", longer, incomplete="withhold", dry_run=dry_run)["earliest"] == ", not before 55"
    pushed(session, 15, 17)
    asked = CancelMigration("q")
    told = carry_out(session, ForecastOf(asked))
    assert told["text"] == longer and forecast_text(asked, told) == f"query q would stay with its text, not {longer}"
    assert answer_text(asked, carry_out(session, asked)) == "query q stays with its text"
    session.stop()
