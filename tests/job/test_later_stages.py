"""Queries in several stages share what comes after an exchange, too: it travels once, runs once and is kept once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.job.many import Many
from tests.job.test_sharing import ASKED, CATALOG, STAGES, Watched, filled, rows_at
from tests.profiles import always
from tests.scheduling.watched import drawn

from midstream.job.events import Scheduled
from midstream.job.task.works import TaskWork
from midstream.scheduling import scheduler

FROM = "FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v"
LATER = [
    STAGES,
    STAGES.replace("SELECT", "SELECT DISTINCT"),
    f"SELECT C.k AS c, count(*) AS n {FROM} GROUP BY C.k",
    f"SELECT C.k AS c, max(A.v) AS n {FROM} GROUP BY C.k",
    f"SELECT ISTREAM A.v, C.k AS w {FROM}",
    f"SELECT A.v, C.k AS w {FROM} AND A.v > 1",
    f"SELECT A.v, C.k AS w {FROM} AND C.k = 2",
    f"SELECT n, count(*) AS m FROM (SELECT C.k AS c, count(*) AS n {FROM} GROUP BY C.k) AS x GROUP BY n",
    "SELECT v, count(*) AS n FROM A [RANGE 9] GROUP BY v",
    "SELECT DISTINCT v FROM A [RANGE 9]",
    "SELECT v, sum(n) AS s FROM (SELECT k, v, count(*) AS n FROM A [RANGE 9] GROUP BY k, v) AS x GROUP BY v",
    "SELECT v FROM A [RANGE 9] EXCEPT SELECT v FROM B [RANGE 9]",
    "SELECT count(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k",
    "SELECT A.v AS a, B.k AS b FROM A [RANGE 9] LEFT JOIN B [RANGE 9] ON A.v = B.v",
    "SELECT v, count(*) AS n FROM A [RANGE 9] GROUP BY v UNION ALL SELECT v, count(*) AS n FROM A [RANGE 9] GROUP BY v",
]


def run(watched: Watched, batches: int, rows: int = 12) -> None:
    rng = random.Random(len(watched.batches))
    for _ in range(batches):
        watched.batch({name: drawn(rng, 4 * len(watched.batches), rows) for name in "ABC"})


def check_all(watched: Watched) -> None:
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def works(watched: Watched) -> list[list[object]]:
    """What the next batch has to do in each stage."""
    batch = watched.many.made()
    return [list(step.work) for step in batch.steps()]


def places(watched: Watched, query: str) -> set[str]:
    held = watched.many.manifest.segments[query]
    return {e.place for slots in held.values() for entries in slots.values() for e in entries}


def test_equal_queries_of_two_stages_keep_their_state_once_and_send_once(tmp_path):
    one = filled(tmp_path / "one", [STAGES])
    two = filled(tmp_path / "two", [STAGES, STAGES])
    assert two.many.stored == one.many.stored
    assert two.many.manifest.segments["q0"] == two.many.manifest.segments["q1"]
    for stage in works(two):
        (work,) = stage
        assert isinstance(work, TaskWork) and work.shares
        for q0, q1 in zip(work.members[: len(work.members) // 2], work.members[len(work.members) // 2 :], strict=True):
            assert (q0.work.query, q1.work.query) == ("q0", "q1")
            assert q0.work.port == q1.work.port and q0.work.received == q1.work.received
            assert not q0.work.silent and q1.work.silent is (q1.work.fragment.reader is not None)
    check_all(two)


def test_a_new_query_starts_from_what_a_later_stage_holds(tmp_path):
    watched = filled(tmp_path, [STAGES], batches=6)
    watched.add("same", STAGES)
    watched.add("distinct", STAGES.replace("SELECT", "SELECT DISTINCT"))
    run(watched, 5)
    for name in ("same", "distinct"):
        (started,) = watched.many.history(name)
        assert started["inherited"] == {"A": 0, "B": 0, "C": 0} and started["shares"] == ["q0"]
        assert places(watched, "q0") <= places(watched, name)
    assert places(watched, "same") == places(watched, "q0")
    watched.many.drop("q0")
    run(watched, 3)
    check_all(watched)


def test_a_new_query_that_joins_further_reads_for_itself_once_and_with_the_others_after(tmp_path):
    watched = filled(tmp_path, ["SELECT DISTINCT A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"], batches=5)
    watched.add("counted", "SELECT A.v, count(*) AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k GROUP BY A.v")
    ports = []
    for _ in range(2):
        senders = [member.work for member in works(watched)[0][0].members]  # type: ignore[attr-defined]
        ports.append({work.query: (work.port, work.silent) for work in senders})
        run(watched, 1)
    assert ports[0]["counted"][0] != ports[0]["q0"][0] and not ports[0]["counted"][1]
    (started,) = watched.many.history("counted")
    assert started["inherited"] == {"A": 0, "B": 0}
    run(watched, 4)
    check_all(watched)


def test_selections_from_a_join_in_two_stages_share_it_from_the_second_on(tmp_path):
    asked = [f"SELECT A.v, C.k AS w {FROM} AND A.v = {i}" for i in range(5)]
    watched = filled(tmp_path, asked)
    queries = watched.many.driver.queries
    assert queries["q0"].core is None and all(queries[f"q{i}"].core for i in range(1, 5))
    assert len(queries["q1"].staged.fragments) > 1
    assert places(watched, "q1") == places(watched, "q2") == places(watched, "q4")
    watched.open()
    assert watched.many.driver.queries["q3"].core == queries["q3"].core
    run(watched, 2)
    check_all(watched)


@pytest.mark.slow
def test_a_join_after_an_exchange_is_shared_by_queries_on_different_grids(tmp_path):
    watched = filled(tmp_path, [LATER[3], STAGES, LATER[4]], batches=8)
    assert str(watched.many.driver.queries["q0"].grid) != str(watched.many.driver.queries["q1"].grid)
    assert places(watched, "q1") < places(watched, "q0")
    assert places(watched, "q1") < places(watched, "q2")
    run(watched, 6)
    check_all(watched)


@pytest.mark.parametrize("strategy", always(1, ["moving_state", "genmig"]))
def test_a_query_in_stages_migrates_out_of_what_it_shares_and_joins_again_after(strategy, tmp_path):
    watched = filled(tmp_path, [STAGES, STAGES], batches=5)
    watched.many.migrate_query("q1", "(A (B C))", strategy)
    for _ in range(9):
        run(watched, 1, 8)
        if len(watched.batches) == 8:
            watched.open()
    assert watched.many.driver.queries["q1"].plan.text == "(A (B C))"
    sharing = watched.many.manifest.account("q1").sharing
    assert sharing is not None and sharing.own is False
    watched.add("q2", STAGES, wanted="(A (B C))")
    run(watched, 5, 8)
    assert places(watched, "q1") == places(watched, "q2") != places(watched, "q0")
    check_all(watched)


def test_what_is_shared_after_an_exchange_follows_the_groups_to_other_slots(tmp_path):
    watched = filled(tmp_path, [STAGES, STAGES, LATER[3]], batches=6)
    watched.many = Many(catalog=CATALOG, folder=tmp_path, resize=3, seed=1)
    run(watched, 3)
    assert watched.many.manifest.slots.count == 3
    assert places(watched, "q0") == places(watched, "q1") < places(watched, "q2")
    check_all(watched)


@pytest.mark.parametrize("seed", always(2, range(5)))
def test_queries_in_stages_added_and_dropped_at_random_each_answer_as_if_alone(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(scheduler, "TUPLE_ROWS", rng.choice([2, 10_000]))
    watched = Watched(tmp_path, slots=1 + seed % 3, seed=seed)
    asked = rng.sample([*LATER, *ASKED[seed % 2 :: 4]], 5)
    watched.add("q0", rng.choice(asked))
    for step in range(12):
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            watched.add(f"q{len(watched.begun)}", rng.choice(asked))
        running = watched.many.driver.queries
        if len(running) > 1 and rng.random() < 0.25:
            watched.many.drop(rng.choice(list(running)))
        if rng.random() < 0.3:
            watched.many.driver.apply(Scheduled(rng.choice(["dfs", "bfs", "rr", "batch:2", "chain"])))
        watched.batch(rows_at(rng, 4 * step))
        if rng.random() < 0.15:
            watched.open()
    check_all(watched)


def test_the_same_part_twice_in_one_query_is_shared_with_others(tmp_path: Path):
    watched = filled(tmp_path, [LATER[-1], LATER[-1], LATER[8]], batches=6)
    assert places(watched, "q0") == places(watched, "q1")
    check_all(watched)
