"""Migrations in a session whose queries share: a part may run by another plan than its reader asked for."""

from __future__ import annotations

import random
from functools import cache
from itertools import cycle, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import always, examples
from tests.scheduling.watched import SCHEMA, Watched, drawn

import midstream as ms

TWO = "FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
THREE = "FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k"
COUNTED = f"SELECT A.k, count(*) AS n {THREE} GROUP BY A.k"
SUMMED = f"SELECT A.k, count(*) AS n, sum(B.v) AS s {TWO} GROUP BY A.k"
DISTINCT = f"SELECT DISTINCT A.k {TWO}"
PAIRS = f"SELECT A.k, B.v AS w, C.v AS u {THREE}"
QUERIES = [
    COUNTED,
    SUMMED,
    DISTINCT,
    PAIRS,
    f"SELECT A.v, B.v AS w {TWO} AND A.v > 1",
    f"SELECT DISTINCT A.k {THREE}",
    f"SELECT DSTREAM A.k, C.v {THREE}",
    "SELECT A.k, sum(C.v) AS n FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v GROUP BY A.k",
    "SELECT A.k, C.v FROM A [RANGE 9] JOIN B [RANGE 9] ON A.k = B.k LEFT JOIN C [RANGE 9] ON B.v = C.v",
    "SELECT DISTINCT k FROM A [RANGE 9]",
    "SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k",
]
STRATEGIES = [
    "moving_state",
    "moving_state_paced",
    "genmig",
    "genmig_reference_point",
    "genmig_shortened",
    "parallel_track",
    "auto",
]


@cache
def plans(cql: str) -> list[str]:
    return [plan.text for plan in ms.plans(cql, dict.fromkeys("ABC", SCHEMA))]


@examples(8)
@given(seed=st.integers(0, 10**6))
def test_queries_that_share_and_migrate_at_random_each_answer_as_if_alone(seed):
    rng = random.Random(seed)
    pool = rng.sample(QUERIES, rng.randrange(1, 4))
    watched = Watched()
    times = dict.fromkeys("ABC", 0)
    for name in [name for _ in range(12) for name in rng.sample("ABC", 3)]:
        if rng.random() < 0.75:
            times[name] += rng.choice([0, 3, 4, 6])
            watched.push(name, drawn(rng, times[name]))
            times[name] += 3
        if rng.random() < 0.35:
            cql = rng.choice(pool)
            plan = rng.choice([None, *plans(cql)])
            watched.add(f"q{len(watched.before)}", cql, plan=plan, emit_every=rng.choice([None, 4]))
        if watched.session.queries and rng.random() < 0.4:
            disturb(rng, watched, rng.choice(list(watched.session.queries)))
    watched.session.stop()
    for query in watched.session.queries.values():
        watched.check(query)


def disturb(rng: random.Random, watched: Watched, name: str) -> None:
    """Drops a query, cancels its migration, or has it migrate, which may be refused but not fail otherwise."""
    query = watched.session.queries[name]
    what = rng.random()
    if what < 0.15:
        watched.session.drop(name)
    elif what < 0.25 and query.migrating is not None:
        query.cancel_migration()
    else:
        part = rng.choice(["auto", "smallest", "whole"])
        try:
            query.migrate(rng.choice(plans(query.cql)), rng.choice(STRATEGIES), part=part, queue=rng.random() < 0.3)
        except ms.MigrationError:
            return


@pytest.mark.parametrize("strategy", always(2, ["moving_state_paced", "genmig", "moving_state", "parallel_track"]))
def test_a_query_migrates_out_of_a_part_that_runs_by_any_other_plan(strategy):
    targets = cycle(plans(PAIRS))
    for (runs, asked), wanted in zip(product(plans(PAIRS), repeat=2), targets, strict=False):
        watched = Watched()
        watched.add("first", PAIRS, plan=runs)
        moves = watched.add("second", PAIRS, plan=asked)
        assert moves.shares == ["part 1"]
        for time in (1, 5):
            if time == 5:
                moves.migrate(wanted, strategy)
            for name in "ABC":
                watched.push(name, [(time, 1, time)])
        watched.session.stop()
        assert moves.results().num_rows == 8, (runs, asked, wanted)
        for query in watched.session.queries.values():
            watched.check(query)


def test_a_query_that_has_gone_on_alone_answers_nothing_from_a_window_that_is_empty():
    watched = Watched()
    watched.add("first", COUNTED, plan="(A (B C))")
    moves = watched.add("second", COUNTED, plan="((A B) C)")
    watched.push("A", [(0, 0, 0)])
    moves.migrate("((A B) C)", "moving_state")
    watched.push("C", [(1, 0, 0)])
    watched.session.stop()
    assert moves.results().num_rows == 0


def test_windows_that_moved_from_a_distinct_are_not_shared_while_they_lack_duplicates():
    watched = Watched()
    moves = watched.add("distinct", DISTINCT, plan="(A/distinct B)")
    watched.push("A", [(20, 2, 1), (21, 2, 3)])
    moves.migrate("(A B/distinct)", "moving_state")
    late = watched.add("pairs", PAIRS)
    assert late.history[0].record["inherited"] == {}
    watched.push("C", [(24, 2, 1)])
    watched.push("B", [(25, 2, 2)])
    for name in "ABC":
        watched.push(name, [(50, 1, 1)])
    again = watched.add("again", PAIRS)
    assert again.history[0].record["inherited"].keys() == {"A", "B", "C"}
    watched.session.stop()
    for query in watched.session.queries.values():
        watched.check(query)


def test_a_part_cut_out_of_a_query_is_whole_only_from_where_that_query_began():
    watched = Watched()
    first = watched.add("first", DISTINCT, plan="(A B/distinct)")
    watched.push("B", [(16, 2, 2)])
    watched.add("plain", DISTINCT, plan="(A B)")
    watched.push("A", [(19, 2, 4)])
    watched.add("apart", DISTINCT, plan="(A/distinct B/distinct)")
    first.migrate("(A B)", "genmig_shortened", part="smallest")
    watched.push("B", [(37, 0, 4)])
    second = watched.add("second", DISTINCT, plan="(A B/distinct)")
    third = watched.add("third", DISTINCT, plan="(A B/distinct)")
    assert third.shares == second.shares == ["part 2", "part 3"]
    assert second.start == third.start == 37
    watched.session.stop()
    for query in watched.session.queries.values():
        watched.check(query)


def test_a_window_takes_over_no_segments_that_lack_what_it_still_needs():
    watched = Watched()
    slow = watched.add("every_4", SUMMED, plan="(A B/grouped)", emit_every=4)
    watched.push("A", [(7, 2, 4)])
    watched.add("always", SUMMED, plan="(A B/grouped)")
    watched.push("A", [(18, 0, 3)])
    watched.push("B", [(8, 2, 2)])
    watched.add("too", SUMMED, plan="(A B/grouped)", emit_every=4)
    watched.push("B", [(17, 1, 3)])
    grouped = "(SELECT k, count(*) AS n FROM B [RANGE 9] GROUP BY k) AS D"
    cql = f"SELECT A.k, D.n FROM A [RANGE 9], {grouped}, C [RANGE 9] WHERE A.k = D.k AND C.k = A.k"
    watched.add("newcomer", cql, plan="((A C) B)", emit_every=4)
    watched.push("A", [(34, 0, 3)])
    watched.session.stop()
    watched.check(slow)
