"""Texts that change together are filled together: the old ones answer until the last is full, then all new ones do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.job.test_chain import Crash
from tests.job.test_changed_queries import later, streams
from tests.profiles import always

import midstream as ms
from midstream.checkpoint import local_files
from midstream.checkpoint.commands import AddQuery, CancelMigration, ReplaceQuery, Rescale
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import carry_out
from midstream.language.over_queries import with_queries

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
TOTALS = "SELECT k, SUM(v) AS total, MAX(v) AS most FROM A [RANGE 40] GROUP BY k"
OTHER_TOTALS = "SELECT v AS k, SUM(k) AS total, MAX(k) AS most FROM A [RANGE 30] GROUP BY v"
HIGH = "SELECT max(total) AS high FROM totals AS t"
PAIRS = "SELECT A.v, B.v AS w FROM A [RANGE 30], B [RANGE 40] WHERE A.k = B.k"
OLD = {"totals": TOTALS, "high": HIGH, "pairs": PAIRS, "now": "SELECT v FROM B [NOW] WHERE v > 3"}
NEW = {
    "totals": "SELECT k, SUM(v + 1) AS total FROM A [RANGE 25] WHERE v > 1 GROUP BY k",
    "high": "SELECT min(total) AS low, COUNT(*) AS n FROM totals AS t",
    "pairs": "SELECT A.v + B.v AS w FROM A [RANGE 30], B [RANGE 20] WHERE A.k = B.k AND A.v < 9",
    "now": "SELECT v + 1 AS v FROM B [NOW] WHERE v > 2",
}


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 12)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)


def opened(folder: Path, texts: dict[str, str], replace: bool = False, rate: int | None = None) -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=str(folder), on="local", slots=2)
    for name in "AB":
        session.stream(name, SCHEMA, lateness=0)
    for name, cql in texts.items():
        session.query(name, cql, replace=replace, backfill_rate=rate)
    return session.start()


def cut(tables: dict[str, pa.Table], low: int, high: int) -> dict[str, pa.Table]:
    def part(table: pa.Table) -> pa.Table:
        return table.filter(pc.and_(pc.greater_equal(table["ts"], low), pc.less(table["ts"], high)))

    return {name: some for name in "AB" if (some := part(tables[name])).num_rows}


def crash_in(session: CheckpointSession, rows: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushes rows into a session that dies as it commits their batch."""

    def reach(name: str) -> None:
        if name == "manifest.before_write":
            raise Crash

    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(local_files, "reach", reach)
        session.push(rows)


def alone(texts: dict[str, str], name: str) -> str:
    return with_queries(texts[name], {other: cql for other, cql in texts.items() if other != name})


def earlier(table: pa.Table, end: int) -> pa.Table:
    begun = table.filter(pc.less(table["valid_from"], end))
    ends = pc.min_element_wise(begun["valid_to"], end)
    return begun.set_column(begun.column_names.index("valid_to"), "valid_to", ends)


def require_new(session: CheckpointSession, texts: dict[str, str], tables: dict[str, pa.Table]) -> None:
    """All have changed with one batch, and the old texts have answered until then."""
    records = {name: [r.record for r in session.queries[name].history] for name in texts}
    begun = {name: next(r for r in records[name] if r.get("event") == "started") for name in texts}
    assert len({record["start_batch"] for record in begun.values()}) == 1
    for name in texts:
        at, expected = begun[name]["complete_from"], ms.reference(alone(texts, name), tables)
        assert begun[name]["complete"] == "all results are complete"
        assert ms.snapshot_equal(session.results(name), later(expected, at)), name
        before = session.results(next(r for r in records[name] if "old_results" in r)["old_results"])
        end = min(at, max(before["valid_to"].to_pylist()))  # what it had not answered by then it does not
        assert ms.snapshot_equal(earlier(before, end), earlier(ms.reference(alone(OLD, name), tables), end)), name


