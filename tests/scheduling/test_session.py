from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples
from tests.scheduling.watched import SCHEMA, Watched, drawn, session, table

import midstream as ms
from midstream.cluster.local.embedded_session import EmbeddedSession

JOIN = "FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
QUERIES = [
    f"SELECT A.v, B.v AS w {JOIN}",
    f"SELECT A.v, B.v AS w {JOIN} AND A.v > 1",
    f"SELECT A.k AS x {JOIN} AND B.v < 3",
    f"SELECT DISTINCT A.k {JOIN}",
    "SELECT A.v, C.v AS w FROM A [RANGE 9], C [RANGE 9] WHERE A.k = C.k",
    "SELECT B.k, C.v AS w FROM B [RANGE 9], C [RANGE 9] WHERE B.k < C.k",
    "SELECT A.k, C.v AS w FROM A [RANGE 9] LEFT JOIN C [RANGE 9] ON A.k = C.k",
    f"SELECT A.k, count(*) AS n, sum(B.v) AS s {JOIN} GROUP BY A.k",
    f"SELECT A.k, count(*) AS n, sum(B.v) AS s {JOIN} GROUP BY A.k HAVING count(*) > 1",
    "SELECT A.k, B.v AS w, C.v AS u FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k",
    "SELECT A.k FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k AND C.v > 1",
    "SELECT DISTINCT k FROM A [RANGE 9]",
    "SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k",
    "SELECT k, v FROM C [RANGE 9] WHERE v > 2",
    "SELECT k FROM A [RANGE 9] EXCEPT ALL SELECT k FROM B [RANGE 9]",
    "SELECT ISTREAM A.k, B.v AS w " + JOIN,
]
THREE = "SELECT A.k, B.v AS w, C.v AS u FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k"
COUNTED = "SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k"
FILTERED = "SELECT k, v FROM C [RANGE 9] WHERE v > 2"


@examples(5)
@given(seed=st.integers(0, 10**6))
def test_queries_added_and_dropped_at_random_each_answer_as_if_alone(seed):
    rng = random.Random(seed)
    watched = Watched()
    for step in range(14):
        time = 4 * step
        for name in rng.sample("ABC", 3):
            watched.push(name, drawn(rng, time))
            if rng.random() < 0.35:
                number = len(watched.before)
                watched.add(f"q{number}", rng.choice(QUERIES))
            if watched.session.queries and rng.random() < 0.12:
                watched.session.drop(rng.choice(list(watched.session.queries)))
        if rng.random() < 0.3:
            watched.session.scheduling = rng.choice(["dfs", "bfs", "rr", "batch:2", "chain"])
    watched.session.stop()
    for query in watched.session.queries.values():
        watched.check(query)


def test_equal_queries_share_everything_that_remembers():
    made = session()
    first = made.query("first", QUERIES[0])
    alone = made.query("second", QUERIES[0])
    assert first.shares == alone.shares == ["part 1"]
    rng = random.Random(3)
    for time in range(0, 40, 4):
        for name in "AB":
            made.push(name, table(drawn(rng, time)))
    single = session()
    single.query("first", QUERIES[0])
    rng = random.Random(3)
    for time in range(0, 40, 4):
        for name in "AB":
            single.push(name, table(drawn(rng, time)))
    assert made.state_rows == single.state_rows
    assert first.results().equals(alone.results())
    assert "Shared part 1, read by first, second" in first.explain()


def test_fifty_queries_over_the_same_three_windows_keep_at_most_three_times_the_state_of_one():
    join = "FROM A [RANGE 200], B [RANGE 200], C [RANGE 200] WHERE A.k = B.k AND B.k = C.k"

    def filled(count: int) -> EmbeddedSession:
        made = session()
        for i in range(count):
            made.query(f"q{i}", f"SELECT A.v, B.v AS w, C.v AS u {join} AND A.v = {i}")
        rng = random.Random(5)
        for time in range(0, 300, 4):
            for name in "ABC":
                rows = [(time + i % 4, rng.randrange(200), rng.randrange(50)) for i in range(12)]
                made.push(name, table(rows))
        return made

    one, many = filled(1), filled(50)
    assert many.state_bytes <= 3 * one.state_bytes
    assert sum(q.results().num_rows for q in many.queries.values()) > one.queries["q0"].results().num_rows


