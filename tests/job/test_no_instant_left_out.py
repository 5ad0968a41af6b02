"""A text that cannot begin where the old one has answered up to runs beside that one until it can.

Then the old text has answered every instant before another one, and the new text answers every instant from there on.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.test_changed_queries import SCHEMA, later
from tests.job.test_changed_together import crash_in, earlier
from tests.profiles import always
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.commands import CancelMigration, ReplaceQuery, SwitchQuery
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import carry_out
from midstream.interface.cli.app import app
from midstream.job.ending import release

SUMS = "SELECT k, SUM(v) AS s FROM A [RANGE 40] GROUP BY k"
LONGER = "SELECT k, SUM(v) AS s FROM A [RANGE 60] GROUP BY k"
BOTH = "SELECT k, SUM(v) AS s FROM (SELECT A.k, A.v FROM A [RANGE 30], B [RANGE 30] WHERE A.k = B.k) GROUP BY k"
CHANGES = {
    "kept no more": ("SELECT k, MAX(v) AS m FROM B [NOW] GROUP BY k", "SELECT k, MIN(v) AS m FROM B [NOW] GROUP BY k"),
    "a longer window": (SUMS, LONGER),
    "a plain one": (SUMS, "SELECT v FROM A [RANGE 30]"),
    "changes": (SUMS, LONGER.replace("SELECT", "SELECT ISTREAM")),
    "another stream": (SUMS, "SELECT k, COUNT(*) AS n FROM B [RANGE 20] GROUP BY k"),
    "a stream less": (BOTH, LONGER),
    "a stream more": (SUMS, BOTH),
    "the newest rows": (SUMS, "SELECT k, v FROM A [PARTITION BY k ROWS 2]"),
    "every twenty ticks": ("SELECT k, SUM(v) AS s FROM A [TUMBLE 20] GROUP BY k", LONGER),
}


def opened(folder: Path, cql: str, **options: Any) -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=str(folder), on="local", slots=2)
    for name in "AB":
        session.stream(name, SCHEMA)
    session.query("q", cql, **options)
    return session.start()


def rows(first: int, last: int) -> pa.Table:
    return pa.Table.from_pylist([{"k": ts % 3, "v": ts * 7 % 11, "ts": ts} for ts in range(first, last)], SCHEMA)


def both(first: int, last: int, behind: int = 0) -> dict[str, pa.Table]:
    parts = {"A": rows(first, last), "B": rows(max(0, first - behind), max(0, last - behind))}
    return {name: part for name, part in parts.items() if part.num_rows}


def require_each_instant_once(session: CheckpointSession, old: str, new: str, inputs: dict[str, pa.Table]) -> int:
    """Says from which instant on the new text answers."""
    records = [done.record for done in session.queries["q"].history]
    begun = next(record for record in records if record.get("event") == "started")
    aside = next(record["old_results"] for record in records if "old_results" in record)
    at, whole = begun["at"], begun["complete_from"] or begun["at"]
    assert begun["gap"] == "" and session.job.manifest.released[aside] == at
    assert ms.snapshot_equal(earlier(session.results(aside), at), earlier(ms.reference(old, inputs), at))
    if "no end" not in begun["complete"]:
        assert ms.snapshot_equal(later(session.results("q"), whole), later(ms.reference(new, inputs), whole))
    return int(at)


@pytest.mark.parametrize("incomplete", ["emit", "withhold"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_text_goes_on_from_where_the_old_one_has_answered_up_to(name, incomplete, tmp_path):
    (old, new), behind = CHANGES[name], 13
    session = opened(tmp_path, old)
    for at in range(0, 60, 4):
        session.push(both(at, at + 4, behind))
    told = session.replace("q", new, incomplete=incomplete)
    assert not told["gap"] and (session.queries["q"].cql == old) == told["paced"]
    for at in range(60, 180, 4):
        session.push(both(at, at + 4, behind))
    session.finish()
    inputs = both(0, 180, behind)
    at = require_each_instant_once(session, old, new, inputs)
    if incomplete == "withhold" and told["complete_from"] is not None:
        assert at >= told["complete_from"]
    session.stop()


@pytest.mark.parametrize("seed", always(4, range(40)))
def test_a_text_that_waits_survives_whatever_happens_meanwhile(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    old, new = CHANGES[sorted(CHANGES)[seed % len(CHANGES)]]
    behind, declares = rng.choice([0, 5, 20]), rng.random() < 0.5
    every = rng.choice([None, 15])
    session = opened(tmp_path, old, emit_every=every)
    at, inputs = 0, both(0, 260, behind)
    while at < 260:
        step = rng.randint(1, 12)
        crossed, at = at < 60 <= at + step, at + step
        if crossed and declares:
            session.stop()
            session = opened(tmp_path, new, emit_every=every, replace=True)
        elif crossed:
            carry_out(session, ReplaceQuery("q", new))
        match rng.choice(["", "", "rescale", "rebalance", "restart", "crash", "idle"]) if at > 60 + step else "":
            case "rescale" | "rebalance" as how:
                slots = session._job.state.slots
                dealt = [rng.randrange(slots) for _ in range(256)]
                with suppress(ms.MigrationError, ms.JobError):  # groups that move come to rest first
                    if how == "rescale":
                        session.rescale(rng.randint(1, 4))
                    else:
                        session.rebalance(dealt, protocol=rng.choice(["auto", "mslb", "split_time", "ptlb"]))
            case "restart" | "crash" as how:
                if how == "crash":
                    crash_in(session, both(at - step, min(at, 260), behind), monkeypatch)
                session.stop()
                session = opened(tmp_path, new if declares else old, emit_every=every)
            case "idle":
                release(session._job)
        session.push(both(at - step, min(at, 260), behind))
    session.finish()
    require_each_instant_once(session, old, new, inputs)
    session.stop()


def test_nobody_has_to_wait_for_a_text_that_answers_no_more(tmp_path):
    session = opened(tmp_path, BOTH)
    for at in range(0, 40, 4):
        session.push(both(at, at + 4))
    for at in range(40, 80, 4):  # B is silent, so the old text answers no more
        session.push("A", rows(at, at + 4))
        if at == 60:
            assert carry_out(session, ReplaceQuery("q", LONGER))["paced"]
    turns = [release(session._job) for _ in range(4)]
    assert not turns[-1]  # nothing waits for a batch of our own
    assert session.queries["q"].cql == BOTH
    carry_out(session, SwitchQuery("q"))
    session.push("A", rows(80, 84))
    begun = session.queries["q"].history[-1].record
    assert session.queries["q"].cql == LONGER and "neither text answers" in begun["gap"]
    for at in range(84, 140, 4):
        session.push("A", rows(at, at + 4))
    session.finish()
    since = begun["complete_from"]
    assert ms.snapshot_equal(
        later(session.results("q"), since), later(ms.reference(LONGER, {"A": rows(0, 140)}), since)
    )
    session.stop()


def test_a_text_that_waits_can_be_cancelled_and_ends_with_the_streams(tmp_path):
    for name, ends in (("cancelled", False), ("ended", True)):
        session = opened(tmp_path / name, SUMS)
        for at in range(0, 40, 4):
            session.push(both(at, at + 4))
        session.replace("q", LONGER, incomplete="withhold")
        session.push(both(40, 44))
        shown = CliRunner().invoke(app, ["status", str(tmp_path / name)]).stdout
        assert "another text runs beside it until that can go on from where this one ends" in shown
        if not ends:
            carry_out(session, CancelMigration("q"))
            session.push(both(44, 48))
        session.finish()
        table = rows(0, 44 if ends else 48)
        assert [done.status for done in session.queries["q"].history] == [name]
        assert not any("~" in known for known in session.job.queries)
        assert ms.snapshot_equal(session.results("q"), ms.reference(SUMS, {"A": table}))
        session.stop()


def test_rows_that_only_pass_through_a_text_are_read_at_once_however_many_they_are(tmp_path, monkeypatch):
    """Nobody remembers them: a text that is filled beside the old one could not hand them on."""
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 4)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    new = "SELECT v FROM A [RANGE 30] WHERE v > 2"
    session = opened(tmp_path, SUMS)
    for at in range(0, 60, 4):
        session.push("A", rows(at, at + 4))
    told = session.replace("q", new)
    assert (told["paced"], told["gap"], told["complete"]) == (False, "", "all results are complete")
    for at in range(60, 100, 4):
        session.push("A", rows(at, at + 4))
    session.finish()
    require_each_instant_once(session, SUMS, new, {"A": rows(0, 100)})
    session.stop()


def test_a_text_that_is_declared_waits_for_a_migration_that_was_asked_for_before_the_first_batch(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, BOTH) as session:
        for i in range(3):
            session.push(both(i * 10, i * 10 + 10))
    with opened(tmp_path, BOTH.replace("30", "15"), replace=True) as session:
        session.queries["q"].migrate("(B A)", strategy="genmig")
        for i in range(3, 20):
            session.push(both(i * 10, i * 10 + 10))
        assert session.queries["q"].cql == BOTH.replace("30", "15")
        ended = [change.status for change in session.history]
        assert ended[0] == "done" and "started" in ended[1:]
        session.finish()
        expected = ms.reference(BOTH.replace("30", "15"), both(0, 200))
        assert ms.snapshot_equal(later(session.results("q"), 120), later(expected, 120))
