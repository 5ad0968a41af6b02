"""Queries by routed joins keep equal windows once and run equal one-way joins once, and each answers as if alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.job.test_sharing import Watched
from tests.profiles import always
from tests.scheduling.watched import SCHEMA, drawn, table
from typer.testing import CliRunner

from midstream.checkpoint.stored_queries import shared_with
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.cli.app import app
from midstream.job.task.works import TaskWork
from midstream.migration.legality import keeps_intervals

CHAIN = "FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v"
WITH_D = "FROM A [RANGE 9], B [RANGE 9], D [RANGE 9] WHERE A.k = B.k AND B.v = D.v"
TRAVEL = "A -> B -> C, B -> A -> C, C -> B -> A"
STAY = "A <- B <- C, B <- A <- C, C <- B <- A"
MIXED = "A <- B -> C, B -> A -> C, C -> B -> A"
PLAIN = f"SELECT A.v AS a, B.k AS b, C.k AS c {CHAIN}"
COUNTED = f"SELECT B.k AS k, count(*) AS n, max(A.v) AS m, min(C.k) AS c {CHAIN} GROUP BY B.k"
OTHERS = f"SELECT A.v AS a, B.k AS b, D.k AS d {WITH_D}"


class Four(Watched):
    """Chains over four streams."""

    streams = "ABCD"

    def work(self) -> list[list[TaskWork]]:
        """What tasks have to do in the next batch, by stage."""
        return [list(step.work) for step in self.many.made().steps()]


def filled(folder: Path, queries: Sequence[tuple[str, str]], batches: int = 8, **options: object) -> Four:
    watched = Four(folder)
    for i, (cql, plan) in enumerate(queries):
        watched.add(f"q{i}", cql, wanted=plan, **options)
    go_on(watched, 0, batches)
    return watched


def go_on(watched: Four, first: int, last: int) -> None:
    rng = random.Random(first)
    for step in range(first, last):
        watched.batch({name: drawn(rng, 4 * step, 6) for name in "ABCD"})


def check(watched: Four) -> None:
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def places(watched: Four, query: str) -> dict[str, int]:
    """The segments of a query, and how many rows each has."""
    stages = watched.many.manifest.segments[query].values()
    return {e.place: e.rows for slots in stages for entries in slots.values() for e in entries}


@pytest.mark.parametrize("plan", always(1, [MIXED, TRAVEL, STAY]))
def test_equal_routed_joins_keep_their_windows_once_and_run_once(plan, tmp_path):
    one = filled(tmp_path / "one", [(PLAIN, plan)])
    two = filled(tmp_path / "two", [(PLAIN, plan), (PLAIN, plan)])
    apart = filled(tmp_path / "apart", [(PLAIN, plan), (PLAIN, plan)], share=False)
    assert two.many.stored == one.many.stored > 0
    assert apart.many.stored == 2 * one.many.stored
    assert shared_with(two.many.manifest, "q0") == {"q1": one.many.stored}
    assert all(len(work.members) % 2 == 0 for stage in two.work() for work in stage), "all of both is together"
    assert two.many.manifest.segments["q0"] == two.many.manifest.segments["q1"]
    check(two)


def test_one_routed_join_alone_has_a_graph_for_each_of_its_fragments(tmp_path):
    watched = filled(tmp_path, [(PLAIN, TRAVEL)], 3)
    assert not any(work.shares for stage in watched.work() for work in stage)


def test_joins_with_other_streams_keep_the_windows_that_they_have_in_common_once(tmp_path):
    """They are not at the same frontier, so each keeps its windows up to date; their segments are the same."""
    other = "A -> B -> D, B -> A -> D, D -> B -> A"
    watched = filled(tmp_path, [(PLAIN, TRAVEL), (OTHERS, other)])
    common = set(places(watched, "q0")) & set(places(watched, "q1"))
    alone = filled(tmp_path / "alone", [(PLAIN, TRAVEL)])
    assert common and shared_with(watched.many.manifest, "q1")["q0"] > 0
    assert sum(places(watched, "q0").values()) == alone.many.stored
    check(watched)


def test_an_aggregate_shares_the_windows_of_a_plain_join_on_another_grid(tmp_path):
    watched = filled(tmp_path, [(PLAIN, TRAVEL), (COUNTED, TRAVEL)])
    queries = watched.many.driver.queries
    assert keeps_intervals(queries["q0"].plan.physical) and not keeps_intervals(queries["q1"].plan.physical)
    assert shared_with(watched.many.manifest, "q1").get("q0", 0) > 0
    check(watched)


def test_a_query_that_comes_later_shares_once_its_windows_hold_the_same(tmp_path):
    watched = filled(tmp_path, [(PLAIN, TRAVEL)], 4)
    watched.add("late", PLAIN, wanted=TRAVEL)
    go_on(watched, 4, 6)
    assert shared_with(watched.many.manifest, "late") == {}, "it has begun with empty windows"
    go_on(watched, 6, 12)
    assert places(watched, "late") == places(watched, "q0")
    watched.many.drop("q0")
    go_on(watched, 12, 14)
    assert places(watched, "late")
    check(watched)


@pytest.mark.parametrize("strategy", always(1, ["genmig", "moving_state"]))
def test_a_query_migrates_out_of_what_it_shares_and_shares_again_after(strategy, tmp_path):
    watched = filled(tmp_path, [(PLAIN, TRAVEL), (PLAIN, TRAVEL), (PLAIN, MIXED)], 5)
    watched.many.migrate_query("q1", MIXED, strategy)
    go_on(watched, 5, 8)
    watched.open()
    go_on(watched, 8, 14)
    assert watched.many.driver.queries["q1"].plan.text == MIXED
    assert places(watched, "q1") == places(watched, "q2")
    check(watched)


def test_explain_and_status_say_what_is_shared(tmp_path):
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
    for name in "ABC":
        session.stream(name, SCHEMA)
    queries = [session.query(name, PLAIN, plan=TRAVEL) for name in ("first", "second")]
    rng = random.Random(1)
    with session:
        session.start()
        for step in range(3):
            session.push({name: table(drawn(rng, 4 * step, 6)) for name in "ABC"})
        manifest = session._job.manifest
        assert manifest is not None
        (shared,) = shared_with(manifest, "first").values()
        assert f"Keeps {shared} rows of state together with second" in queries[0].explain()
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output
    assert f"keeps {shared} rows of state together with second" in shown
    assert f"keeps {shared} rows of state together with first" in shown


@pytest.mark.parametrize("seed", always(1, range(40)))
def test_routed_queries_that_come_go_and_migrate_each_answer_as_if_alone(seed, tmp_path):
    rng = random.Random(seed)
    watched, shared = Four(tmp_path, slots=1 + seed % 3, seed=seed), 0
    texts = {
        PLAIN: [TRAVEL, STAY, MIXED, "((A B) C)", "(A (B C))"],
        COUNTED: [TRAVEL, MIXED, "((A B) C)"],
        OTHERS: ["A -> B -> D, B -> A -> D, D -> B -> A", "A <- B <- D, B <- A <- D, D <- B <- A", "((A B) D)"],
    }
    cql = rng.choice(list(texts))
    plan = rng.choice([text for text in texts[cql] if "(" not in text])
    for name in ("q0", "q1"):
        watched.add(name, cql, wanted=plan)
    for step in range(14):
        running = watched.many.driver.queries
        if rng.random() < 0.3:
            cql = rng.choice(list(texts))
            watched.add(f"q{len(watched.begun)}", cql, wanted=rng.choice(texts[cql]))
        if len(running) > 2 and rng.random() < 0.2:
            watched.many.drop(rng.choice(list(running)))
        still = [q for q in watched.many.driver.queries.values() if q.migration is None]
        if still and step and rng.random() < 0.35:
            query = rng.choice(still)
            others = [plan for plan in texts[query.cql] if plan != query.plan.text]
            if watched.many.manifest is not None and query.name in watched.many.manifest.queries:
                watched.many.migrate_query(query.name, rng.choice(others), rng.choice(["genmig", "moving_state"]))
        watched.batch({name: drawn(rng, 4 * step, rng.randrange(1, 5)) for name in "ABCD" if rng.random() < 0.9})
        shared += any(shared_with(watched.many.manifest, name) for name in watched.many.driver.queries)
        if rng.random() < 0.15:
            watched.open()
    check(watched)
    assert shared
