"""Sessions with a key hotter than a slot: slots share it, several queries stay right, and status says what is done."""

from __future__ import annotations

import random
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.job.spreading import GroupBroughtHome, GroupSpread
from tests.local.test_durable_sessions import SCHEMA
from tests.profiles import always

import midstream as ms
from midstream.checkpoint.status import job_at, status_record
from midstream.checkpoint.stored_slots import StoredSlots
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import status
from midstream.distribution.fragments import SpreadGroup
from midstream.interface.status_text import shared_group_lines
from midstream.job.slots.spreading import merging_for

QUERIES = {
    "pairs": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "large": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 4",
    "values": "SELECT DISTINCT A.k, B.v FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "groups": "SELECT k, count(*) AS n, max(v) AS m FROM A [HOP 10, 5] GROUP BY k",
    "copied": "SELECT k, avg(v) AS m FROM B [RANGE 20] GROUP BY k",
    "copied_pairs": "SELECT x.k, x.v, y.v AS w FROM B [RANGE 20] AS x, B [RANGE 20] AS y WHERE x.k = y.k",
}


def opened(folder: Path, more: dict[str, str] | None = None) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local", slots=4)
    for name in "AB":
        session.stream(name, SCHEMA)
    for name, cql in {**QUERIES, **(more or {})}.items():
        session.query(name, cql)
    session.start()
    return session


def rows(stream: str, part: int, hot: bool) -> pa.Table:
    rng = np.random.default_rng(2 * part + (stream == "A"))
    count = 120 if stream == "A" else 30
    keys = rng.integers(0, 300, count)
    keys = np.where((rng.random(count) < 0.6) & hot, 7, keys) if stream == "A" else np.where(keys < 60, 7, keys)
    ticks = np.sort(rng.integers(10 * part, 10 * part + 10, count))
    return pa.table({"k": keys, "v": rng.integers(0, 9, count), "ts": ticks}).select(SCHEMA.names).cast(SCHEMA)


@pytest.mark.slow
def test_several_queries_stay_right_while_slots_share_a_key(tmp_path):
    parts = {name: [rows(name, i, i < 8) for i in range(14)] for name in "AB"}
    session = opened(tmp_path)
    shared = []
    for i in range(14):
        if i in (3, 13):
            assert session.rebalance()
        if i == 5:
            session.rescale(3)
        if i == 6:
            session.stop()
            session = opened(tmp_path)
        if i == 7:
            session.drop("large")
        session.push({name: parts[name][i] for name in "AB"})
        shared.append(len(session.job.slots.spread))
        if i == 4:
            told = status(session)
            (group,) = told["slots"]["spread"]
            assert (group["spread"], group["copied"], len(group["slots"])) == ("A", ["B"], 4)
            assert sorted(group["merging"]) == ["groups", "values"]
            line = next(shared_group_lines(session.job.slots))
            assert line.startswith(f"group {group['group']}: rows of A spread over slots ")
    assert shared == [0] * 3 + [1] * 10 + [0]
    session.finish()
    inputs = {name: pa.concat_tables(parts[name]) for name in "AB"}
    for name in QUERIES.keys() - {"large"}:
        assert ms.snapshot_equal(session.queries[name].table(), ms.reference(QUERIES[name], inputs)), name
    session.stop()


BEGINNING = {
    "both": "SELECT k FROM A [RANGE 20] INTERSECT SELECT k FROM B [RANGE 20]",
    "others": "SELECT k FROM A [RANGE 20] EXCEPT SELECT k FROM B [RANGE 5]",
    "changes": "SELECT ISTREAM k, count(*) AS n FROM A [RANGE 20] GROUP BY k",
    "counted": "SELECT B.v, d.n FROM (SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k) AS d, B [RANGE 20] "
    "WHERE d.k = B.k",
    "newest": "SELECT A.v FROM A [PARTITION BY k ROWS 2], B [RANGE 20] WHERE A.k = B.k",
}