def test_different_joins_of_one_window_keep_it_once_and_the_second_starts_from_it():
    made = session()
    made.query("with_b", "SELECT A.k, A.v, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    rng = random.Random(2)
    for time in range(0, 20, 4):
        for name in "ABC":
            made.push(name, table(drawn(rng, time)))
    alone = made.state_rows
    late = made.query("with_c", "SELECT A.k, A.v, C.v AS u FROM A [RANGE 9], C [RANGE 9] WHERE A.k = C.k")
    assert late.history[0].record["inherited"] == {"A": 1}
    for time in range(20, 60, 4):
        for name in "ABC":
            made.push(name, table(drawn(rng, time)))
    # Three windows, not four.
    assert made.state_rows < 2 * alone
    first, second = (made.queries[n].box.operators for n in ("with_b", "with_c"))  # type: ignore[union-attr]
    kept = [next(s for o in ops for s in o.states if "Source A" in s.id) for ops in (first, second)]
    assert kept[0].segments == kept[1].segments and len(kept[0].segments) > 0


def test_dropping_a_query_frees_just_what_no_other_uses():
    made = session()
    pairs = made.query("pairs", QUERIES[0])
    same = made.query("same", QUERIES[0])
    made.query("groups", COUNTED)
    assert pairs.shares == same.shares == ["part 1"]
    rng = random.Random(1)
    for name in "AB":
        made.push(name, table(drawn(rng, 0)))
    everything = made.state_rows
    made.drop("pairs")
    assert made.state_rows == everything
    assert same.shares == [] and same.statistics["shared"] == {}
    assert same.statistics["state_rows"] > 0, "what it shared is its own now"
    made.drop("same")
    assert 0 < made.state_rows < everything
    made.drop("groups")
    assert made.state_rows == 0


PAIRS = "SELECT A.k, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
DISTINCT = "SELECT DISTINCT k FROM A [RANGE 9]"
GROUPS = "(SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k) AS D"


@pytest.mark.parametrize(
    ("alone", "joined"),
    [
        (PAIRS, THREE),
        (COUNTED, f"SELECT D.k, D.n, C.v FROM {GROUPS}, C [RANGE 9] WHERE D.k = C.k"),
        (DISTINCT, f"SELECT D.k, C.v FROM ({DISTINCT}) AS D, C [RANGE 9] WHERE D.k = C.k"),
    ],
    ids=["join", "aggregate", "distinct"],
)
def test_what_two_queries_share_goes_on_although_one_of_them_waits_for_a_silent_stream(alone, joined):
    watched, single = Watched(), Watched()
    ahead = watched.add("ahead", alone)
    behind = watched.add("behind", joined, plan="((A B) C)" if alone == PAIRS else None)
    wanted = single.add("ahead", alone)
    assert ahead.shares == behind.shares == ["part 1"]
    rng = random.Random(4)
    for time in range(0, 60, 4):
        for name in "AB":
            rows = drawn(rng, time)
            watched.push(name, rows)
            single.push(name, rows)
        assert ms.snapshot_equal(ahead.results(), wanted.results())
    assert ahead.results().num_rows > 0 and behind.results().num_rows == 0
    watched.push("C", [(time, time % 3, time) for time in range(0, 60, 5)])
    watched.session.stop()
    assert behind.results().num_rows > 0
    for query in (ahead, behind):
        watched.check(query)


def test_a_part_within_a_part_is_listed_apart():
    made = session()
    pairs = made.query("pairs", PAIRS)
    made.query("same", THREE, plan="((A B) C)")
    triples = made.query("triples", THREE, plan="((A B) C)")
    rng = random.Random(6)
    for name in "ABC":
        made.push(name, table(drawn(rng, 0)))
    assert pairs.shares == ["part 1"] and triples.shares == ["part 1", "part 2"]
    shared = triples.statistics["shared"]
    assert shared["part 1"] == pairs.statistics["shared"]["part 1"] > 0 and shared["part 2"] > 0
    assert triples.statistics["state_rows"] == pairs.statistics["state_rows"] == 0
    assert sum(shared.values()) == made.state_rows
    told = triples.explain()
    assert "Shared part 1, read by pairs, same, triples" in told and "Shared part 2, read by same, triples" in told


def test_a_dropped_query_can_be_named_again_and_starts_anew():
    made = session()
    made.query("q", FILTERED)
    made.push("C", table([(1, 1, 3)]))
    made.drop("q")
    again = made.query("q", FILTERED)
    made.push("C", table([(5, 2, 4)]))
    made.stop()
    assert again.results()["k"].to_pylist() == [2]
    with pytest.raises(ms.QueryError, match="there is no query nobody"):
        made.drop("nobody")


def test_poll_gives_each_result_once():
    made = session()
    query = made.query("q", FILTERED)
    made.push("C", table([(1, 1, 3)]))
    made.push("C", table([(5, 2, 4)]))
    assert query.poll()["k"].to_pylist() == [1]
    assert query.poll().num_rows == 0
    made.stop()
    assert query.poll()["k"].to_pylist() == [2]
    assert query.results()["k"].to_pylist() == [1, 2]
    with pytest.raises(ms.JobError, match="stopped"):
        made.push("C", table([(9, 2, 4)]))


def test_a_query_migrates_out_of_what_it_shares_and_the_others_go_on():
    watched = Watched()
    cql = THREE
    watched.add("stays", cql)
    watched.add("moves", cql)
    rng = random.Random(8)
    for time in range(0, 24, 4):
        for name in "ABC":
            watched.push(name, drawn(rng, time))
    moves = watched.session.queries["moves"]
    moves.migrate("(A (B C))", "genmig")
    assert moves.shares == []
    for time in range(24, 72, 4):
        for name in "ABC":
            watched.push(name, drawn(rng, time))
    watched.session.stop()
    assert [event.status for event in moves.history] == ["started", "goes on alone", "done"]
    assert moves.plan.text == "(A (B C))"
    for query in watched.session.queries.values():
        watched.check(query)


@pytest.mark.parametrize("strategy", ["moving_state", "moving_state_paced", "genmig", "parallel_track", "auto"])
def test_a_query_whose_shared_part_is_ahead_of_it_loses_nothing_by_migrating(strategy):
    watched = Watched()
    watched.add("two", "SELECT A.k, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    watched.session.query("three", THREE, plan="((A B) C)")
    watched.before["three"] = dict.fromkeys("ABC", 0)
    for name, rows in {"C": [(0, 1, 0)], "A": [(1, 1, 1)], "B": [(2, 1, 2)]}.items():
        watched.push(name, rows)
    for name in "AB":
        watched.push(name, [(50, 2, 3)])
    three = watched.session.queries["three"]
    assert three.shares == ["part 1"]
    if strategy.startswith("moving_state"):
        with pytest.raises(ms.MigrationError, match="discarded state that it needs"):
            three.migrate("(A (B C))", strategy)
    else:
        three.migrate("(A (B C))", strategy)
    for time in (3, 5, 90):
        watched.push("C", [(time, 1, 4)])
    for name in "AB":
        watched.push(name, [(90, 1, 3)])
    if strategy.startswith("moving_state"):
        three.migrate("(A (B C))", strategy)
        watched.push("C", [(95, 1, 4)])
    watched.session.stop()
    assert three.results().num_rows > 3
    for query in watched.session.queries.values():
        watched.check(query)


def test_a_query_that_shares_a_core_migrates_too():
    watched = Watched()
    for i in range(3):
        watched.add(f"q{i}", f"{THREE} AND A.v > {i}")
    rng = random.Random(9)
    for time in range(0, 24, 4):
        for name in "ABC":
            watched.push(name, drawn(rng, time))
    moves = watched.session.queries["q2"]
    assert moves.shares == ["part 1"]
    moves.migrate("(A (B C))", "genmig")
    for time in range(24, 60, 4):
        for name in "ABC":
            watched.push(name, drawn(rng, time))
    watched.session.stop()
    for query in watched.session.queries.values():
        watched.check(query)


def test_a_silent_stream_with_internal_timestamps_holds_nobody_back():
    now = [0]
    made = EmbeddedSession(clock=lambda: now[0])
    plain = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    for name in ("fast", "slow"):
        made.stream(name, plain, timestamps="internal")
    query = made.query("q", "SELECT k FROM fast [RANGE 5] EXCEPT ALL SELECT k FROM slow [RANGE 5]", emit_every=1)
    for i in range(1, 6):
        now[0] = 10 * i
        made.push("fast", pa.table({"k": [i]}))
    # Each row is valid for six ticks; all but the newest are over, and left although the other stream never spoke.
    assert query.results()["k"].to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("skew", "expected"), [(None, []), (5, [0, 1, 2]), (25, [0])])
def test_a_silent_stream_with_external_timestamps_promises_its_skew(skew, expected):
    made = session() if skew is None else EmbeddedSession()
    if skew is not None:
        for name in "AB":
            made.stream(name, SCHEMA, skew=skew)
    query = made.query("q", "SELECT v FROM A [NOW] EXCEPT ALL SELECT v FROM B [NOW]", emit_every=1)
    for i in range(5):
        made.push("A", table([(10 * i, 0, i)]))
    assert query.results()["v"].to_pylist() == expected


def test_a_silent_stream_does_not_follow_times_that_mean_something_else():
    made = EmbeddedSession()
    made.stream("A", SCHEMA, skew=5)
    made.stream("clocked", pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())]), skew="1 second")
    made.push("clocked", pa.table({"ts": pa.array([10**15], pa.timestamp("us")), "k": [1]}))
    made.push("A", table([(3, 0, 1)]))
    assert made.dead_letters == []
    assert made.streams["clocked"].register == 10**15