@pytest.mark.parametrize("seed", always(4, range(60)))
def test_texts_that_change_together_are_heard_from_one_batch_on_or_not_at_all(seed, tmp_path, monkeypatch):
    rng, tables = random.Random(seed), streams(seed, seed % 2 == 1, rows=90)
    tables = {name: tables[name] for name in "AB"}
    declares, cancels, at = seed % 2 == 0, seed % 4 == 3, None
    changed = NEW if declares else {**OLD, "totals": OTHER_TOTALS}
    session = opened(tmp_path, OLD)
    for number, low in enumerate(range(0, 160, 8)):
        filled = number > 8 and session.queries["totals"].cql == changed["totals"]
        at = number if filled and at is None else at
        if number == 8 and declares:
            session.stop()
            session = opened(tmp_path, NEW, replace=True)
        elif number == 8:
            told = carry_out(session, ReplaceQuery("totals", changed["totals"]))
            assert told["paced"] and [reader["query"] for reader in told["readers"]] == ["high"]
        if number == 9:
            assert session.queries["totals"].cql == TOTALS
        if number == 10 and cancels and not filled:
            carry_out(session, CancelMigration(rng.choice(["totals", "high"])))
        match (
            rng.choice(["", "", "rescale", "restart", "crash"]) if number > 8 and not (cancels and number == 10) else ""
        ):
            case "rescale":
                session.rescale(rng.randint(1, 4))
            case "restart" | "crash" as how:
                if how == "crash":
                    crash_in(session, cut(tables, low, low + 8), monkeypatch)
                session.stop()
                session = opened(tmp_path, NEW if declares else OLD, replace=declares and rng.random() < 0.5)
        session.push(cut(tables, low, low + 8))
    session.finish()
    if cancels:
        assert all(session.queries[name].history[-1].status == "cancelled" for name in ("totals", "high"))
        for name in OLD:
            assert ms.snapshot_equal(session.results(name), ms.reference(alone(OLD, name), tables)), name
    else:
        assert at is not None and at > 10
        texts = {name: changed[name] for name in (changed if declares else ("totals", "high"))}
        require_new(session, texts, tables)
    session.stop()


def test_a_query_and_what_reads_it_are_filled_from_sources_together(tmp_path):
    home, long = tmp_path / "a", TOTALS.replace("40", "70")
    home.mkdir()

    def processed(first: int, last: int, texts: dict[str, str], **options: Any) -> CheckpointSession:
        session = CheckpointSession(None, checkpoint=str(tmp_path / "c"), on="local", slots=2)
        each = {"maxFilesPerTrigger": "1"}
        session.open_stream("A", "parquet", path=str(home), schema="k BIGINT, v BIGINT, ts BIGINT", options=each)
        for name, cql in texts.items():
            session.query(name, cql, **options)
        for low in range(first, last, 5):
            pq.write_table(rows.slice(low, 5), home / f"{low:04d}.parquet")
        return session.process_available()

    rows = pa.table({"k": [ts % 3 for ts in range(140)], "v": range(140), "ts": range(140)})
    old, new = {"totals": TOTALS, "high": HIGH}, {"totals": long, "high": HIGH}
    processed(0, 80, old).stop()
    session = processed(80, 85, new, replace=True, backfill_rate=15)
    assert session.queries["totals"].cql == TOTALS and session.queries["high"].cql == alone(old, "high")
    session.stop()
    session = processed(85, 140, new, backfill_rate=15)
    session.finish()
    require_new(session, new, {"A": rows.cast(SCHEMA)})
    session.stop()


def test_texts_that_change_together_end_together_if_one_of_them_fails(tmp_path):
    session = opened(tmp_path, {"totals": TOTALS, "high": HIGH})
    rows = [{"k": ts % 3, "v": ts, "ts": ts} for ts in range(60)]
    for low in range(0, 40, 5):
        session.push("A", rows[low : low + 5])
    assert session.replace("totals", TOTALS.replace("SUM(v)", "SUM(CAST(CONCAT('x', v) AS BIGINT))"))["paced"]
    for low in range(40, 60, 5):
        session.push("A", rows[low : low + 5])
    for name in ("totals", "high"):
        (record,) = [r.record for r in session.queries[name].history]
        assert record["status"] == "failed" and "the new text of query" in record["why"]
    session.finish()
    table = pa.Table.from_pylist(rows)
    assert ms.snapshot_equal(session.results("totals"), ms.reference(TOTALS, {"A": table}))
    assert not any("~" in name for name in session.job.queries)
    session.stop()


def test_what_is_asked_before_the_first_batch_of_a_change_is_done(tmp_path):
    rows = [{"k": ts % 3, "v": ts % 7, "ts": ts} for ts in range(120)]
    session = opened(tmp_path, {"totals": TOTALS, "high": HIGH})
    for low in range(0, 40, 5):
        session.push("A", rows[low : low + 5])
    session.stop()
    new = {name: NEW[name] for name in ("totals", "high")}
    session = opened(tmp_path, new, replace=True)
    carry_out(session, Rescale(3))
    carry_out(session, AddQuery("more", "SELECT k FROM A [RANGE 5]"))
    for low in range(40, 120, 5):
        session.push("A", rows[low : low + 5])
    assert session.job.slots.count == 3 and set(session.queries) == {"totals", "high", "more"}
    session.finish()
    require_new(session, new, {"A": pa.Table.from_pylist(rows)})
    session.stop()