@pytest.mark.parametrize(
    ("name", "replaced"), always(3, [("both", True), *((name, False) for name in reversed(BEGINNING))])
)
def test_a_query_begins_while_slots_share_a_key(name, replaced, tmp_path):
    parts = {stream: [rows(stream, i, True) for i in range(9)] for stream in "AB"}
    texts = {query: QUERIES[query] for query in ("pairs", "groups")}
    with CheckpointSession(checkpoint=str(tmp_path), on="local", slots=4) as session:
        for stream in "AB":
            session.stream(stream, SCHEMA)
        for query, text in texts.items():
            session.query(query, text)
        session.start()
        for i in range(9):
            if i == 2:
                session.rebalance()
            if i == 4:
                assert session.job.slots.spread
                begun = "pairs" if replaced else name
                session.query(begun, BEGINNING[name], replace=replaced)
            session.push({stream: parts[stream][i] for stream in "AB"})
        session.finish()
        later = {stream: pa.concat_tables(parts[stream][4:]) for stream in "AB"}
        # It is whole once all that came before it has left its windows.
        found, expected = (
            whole_from(t, 65) for t in (session.queries[begun].table(), ms.reference(BEGINNING[name], later))
        )
        assert found.num_rows and ms.snapshot_equal(found, expected)
        inputs = {stream: pa.concat_tables(parts[stream]) for stream in "AB"}
        for query in texts.keys() - {begun}:
            assert ms.snapshot_equal(session.queries[query].table(), ms.reference(texts[query], inputs)), query


@pytest.mark.parametrize(
    ("value", "kind", "shared"),
    [
        (2**62, pa.int64(), True),
        (Decimal(10**27), pa.decimal128(28, 0), True),
        (Decimal(6 * 10**37), pa.decimal128(38), False),
    ],
)
def test_sums_of_parts_may_be_larger_than_the_sum_of_all(value, kind, shared, tmp_path):
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", kind)])
    parts = [
        pa.table({"ts": range(10 * i, 10 * i + 8), "k": [1] * 8, "v": [value, -value] * 4}, schema=schema)
        for i in range(6)
    ]
    text = "SELECT k, sum(v) AS s, min(v) AS m FROM A [RANGE 8] GROUP BY k"
    with CheckpointSession(checkpoint=str(tmp_path), on="local", slots=4) as session:
        session.stream("A", schema)
        query, job = session.query("q", text), session._job
        session.start()
        for i, part in enumerate(parts):
            if i == 1:
                group = max(range(256), key=job.state.loads.__getitem__)
                with nullcontext() if shared else pytest.raises(ms.JobError, match="needs all rows of a key"):
                    job.apply(GroupSpread(SpreadGroup(group, "A", 4, "a test", merging=merging_for(job.queries, "A"))))
            session.push("A", part)
        assert bool(session.job.slots.spread) is shared
        session.finish()
        assert ms.snapshot_equal(query.table(), ms.reference(text, {"A": pa.concat_tables(parts)}))


def whole_from(table: pa.Table, start: int) -> pa.Table:
    """What a result says of an instant and those after it."""
    if "ts" in table.column_names[-1:]:
        return table.filter(pc.greater_equal(table["ts"], start))
    later = table.filter(pc.or_kleene(pc.is_null(table["valid_to"]), pc.greater(table["valid_to"], start)))
    place = later.column_names.index("valid_from")
    return later.set_column(place, "valid_from", pc.max_element_wise(later["valid_from"], start))


def test_a_job_that_rebalances_by_itself_says_what_it_decides_of_keys(tmp_path):
    session = CheckpointSession(checkpoint=str(tmp_path), on="local", slots=4, rebalancing=True)
    session.stream("A", SCHEMA)
    session.query("spreads", "SELECT k, stddev(v) AS m FROM A [RANGE 20] GROUP BY k")
    with session.start():
        for i in range(3):
            session.push("A", rows("A", i, True))
    told = status_record(job_at(str(tmp_path)))
    assert list(told["slots"]["spread"]) == []
    (about_keys,) = [decision for decision in told["slots"]["decisions"] if decision["kind"] == "keys"]
    stays = StoredSlots(4, decisions=({**about_keys, "action": "stay", "group": 5},))
    assert list(shared_group_lines(stays)) == [about_keys["reason"]]


