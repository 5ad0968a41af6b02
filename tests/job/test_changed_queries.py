"""A query takes another's place, at any moment: what follows from rows that are kept is there at once.

From the instant on that the history promises, results equal the oracle's of the new text over all rows since the
beginning.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.job.many import Many
from tests.job.test_replacing import clipped, reword
from tests.profiles import always
from typer.testing import CliRunner

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.commands import (
    AddQuery,
    CancelMigration,
    CancelRebalance,
    DropQuery,
    ForecastOf,
    ReplaceQuery,
)
from midstream.checkpoint.names import copy_name
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import carry_out
from midstream.errors import MidstreamError
from midstream.interface.answers import forecast_text
from midstream.interface.cli.app import app
from midstream.interface.jobs.job_file import job_of

WIDE = "SELECT A.k, A.v, B.v AS w FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
HOPS = "SELECT A.v, A.ts, B.v AS w, B.ts AS u FROM A [HOP 40, 8], B [HOP 40, 8] WHERE A.k = B.k"
PAIRS = {
    "narrower windows": (WIDE, "SELECT A.k, A.v, B.v AS w FROM A [RANGE 25], B [RANGE 13] WHERE A.k = B.k", True),
    "another condition": (WIDE, WIDE + " AND A.v > 3 AND B.v < 9", True),
    "a condition more": (WIDE + " AND A.v > 3", WIDE + " AND A.v > 3 AND A.v < 7", True),
    "a stronger condition": (WIDE + " AND A.v > 3", WIDE + " AND A.v BETWEEN 5 AND 9", True),
    "a choice of fewer": (WIDE + " AND A.v IN (3, 5, 7)", WIDE + " AND A.v = 5", True),
    "another range": (WIDE + " AND A.v > 3", WIDE + " AND A.v > 2", False),
    "a condition less": (WIDE + " AND A.v > 3", WIDE, False),
    "fewer columns": (WIDE, "SELECT B.v AS w FROM A [RANGE 40], B [RANGE 30] WHERE A.k = B.k", True),
    "a wider window": (WIDE, "SELECT A.k, A.v, B.v AS w FROM A [RANGE 50], B [RANGE 40] WHERE A.k = B.k", False),
    "groups": (WIDE, "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM A [RANGE 30] GROUP BY k", True),
    "tumbling": (WIDE, "SELECT k, SUM(v) AS s FROM B [TUMBLE 20] GROUP BY k", True),
    "another key": (WIDE, "SELECT A.k, B.k AS j FROM A [RANGE 20], B [RANGE 20] WHERE A.v = B.v", True),
    "distinct": (WIDE, "SELECT DISTINCT A.v FROM A [RANGE 33], B [RANGE 33] WHERE A.k = B.k", True),
    "no operator that keeps": (WIDE, "SELECT v FROM A [RANGE 35] WHERE v > 5", True),
    "the stream as it is": (WIDE, "SELECT * FROM A [RANGE 35]", True),
    "changes": (WIDE, "SELECT ISTREAM k, COUNT(*) AS n FROM A [RANGE 30] GROUP BY k", True),
    "outer": (WIDE, "SELECT A.v, B.v AS w FROM A [RANGE 20] LEFT JOIN B [RANGE 20] ON A.k = B.k", True),
    "a difference": (WIDE, "SELECT v FROM A [RANGE 20] EXCEPT SELECT v FROM B [RANGE 30]", True),
    "a join more": (
        "SELECT A.v, B.v AS w FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
        " UNION ALL SELECT C.v, A.v AS w FROM A [RANGE 40], C [RANGE 40] WHERE A.k = C.k",
        "SELECT A.v, B.v AS w, C.v AS x FROM A [RANGE 30], B [RANGE 40], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k",
        True,
    ),
    "from changes": (
        "SELECT ISTREAM k, v FROM A [RANGE 40]",
        "SELECT k, MAX(v) AS m FROM A [RANGE 30] GROUP BY k",
        True,
    ),
    "from all pairs": (
        "SELECT A.v, B.v AS w FROM A [RANGE 40], B [RANGE 40] WHERE A.v < B.v AND A.k < B.k",
        WIDE,
        True,
    ),
    "from one group": (
        "SELECT COUNT(*) AS n, MAX(v) AS m, MIN(k) AS j FROM A [RANGE 40]",
        "SELECT k, COUNT(*) AS n FROM A [RANGE 20] GROUP BY k",
        True,
    ),
    "from a later stage": (
        "SELECT A.v, C.k AS j FROM A [RANGE 40], B [RANGE 40], C [RANGE 40] WHERE A.k = B.k AND B.v = C.v",
        "SELECT A.k, C.k AS j, C.v FROM A [RANGE 30], C [RANGE 40] WHERE A.k = C.k AND C.v > 2",
        True,
    ),
    "from another key": (
        "SELECT x.k, y.k AS j FROM A [RANGE 30] AS x, A [RANGE 40] AS y WHERE x.v = y.v AND x.k < y.k"
        " UNION ALL SELECT k, v AS j FROM A [PARTITION BY k ROWS 1]",
        "SELECT k, v, COUNT(*) AS n FROM A [RANGE 30] GROUP BY k, v",
        True,
    ),
    "from what was kept": ("SELECT KEEP * FROM A [RANGE 50]", "SELECT k, v, ts FROM A [RANGE 50] WHERE v > 2", True),
    "from kinds": (
        "SELECT DISTINCT k, v FROM A [RANGE 40]",
        "SELECT x.v FROM A [RANGE 30] AS x, B [RANGE 1] WHERE x.k = B.k",
        False,
    ),
    "another alias": (WIDE, "SELECT x.v FROM A [RANGE 10] AS x, A [RANGE 20] AS y WHERE x.v = y.v AND x.k < y.k", True),
    "from hops": (HOPS, "SELECT A.k, B.v FROM A [RANGE 30], B [RANGE 40] WHERE A.k = B.k", True),
    "from the same hops": (HOPS, HOPS.replace("A.v, ", "A.v + B.v AS s, ") + " AND A.v > 2", True),
    "from hops to fewer": (HOPS, "SELECT k, COUNT(*) AS n FROM A [HOP 20, 5] GROUP BY k", True),
    "from hops without times": (HOPS.replace("A.ts, ", ""), "SELECT A.k FROM A [RANGE 30]", False),
    "from hops that are too short": (HOPS, "SELECT A.k, B.v FROM A [RANGE 41], B [RANGE 9] WHERE A.k = B.k", False),
    "the newest rows": (WIDE, "SELECT k, v FROM A [PARTITION BY k ROWS 2]", False),
}


def streams(seed: int, nulls: bool, rows: int = 60, last: int = 160) -> dict[str, pa.Table]:
    numbers = np.random.default_rng(seed)

    def table() -> pa.Table:
        keys = numbers.integers(0, 5, rows)
        columns = {"k": pa.array(keys, mask=(keys == 4) & nulls), "v": numbers.integers(0, 12, rows)}
        return pa.table({**columns, "ts": np.sort(numbers.integers(0, last, rows))})

    return {name: table() for name in "ABC"}


def changed(
    name: str, seed: int, folder: Path, slots: int, nulls: bool = False
) -> tuple[Mapping[str, Any], pa.Table, pa.Table]:
    old, new, _ = PAIRS[name]
    rng, tables = random.Random(seed), streams(seed, nulls)
    catalog = ask("SELECT A.k FROM A [RANGE 1], B [RANGE 1], C [RANGE 1]", tables).catalog
    many = Many(catalog=catalog, folder=folder, slots=slots)
    many.add("q", old)
    parts = many.cut(tables, 20)
    at = rng.randint(3, len(parts) - 3)
    for number, part in enumerate(parts):
        if number == at:
            reword(many, new, replace=True)
        if number == at + 1 and rng.random() < 0.5:
            aside = next(n for n in many.manifest.queries if n.startswith("q@"))
            many = Many(catalog=catalog, folder=folder, slots=slots)
            many.driver.queries.pop(aside, None)
        many.batch(part)
    many.batch({}, end=True)
    record = next(r for r in many.history("q") if r.get("event") == "started")
    return record, many.table("q"), ms.reference(new, tables)


def later(table: pa.Table, start: int) -> pa.Table:
    if "ts" in table.column_names:
        return table.filter(pc.greater_equal(table["ts"], start))
    return clipped(table, start)


def require_right(name: str, seed: int, folder: Path, slots: int, nulls: bool = False) -> None:
    record, got, expected = changed(name, seed, folder, slots, nulls)
    whole = record["complete_from"]
    if not nulls:
        assert (record["complete"] == "all results are complete") == PAIRS[name][2]
    if whole is not None:
        difference = ms.snapshot_equal(later(got, whole), later(expected, whole))
        assert difference, f"{difference}"


@pytest.mark.parametrize("name", PAIRS)
def test_what_follows_from_kept_rows_is_there_at_once(name, tmp_path):
    require_right(name, len(name), tmp_path, slots=1 + len(name) % 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", PAIRS)
def test_a_promise_is_kept_whatever_the_rows_are(name, seed, tmp_path):
    require_right(name, seed, tmp_path, slots=1 + seed % 3, nulls=seed % 2 == 1)


@pytest.mark.parametrize(("name", "complete"), [("groups", False), ("narrower windows", True)])
def test_rows_that_a_join_could_not_use_are_missed_only_where_they_count(name, complete, tmp_path):
    record, got, expected = changed(name, 5, tmp_path, 2, nulls=True)
    assert (record["complete"] == "all results are complete") == complete
    assert ms.snapshot_equal(later(got, record["complete_from"]), later(expected, record["complete_from"]))


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
ASKED = (
    "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM A [RANGE 30] GROUP BY k",
    "SELECT v, ts FROM A [RANGE 45]",
    "SELECT DISTINCT v FROM A [RANGE 45]",
    "SELECT x.v FROM A [RANGE 20] AS x, A [RANGE 40] AS y WHERE x.v = y.v AND x.k < y.k",
    "SELECT COUNT(*) AS n FROM A [RANGE 45] WHERE v > 3",
)
COUNTS = "SELECT k, COUNT(*) AS n FROM A [RANGE 30] GROUP BY k"
WITH_MOST = "SELECT k, MAX(v) AS m FROM A [RANGE 30] GROUP BY k"
BY_VALUES = "SELECT v, COUNT(*) AS n FROM A [RANGE 20] GROUP BY v"
LONGER = "SELECT k, COUNT(*) AS n FROM A [RANGE 50] GROUP BY k"


def declared(folder: Path, cql: str = COUNTS, adaptive: str = "off") -> CheckpointSession:
    session = CheckpointSession(None, checkpoint=str(folder), on="local", slots=2)
    session.stream("A", SCHEMA)
    session.query("q", cql, adaptive=adaptive)
    return session.start()


def pushed(session: CheckpointSession, first: int, last: int) -> None:
    for ts in range(first, last):
        session.push("A", [{"k": ts % 3, "v": ts, "ts": ts}])


def test_a_text_that_was_replaced_by_request_stays_whatever_is_declared(tmp_path, caplog):
    session = declared(tmp_path)
    pushed(session, 0, 5)
    new = COUNTS.replace("30", "20")
    told = carry_out(session, ReplaceQuery("q", new))
    assert [window["how"] for window in told["windows"]] == ["derived"]
    pushed(session, 5, 8)
    session.stop()
    session = declared(tmp_path)
    assert session.queries["q"].cql == new and "query q goes on with the text that it was given" in caplog.text
    carry_out(session, DropQuery("q"))
    pushed(session, 8, 10)
    session.stop()
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    assert session.was_dropped("q", COUNTS) and not session.was_dropped("q", new)


def test_results_that_lack_rows_are_withheld_if_so_declared(tmp_path):
    session = declared(tmp_path)
    pushed(session, 0, 45)
    told = session.replace("q", LONGER, incomplete="withhold", dry_run=True)
    assert told["complete_from"] == 44 + 51 and session.queries["q"].cql == COUNTS
    session.replace("q", LONGER, incomplete="withhold")
    pushed(session, 45, 130)
    session.finish()
    rows = [{"k": ts % 3, "v": ts, "ts": ts} for ts in range(130)]
    got, expected = session.results("q"), ms.reference(LONGER, {"A": pa.Table.from_pylist(rows)})
    begun = session.queries["q"].history[-1].record
    session.stop()
    assert 95 <= begun["at"] < 95 + 4 and not begun["gap"]  # until then the old text answers, every few ticks
    assert ms.snapshot_equal(got, clipped(expected, begun["at"]))


@pytest.mark.parametrize("seed", always(4, range(60)))
def test_kept_rows_serve_queries_wherever_these_have_them(seed, tmp_path):
    rng, tables = random.Random(seed), streams(seed, seed % 2 == 1)
    catalog = ask("SELECT A.k FROM A [RANGE 1], B [RANGE 1], C [RANGE 1]", tables).catalog
    many = Many(catalog=catalog, folder=tmp_path, slots=rng.randint(1, 3))
    many.add("kept", "SELECT KEEP * FROM A [RANGE 45]")
    others = [None, "SELECT DISTINCT k, v FROM A [RANGE 9]", "SELECT A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.v = B.v"]
    if (other := rng.choice(others)) is not None:
        many.add("other", other)
    new, parts = rng.choice(ASKED), many.cut(tables, 20)
    at = rng.randint(3, len(parts) - 3)
    for number, part in enumerate(parts):
        match rng.choice(["", "", "rescale", "rebalance", "drop"]) if number != at else "ask":
            case "ask":
                many.add("q", new)
            case "rescale":
                many.driver.rescale(rng.randint(1, 4))
            case "rebalance":
                many.driver.rebalance([rng.randrange(many.driver.state.slots) for _ in range(256)])
            case "drop" if 1 < number < at and "other" in many.driver.queries:
                many.drop("other")
        many.batch(part)
    many.batch({}, end=True)
    record = next(r for r in many.history("q") if r.get("event") == "started")
    whole, expected = record["complete_from"], ms.reference(new, tables)
    assert record["complete"] == "all results are complete"
    assert ms.snapshot_equal(later(many.table("q"), whole), later(expected, whole))


@pytest.mark.parametrize("seed", always(5, range(60)))
def test_a_new_query_answers_for_the_past_as_far_as_rows_are_kept(seed, tmp_path):
    rng, rows = random.Random(seed), streams(seed, seed % 2 == 1, 90)["A"]
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=rng.randint(1, 3))
    session.stream("A", SCHEMA)
    session.query("kept", "SELECT KEEP * FROM A [RANGE 80]")
    session.query("other", ASKED[0])
    session.start()
    at = rng.randint(40, 80)
    for start in range(0, at, 10):
        session.push("A", rows.slice(start, min(10, at - start)))
    now, new = rows["ts"][at - 1].as_py(), (*ASKED, "SELECT k, SUM(v) AS s FROM A [TUMBLE 20] GROUP BY k")[seed % 6]
    since = rng.choice(["retained", now - 30, "now"])
    query = session.query("q", new, since=since)
    for start in range(at, 90, 10):
        session.push("A", rows.slice(start, min(10, 90 - start)))
    session.finish()
    began = next(r.record for r in query.history if r.record.get("event") == "started")["complete_from"]
    got, expected = session.results("q"), ms.reference(new, {"A": rows})
    session.stop()
    earliest, latest = {"retained": (0, now - 80 + 51), "now": (now - 20, now + 1)}.get(since, (now - 30, now - 29))
    assert earliest <= (0 if began is None else began) <= latest + 20 * ("TUMBLE" in new)
    assert ms.snapshot_equal(got, clipped(expected, 0 if began is None else began))


def test_a_window_that_starts_empty_is_told_why(tmp_path):
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    session.stream("A", SCHEMA)
    session.query("q", "SELECT k, COUNT(*) AS n FROM A [RANGE 30] WHERE v > 3 GROUP BY k")
    session.start()
    pushed(session, 0, 9)

    def why(cql: str) -> str:
        (window,) = session.replace("q", cql, dry_run=True)["windows"]
        return str(window["why"])

    wider = why("SELECT k, COUNT(*) AS n FROM A [RANGE 40] GROUP BY k")
    assert wider == "query q keeps rows for a shorter time and keeps only rows with (v > 3)"
    dropped = why("SELECT v, COUNT(*) AS n FROM A [RANGE 30] WHERE v > 3 GROUP BY v")
    assert dropped == 'query q keeps no column v (retain and keep = ["v"] of stream A do from now on)'
    newest = "which rows are the newest depends on the order in which they came, and on rows of any age"
    assert why("SELECT v FROM A [PARTITION BY k ROWS 1]") == newest
    session.query("hops", "SELECT x.k, y.k AS j FROM A [HOP 60, 20] AS x, A [HOP 60, 20] AS y WHERE x.v = y.v")
    pushed(session, 9, 12)
    untimed = why("SELECT v FROM A [RANGE 40]")
    assert untimed == "query hops keeps rows of hopping windows without their times, column ts"
    session.stop()


def test_a_stream_that_is_retained_answers_whatever_is_asked_later(tmp_path):
    streams = {"A": {"format": "parquet", "path": "a", "retain": 40, "keep": ["k", "v"]}}
    job = job_of({"job": {"checkpoint": "c", "on": "local"}, "streams": streams, "queries": {}}, tmp_path)
    (kept,) = job.queries
    session = CheckpointSession(None, checkpoint=str(tmp_path / "c"), on="local", slots=2)
    session.stream("A", SCHEMA)
    session.query(kept.name, kept.cql)
    session.start()
    pushed(session, 0, 60)
    later_on = session.query("q", "SELECT k, ts, v FROM A [RANGE 40] WHERE v % 2 = 0")
    pushed(session, 60, 62)
    session.finish()
    rows = [{"k": ts % 3, "v": ts, "ts": ts} for ts in range(62)]
    expected = ms.reference(later_on.cql, {"A": pa.Table.from_pylist(rows)})
    start = later_on.history[0].record["complete_from"]
    assert session.results(kept.name).num_rows == 0
    assert ms.snapshot_equal(clipped(session.results("q"), start), clipped(expected, start)) and start <= 60
    session.stop()


TOTALS = "SELECT k, SUM(v) AS total FROM A [RANGE 30] GROUP BY k"
BY_VALUE = "SELECT v AS k, SUM(v) AS total FROM A [RANGE 10] GROUP BY v"
HIGH = "SELECT max(total) AS most FROM totals AS t"


def test_queries_that_read_a_changed_one_change_with_it_or_nothing_does(tmp_path):
    def opened() -> CheckpointSession:
        session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
        session.stream("A", SCHEMA)
        session.query("totals", TOTALS)
        session.query("high", HIGH, adaptive="suggest")
        return session.start()

    session = opened()
    pushed(session, 0, 40)
    with pytest.raises(ms.QueryError, match="query high cannot read query totals any more"):
        carry_out(session, ReplaceQuery("totals", TOTALS.replace("total", "sum")))
    assert session.queries["totals"].cql == TOTALS and not session.verdicts
    new = TOTALS.replace("30", "20").replace("SUM(v)", "SUM(v + 1)")
    told = carry_out(session, ReplaceQuery("totals", new))
    assert [reader["query"] for reader in told["readers"]] == ["high"] and set(session.verdicts) == {"totals", "high"}
    pushed(session, 40, 60)
    session.stop()
    session = opened()
    pushed(session, 60, 70)
    session.finish()
    rows = {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(70)])}
    start, got = session.queries["high"].history[-1].record["complete_from"], session.results("high")
    expected = ms.reference(HIGH.replace("totals", f"({new})"), rows)
    decides = session.queries["high"].decisions
    session.stop()
    assert start < 60 and decides and ms.snapshot_equal(clipped(got, start), clipped(expected, start))


def test_a_job_file_with_other_texts_says_first_what_they_start_with(tmp_path, monkeypatch):
    def ran(*options: str, length: int) -> Any:
        queries = "".join(f"[queries.{n}]\ncql = '{cql}'\n" for n, cql in texts(length).items())
        (tmp_path / "job.toml").write_text(
            '[job]\ncheckpoint = "c"\non = "local"\n[streams.A]\nformat = "parquet"\npath = "a"\ntime = "ts"\n'
            + 'schema = "k BIGINT, v BIGINT, ts BIGINT"\n'
            + queries
        )
        done = CliRunner().invoke(app, ["run", str(tmp_path / "job.toml"), "--available", *options])
        assert done.exit_code == 0, done.output
        return done

    def texts(length: int) -> dict[str, str]:
        totals = TOTALS.replace("30", str(length)) if length > 10 else BY_VALUE
        return {"totals": totals, "high": HIGH, "all": f"SELECT v FROM A [RANGE {length}]"}

    (tmp_path / "a").mkdir()
    rows = pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(60)])
    pq.write_table(rows, tmp_path / "a" / "1.parquet")
    ran(length=30)
    told = json.loads(ran("--replace", "--dry-run", "--json", length=20).stdout)["queries"]
    assert {name: [w["how"] for w in verdict["windows"]] for name, verdict in told.items()} == {
        "totals": ["derived"],
        "high": ["derived"],
        "all": ["derived"],
    }
    assert ms.open(str(tmp_path / "c")).queries["all"].cql.endswith("[RANGE 30]")
    shown = ran("--replace", length=20)
    assert "query high begins: all results are complete" in shown.stderr
    assert "A [RANGE 20] is derived from query totals, 60 rows" in shown.stderr
    assert ms.open(str(tmp_path / "c")).queries["all"].cql.endswith("[RANGE 20]")
    assert not any(verdict["paced"] for verdict in told.values())
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 4)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    shown = ran("--replace", "--dry-run", length=10)
    assert shown.stdout.count("complete; the old text answers until this one can go on from where it ends") == 3


WITH_LOW = "SELECT k, COUNT(*) AS n, MIN(v) AS low FROM A [RANGE 30] GROUP BY k"
SAME = "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM A [RANGE 30] WHERE v >= 0 GROUP BY k"
DIFFERENT = "SELECT k, COUNT(*) AS n FROM A [RANGE 30] WHERE v < 60 GROUP BY k"


@pytest.mark.parametrize(("new", "restart"), [(SAME, False), (SAME, True), (DIFFERENT, False)])
def test_a_text_that_is_verified_takes_the_place_only_if_it_gives_the_same(new, restart, tmp_path):
    session = declared(tmp_path, WITH_LOW, adaptive="suggest")
    pushed(session, 0, 40)
    carry_out(session, ReplaceQuery("q", new, verify=25, columns="k, n"))
    pushed(session, 40, 50)
    assert session.queries["q"].cql == WITH_LOW and set(session.queries) == {"q"}
    with pytest.raises(ms.MidstreamError):
        carry_out(session, ReplaceQuery("q", COUNTS.replace("30", "20")))
    if restart:
        session.stop()
        session = declared(tmp_path, WITH_LOW)
    pushed(session, 50, 80)
    rows = {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(80)])}
    if new == DIFFERENT:
        assert session.queries["q"].cql == WITH_LOW
        assert session.queries["q"].history[-1].record["verified"]["instant"] == 60
    else:
        assert session.queries["q"].cql == new
        assert restart or "observed" in session.queries["q"].statistics
    start = 0 if new == DIFFERENT else session.queries["q"].history[-1].record["complete_from"]
    if restart:
        session.stop()
        session = declared(tmp_path, WITH_LOW)
        assert session.queries["q"].cql == new
    session.finish()
    got = session.results("q")
    session.stop()
    assert not any("~" in name for name in ms.open(str(tmp_path)).queries)
    expected = ms.reference(WITH_LOW if new == DIFFERENT else new, rows)
    assert start < 75 and ms.snapshot_equal(clipped(got, start), clipped(expected, start))


@pytest.mark.parametrize("seed", always(6, range(80)))
def test_large_windows_are_filled_over_several_batches_while_the_old_text_answers(seed, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 12)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    rng, tables = random.Random(seed), streams(seed, seed % 2 == 1, rows=90)
    names = [n for n, (_, _, complete) in PAIRS.items() if complete and "UNION" not in PAIRS[n][0]]
    old, new, _ = PAIRS[names[seed % len(names)] if seed > 5 else rng.choice(names)]

    def opened() -> CheckpointSession:
        session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
        for name in "ABC":
            session.stream(name, SCHEMA, lateness=0)
        session.query("q", old)
        return session.start()

    session, begun, ends = opened(), False, None
    for number, low in enumerate(range(0, 160, 8)):
        part = {
            n: t.filter(pc.and_(pc.greater_equal(t["ts"], low), pc.less(t["ts"], low + 8))) for n, t in tables.items()
        }
        if number == 8:
            begun = carry_out(session, ReplaceQuery("q", new))["paced"]
        if number > 8 and session.queries["q"].cql == new and ends is None:
            ends = number
        match rng.choice(["", "", "", "rescale", "rebalance", "back", "restart"]) if number > 5 else "":
            case "rescale":
                with suppress(MidstreamError):  # it may be going over to other slots already
                    session.rescale(rng.randint(1, 4))
            case "rebalance":
                wanted = [rng.randrange(session._job.state.slots) for _ in range(256)]
                with suppress(MidstreamError):  # groups may be moving, and some plans cannot have it so
                    session.rebalance(wanted, protocol=rng.choice(["mslb", "split_time_balancing", "ptlb"]))
            case "back":
                with suppress(MidstreamError):  # no groups may be moving
                    carry_out(session, CancelRebalance())
            case "restart" if number != 8:
                session.stop()
                session = opened()
        session.push({name: table for name, table in part.items() if table.num_rows})
    waits = copy_name("q") in session._job.queries  # nothing is filled while groups move to two slots
    session.finish()
    text, got = session.queries["q"].cql, session.results("q")
    records = [r.record for r in session.queries["q"].history]
    session.stop()
    assert begun == (ends is None or ends > 9)
    assert text == new or waits
    whole = next(r for r in records if r.get("event") == "started")["complete_from"] if text == new else 0
    assert ms.snapshot_equal(later(got, whole), later(ms.reference(text, tables), whole))


def test_a_text_whose_windows_are_being_filled_can_be_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 4)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    session = declared(tmp_path, WITH_MOST)
    pushed(session, 0, 40)
    assert carry_out(session, ReplaceQuery("q", BY_VALUES))["paced"]
    pushed(session, 40, 42)
    assert session.queries["q"].cql == WITH_MOST
    carry_out(session, CancelMigration("q"))
    pushed(session, 42, 44)
    again = session.replace("q", BY_VALUES, dry_run=True)
    assert [window["how"] for window in again["windows"]] == ["derived"]  # the old text has kept all that it had
    pushed(session, 44, 60)
    session.finish()
    got, history = session.results("q"), [record.status for record in session.queries["q"].history]
    session.stop()
    rows = {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(60)])}
    assert history == ["cancelled"] and ms.snapshot_equal(got, ms.reference(WITH_MOST, rows))


def test_a_text_is_filled_to_the_end_though_a_move_of_groups_meanwhile_is_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 4)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    new, opposite = BY_VALUES, [group % 2 for group in range(256)]
    with declared(tmp_path, WITH_MOST) as session:
        pushed(session, 0, 40)
        assert carry_out(session, ReplaceQuery("q", new))["paced"]
        pushed(session, 40, 41)
        session.rebalance(opposite, protocol="split_time_balancing")
        pushed(session, 41, 44)
        carry_out(session, CancelRebalance())
        pushed(session, 44, 90)
        session.finish()
        query, got = session.queries["q"], session.results("q")
        moves = [move.get("status") for move in session.moves]
        whole = query.history[-1].record["complete_from"]
    rows = {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(90)])}
    assert query.cql == new and moves[:1] == ["cancelled"] and whole < 60
    assert ms.snapshot_equal(clipped(got, whole), clipped(ms.reference(new, rows), whole))


def test_a_text_that_withholds_does_so_after_a_restart_while_its_windows_are_filled(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 4)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    new = "SELECT COUNT(*) AS n FROM A [RANGE 20] AS x, A [RANGE 35] AS y WHERE x.k = y.k"
    session = declared(tmp_path)
    pushed(session, 0, 40)
    assert carry_out(session, ReplaceQuery("q", new, incomplete="withhold"))["paced"]
    pushed(session, 40, 42)
    session.stop()
    session = declared(tmp_path)
    pushed(session, 42, 90)
    session.finish()
    query, got = session.queries["q"], session.results("q")
    session.stop()
    rows = {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(90)])}
    assert query.cql == new and query.history[-1].record["complete_from"] == 39 + 36
    assert min(got["valid_from"].to_pylist()) >= 75 and ms.snapshot_equal(got, clipped(ms.reference(new, rows), 75))


def test_what_cannot_be_compared_is_not_verified(tmp_path):
    session = declared(tmp_path)
    pushed(session, 0, 5)
    for new, why in (("SELECT ISTREAM k, v AS n FROM A [RANGE 9]", "changes"), ("SELECT 'a' AS n FROM A", "types")):
        with pytest.raises(ms.QueryError, match=why):
            session.replace("q", new, verify=5)
    assert session.queries["q"].cql == COUNTS and not session.queries["q"].history
    session.stop()


def test_a_query_of_changes_is_complete_whose_streams_have_had_nothing(tmp_path):
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    for name in "AB":
        session.stream(name, pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))]))
    session.query("q", "SELECT ISTREAM k FROM B [RANGE 9 SECONDS] WHERE k > 3")
    session.start()
    session.push("A", [{"k": 1, "ts": dt.datetime(2024, 1, 1)}])
    told = session.replace("q", "SELECT ISTREAM k FROM B [RANGE 9 SECONDS] WHERE k > 2")
    session.stop()
    assert (told["complete"], told["complete_from"]) == ("all results are complete", None)


@pytest.mark.parametrize("new", ["SELECT k, MIN(v) AS n FROM A [RANGE 12] GROUP BY k", "SELECT v FROM A [RANGE 12]"])
def test_a_new_text_goes_on_from_where_the_old_one_has_answered_up_to(new, tmp_path):
    old = "SELECT k, MAX(v) AS n FROM A [RANGE 16] GROUP BY k"
    session, given = declared(tmp_path, old), list[pa.Table]()
    session.sink("q", lambda results, batch: given.append(results))
    for first in range(0, 60, 5):
        if first == 30:
            session.replace("q", new)
        session.push("A", [{"k": ts % 3, "v": ts, "ts": ts} for ts in range(first, first + 5)])
    session.finish()
    at = session.queries["q"].history[-1].record["at"]
    before, after = session.results(session.queries["q"].history[0].record["old_results"]), session.results("q")
    session.stop()
    rows = {"A": pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(60)])}
    assert max(before["valid_to"].to_pylist()) == at < 29 and min(after["valid_from"].to_pylist()) == at
    assert ms.snapshot_equal(after, clipped(ms.reference(new, rows), at))
    wanted = Counter(str(row) for table in (before, after) for row in table.to_pylist())
    assert Counter(str(row) for table in given for row in table.to_pylist()) == wanted


@pytest.mark.parametrize("kept", [False, True])
def test_a_text_that_takes_the_place_of_one_in_quarantine_lacks_what_that_one_did_not_see(kept, tmp_path):
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    session.stream("A", pa.schema([("k", pa.int64()), ("s", pa.string()), ("ts", pa.int64())]))
    if kept:
        session.query("kept", "SELECT KEEP * FROM A [RANGE 50]")
    session.query("q", "SELECT k, SUM(CAST(s AS BIGINT)) AS n FROM A [RANGE 30] GROUP BY k")
    session.start()
    rows = [{"k": ts % 3, "s": "no number" if ts == 25 else str(ts), "ts": ts} for ts in range(80)]
    new = "SELECT k, COUNT(s) AS n FROM A [RANGE 20] GROUP BY k"
    for first in range(0, 80, 5):
        if first == 40:
            assert session.replace("q", new)["windows"][0]["how"] == ("derived" if kept else "empty")
        session.push("A", rows[first : first + 5])
    session.finish()
    got, since = session.results("q"), session.queries["q"].history[-1].record["complete_from"]
    session.stop()
    expected = ms.reference(new, {"A": pa.Table.from_pylist(rows)})
    assert since <= (40 if kept else 60) and ms.snapshot_equal(clipped(got, since), clipped(expected, since))


def test_rows_of_hopping_windows_are_given_to_others_with_their_times(tmp_path):
    require_right("from hops", 3, tmp_path, slots=2)


def test_a_text_that_is_filled_waits_until_it_has_come_to_where_kept_rows_begin(tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 8)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    new = "SELECT A.v, B.v AS w FROM A [RANGE 25], B [RANGE 25] WHERE A.k = B.k"
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    for name in "AB":
        session.stream(name, SCHEMA)
    session.query("q", "SELECT k, SUM(v) AS s FROM A [RANGE 30] GROUP BY k")
    session.query("kept", "SELECT KEEP * FROM B [RANGE 90]")
    session.start()
    rows = [{"k": ts % 3, "v": ts, "ts": ts} for ts in range(120)]
    session.push({"A": rows[:60], "B": rows[:10]})  # B is behind, so what joins both is
    session.push("A", rows[60:61])
    assert session.replace("q", new)["paced"]
    for at in range(10, 55, 5):
        session.push("B", rows[at : at + 5])
    assert session.queries["q"].cql != new
    for at in range(61, 115, 6):
        session.push({"A": rows[at : at + 6], "B": rows[at - 6 : at]})
    session.push("B", rows[109:])
    session.finish()
    got, query = session.results("q"), session.queries["q"]
    session.stop()
    start, table = query.history[-1].record["complete_from"], pa.Table.from_pylist(rows)
    expected = ms.reference(new, {"A": table.slice(0, 115), "B": table})
    assert query.cql == new and 55 <= start < 90 and ms.snapshot_equal(clipped(got, start), clipped(expected, start))


def test_a_refused_text_is_told_what_queries_keep_that_are_declared_after_it(tmp_path):
    def opened(cql: str) -> CheckpointSession:
        session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
        session.stream("A", SCHEMA)
        session.query("q", cql)
        session.query("kept", "SELECT KEEP * FROM A [RANGE 45]")
        return session.start()

    session = opened(COUNTS)
    pushed(session, 0, 40)
    session.stop()
    with pytest.raises(ms.JobError, match="not the same query") as refused:
        opened(COUNTS.replace("30", "40"))
    assert "[RANGE 40] is derived from query kept" in str(refused.value.detail)


def test_a_new_query_is_told_from_which_instant_on_it_would_answer(tmp_path):
    session = declared(tmp_path)
    session.query("kept", "SELECT KEEP * FROM A [RANGE 40]")
    pushed(session, 0, 60)
    added = AddQuery("new", COUNTS.replace("30", "10"), since="5")
    told = carry_out(session, ForecastOf(added))
    assert told["answers_from"] == 28
    assert "it would begin, with instant 28: all results are complete" in forecast_text(added, told)
    carry_out(session, added)
    pushed(session, 60, 61)
    assert session.results("new").column("valid_from").to_pylist()[0] == 28
    session.stop()


@pytest.mark.parametrize("incomplete", ["emit", "withhold"])
def test_what_windows_over_sub_queries_lack_leaves_them_as_it_leaves_other_windows(incomplete, tmp_path):
    old = "SELECT k, COUNT(*) AS n FROM (SELECT k, v FROM A [NOW]) [RANGE 20] GROUP BY k"
    new = "SELECT k, SUM(n) AS m FROM (SELECT k, COUNT(*) AS n FROM A [TUMBLE 4] GROUP BY k) [RANGE 12] GROUP BY k"
    session = declared(tmp_path, old)
    pushed(session, 0, 40)
    session.replace("q", new, incomplete=incomplete)
    pushed(session, 40, 90)
    record = session.queries["q"].history[-1].record
    session.finish()
    got = session.results("q")
    session.stop()
    rows = pa.Table.from_pylist([{"k": ts % 3, "v": ts, "ts": ts} for ts in range(90)], schema=SCHEMA)
    assert 50 < record["complete_from"] < 65
    whole = record["complete_from"]
    assert ms.snapshot_equal(clipped(got, whole), clipped(ms.reference(new, {"A": rows}), whole))