def test_a_row_behind_its_streams_promise_is_late():
    made = EmbeddedSession()
    for name in "AB":
        made.stream(name, SCHEMA, skew=5)
    made.push("A", table([(100, 0, 0)]))
    made.push("A", table([(101, 0, 0)]))
    made.push("B", table([(94, 0, 1), (95, 0, 2)]))
    assert [(d.stream, d.reason, len(d)) for d in made.dead_letters] == [("B", "late", 1)]


def test_on_demand_timestamps_can_be_switched_off():
    made = EmbeddedSession()
    made.stream("A", SCHEMA, skew=0)
    made.stream("B", SCHEMA, skew=0, on_demand=False)
    query = made.query("q", "SELECT v FROM A [NOW] EXCEPT ALL SELECT v FROM B [NOW]", emit_every=1)
    for i in range(5):
        made.push("A", table([(10 * i, 0, i)]))
    assert query.results().num_rows == 0


def test_several_streams_are_pushed_at_once():
    made = session()
    query = made.query("q", QUERIES[0])
    made.push({"A": table([(1, 1, 1)]), "B": table([(2, 1, 2)])})
    made.stop()
    assert query.results().select(["v", "w"]).to_pylist() == [{"v": 1, "w": 2}]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda s: s.stream("A", SCHEMA), "stream A already exists"),
        (lambda s: s.stream("a b", SCHEMA), "cannot name a stream"),
        (lambda s: s.stream("D", SCHEMA, timestamps="sundial"), "external, internal or latent"),
        (lambda s: s.stream("D", SCHEMA, skew=-1), "negative skew"),
        (lambda s: s.push("Z", table([])), "there is no stream Z"),
    ],
)
def test_mistakes_are_named(action, message):
    with pytest.raises(ms.InputError, match=message):
        action(session())