MORE = {
    "outer": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20] LEFT JOIN B [RANGE 15] ON A.k = B.k",
    "newest": "SELECT k, v FROM B [PARTITION BY k ROWS 2]",
    "sums": "SELECT A.k, sum(B.v) AS s FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.k",
    "keys": "SELECT DISTINCT k FROM A [RANGE 20]",
    "means": "SELECT k, avg(v) AS m FROM A [RANGE 20] GROUP BY k",
    "by_value": "SELECT v, count(*) AS n, max(k) AS m FROM A [RANGE 20] GROUP BY v",
    "by_values": "SELECT B.v, count(*) AS n FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k GROUP BY B.v",
    "others": "SELECT k FROM A [RANGE 20] EXCEPT SELECT k FROM B [RANGE 5]",
    "kinds": "SELECT v, count(*) AS n FROM (SELECT DISTINCT A.v, A.k FROM A [RANGE 20]) AS d GROUP BY v",
    "changes": "SELECT ISTREAM B.v, count(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY B.v, A.v",
}


@pytest.mark.parametrize("seed", always(0, range(30)))
def test_queries_of_a_job_stay_right_whatever_is_shared_when(seed, tmp_path):
    rng, known = random.Random(seed), {**QUERIES, **MORE}
    names = rng.sample(sorted(known), 4)
    parts: dict[str, list[pa.Table]] = {"A": [], "B": []}

    def started(slots: int | None = None) -> CheckpointSession:
        session = CheckpointSession(checkpoint=str(tmp_path), on="local", slots=slots)
        for name in "AB":
            session.stream(name, SCHEMA)
        for name in names:
            session.query(name, known[name])
        session.start()
        return session

    session = started(3)
    for i in range(8):
        job = session._job
        match rng.choice(["spread", "spread", "class", "class", "home", "rescale", "restart", "move"]):
            case "spread" if i:
                with suppress(ms.MidstreamError):  # what cannot be shared rests
                    merging = merging_for(job.queries, stream := rng.choice("AAAB"))
                    group = max(range(256), key=job.state.loads.__getitem__)
                    job.apply(GroupSpread(SpreadGroup(group, stream, rng.randint(2, 4), "a test", merging=merging)))
            case "class" if job.manifest is not None and job.manifest.slots.class_loads:
                name, loads = rng.choice(sorted(job.manifest.slots.class_loads.items()))
                with suppress(ms.MidstreamError):
                    merging = merging_for(job.queries, key := rng.choice(name.split(" = ")), name)
                    group = max(range(256), key=loads.__getitem__)
                    wanted = SpreadGroup(group, key, rng.randint(2, 4), "a test", merging=merging, key_class=name)
                    job.apply(GroupSpread(wanted))
            case "home" if job.state.spread.groups:
                job.apply(GroupBroughtHome(rng.choice(sorted(job.state.spread.groups, key=str))))
            case "rescale" if job.state.wanted is None:
                session.rescale(rng.randint(1, 4))
            case "restart" if i:
                session.stop()
                session = started()
            case "move" if job.state.wanted is None:
                session.rebalance([rng.randrange(job.state.slots) for _ in range(256)])
        for name in "AB":
            parts[name].append(rows(name, i, True))
        session.push({name: parts[name][i] for name in "AB"})
    session.finish()
    inputs = {name: pa.concat_tables(parts[name]) for name in "AB"}
    for name in names:
        read = {stream: table for stream, table in inputs.items() if f"{stream} [" in known[name]}
        assert ms.snapshot_equal(session.queries[name].table(), ms.reference(known[name], read)), name
    session.stop()