def test_without_spark_and_checkpoint_a_session_is_in_this_process():
    made = ms.Session(scheduling="bfs")
    assert isinstance(made, EmbeddedSession)
    assert made.scheduling.name == "bfs"


DECLARED = pa.schema(
    {
        "ts": pa.int32(),
        "k": pa.int16(),
        "d": pa.decimal128(9, 2),
        "f": pa.float32(),
        "at": pa.timestamp("us", "Asia/Tokyo"),
    }
)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "rows",
    [
        [{"ts": 1, "k": 7, "d": Decimal("1.5"), "f": 1.5, "at": NOON}],
        {"ts": [1], "k": [7], "d": [Decimal("1.5")], "f": [1.5], "at": [NOON]},
        pa.table({"ts": [1], "k": [7], "d": [Decimal("1.5")], "f": pa.array([1.5], pa.float32()), "at": [NOON]}),
        [{"ts": 1, "k": None, "d": None, "f": None, "at": None}],
        pa.table({"ts": [1], "k": [None], "d": [None], "f": [None], "at": [None]}),
    ],
    ids=["rows", "columns", "Arrow", "no values", "Arrow without values"],
)
def test_rows_take_the_declared_types_where_their_values_fit(rows):
    session = EmbeddedSession().stream("S", DECLARED)
    query = session.query("q", "SELECT k, d, f, at FROM S [RANGE 5]")
    session.push("S", rows)
    session.push("S", [])
    session.stop()
    assert query.results().select(["k", "d", "f", "at"]).schema.types == DECLARED.types[1:]
    assert query.results()["k"].to_pylist() in ([7], [None])


@pytest.mark.parametrize(
    "rows",
    [
        [{"ts": 1, "k": 10**6, "d": None, "f": None, "at": None}],
        [{"ts": 1, "k": 7, "d": 1.5, "f": None, "at": None}],
        pa.table({"ts": [1], "k": [10**6], "d": [None], "f": [None], "at": [None]}),
        pa.table({"ts": [1], "k": ["7"], "d": [None], "f": [None], "at": [None]}),
        pa.table({"ts": [1], "k": [7], "d": [None], "f": [None], "at": [NOON.replace(tzinfo=None)]}),
    ],
    ids=["too large", "a float for a decimal", "too large in Arrow", "text", "no zone"],
)
def test_rows_that_would_change_on_the_way_are_refused(rows):
    session = EmbeddedSession().stream("S", DECLARED)
    with pytest.raises(ms.InputError, match="of stream S is"):
        session.push("S", rows)


@pytest.mark.parametrize("later", [False, True], ids=["at first", "while rows come"])
@pytest.mark.parametrize("strategy", ["genmig", "genmig_shortened", "parallel_track", "moving_state", "auto"])
def test_a_query_knows_how_late_the_rows_start_that_came_to_a_shared_part(strategy, later):
    """The register is behind them by the lateness; a split time made from it would cut off what they still give."""
    made = EmbeddedSession().stream("S", SCHEMA, lateness=5)
    cql = "SELECT a.v, b.v AS w FROM S [RANGE 13] AS a, S [RANGE 19] AS b WHERE a.k = b.k"
    twin = made.query("twin", cql)
    query = None if later else made.query("q", cql)
    for number, ticks in enumerate(([1, 1], [5, 3, 6], [12, 17], [19, 26, 31], [33, 35])):
        made.push("S", [{"ts": tick, "k": 1, "v": tick} for tick in ticks])
        if number == 0 and query is None:
            query = made.query("q", cql)
        if number == 1:
            assert query is not None
            query.migrate("(b a)", strategy)
    made.stop()
    assert query is not None and query.history[-1].status == "done"
    difference = ms.snapshot_equal(query.results(), twin.results())
    if later:
        whole_from = query.history[0].record["at"]
        late = [r for r in twin.results().to_pylist() if r["valid_to"] > whole_from]
        expected = pa.Table.from_pylist([{**r, "valid_from": max(whole_from, r["valid_from"])} for r in late])
        difference = ms.snapshot_equal(query.results(), expected)
    assert difference, str(difference)
