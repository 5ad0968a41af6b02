"""The path of a batch without Spark: slots, stages, migrations and crashes change nothing of what a query gives."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.generators import EVERYTHING, random_case
from tests.job.chain import Chain
from tests.profiles import always, mixed

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import crash_points
from midstream.checkpoint.collect import collect
from midstream.checkpoint.lease import Heartbeat, Lease
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run as run_embedded
from midstream.job.commands.accounts import history_of, statistics_of
from midstream.job.events import Scheduled
from midstream.job.outputs.progress import progress_of
from midstream.migration.registry import STRATEGIES

THREE = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
)
GROUPS = (
    "SELECT A.k, count(*) AS n FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k GROUP BY A.k"
)
STAGES = "SELECT DISTINCT A.v FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v"


def tables(rows: int = 120, last: int = 200, seed: int = 5) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 6, rows), "v": random.integers(0, 30, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, last, rows))})

    return {name: table() for name in "ABC"}


def as_multiset(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("seed", always(10, range(40)))
def test_random_queries_give_the_same_in_slots_and_stages(seed, tmp_path):
    case = random_case(seed, EVERYTHING)
    question = ask(case.query, case.inputs, time=case.time)
    expected = run_embedded(question.plan, question.tables, question.catalog, FiniteRun())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=1 + seed % 4, seed=seed)
    got = chain.run(question.tables, batch_rows=1 + seed * 7 % 40)
    difference = ms.snapshot_equal(got, expected)
    assert difference, f"{difference}\n{chain.query.staged}\n{case.replay()}"


@pytest.mark.parametrize(("strategy", "query"), always(6, mixed(sorted(STRATEGIES.keys() - {"auto"}), [THREE, GROUPS])))
def test_a_migration_changes_no_result(query, strategy, tmp_path):
    inputs = tables()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    got = chain.run(question.tables, 30, {3: ("(A (B C))", strategy), 8: ("((A C) B)", strategy)}, part="smallest")
    expected = ms.run(query, inputs)
    assert ms.snapshot_equal(got, expected)
    assert chain.query.plan.text == "((A C) B)"
    if query is THREE:
        assert as_multiset(got) == as_multiset(expected)
    parts = [record["part"] for record in history_of(chain.driver, chain.query)]
    assert parts == ["((A B) C) to (A (B C))", "(A (B C)) to ((A C) B)"]


@pytest.mark.parametrize("strategy", ["genmig", "moving_state_paced", "parallel_track"])
def test_a_part_migrates_between_operators_that_stay(strategy, tmp_path):
    """Four streams by one key below an aggregate; the join of A and B stays, and so does the aggregate."""
    inputs = {**tables(), "D": tables()["B"]}
    query = (
        "SELECT A.k, count(*) AS n FROM A [RANGE 20], B [RANGE 20], C [RANGE 20], D [RANGE 20] "
        "WHERE A.k = B.k AND B.k = C.k AND C.k = D.k GROUP BY A.k"
    )
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="(((A B) C) D)")
    got = chain.run(question.tables, 40, {3: ("((A B) (C D))", strategy), 8: ("(((A B) D) C)", strategy)}, "smallest")
    assert ms.snapshot_equal(got, ms.run(query, inputs))
    parts = [record["part"] for record in history_of(chain.driver, chain.query)]
    assert parts == ["(([A B] C) D) to ([A B] (C D))", "([A B] (C D)) to (([A B] D) C)"]


KEYS = "SELECT A.v AS a, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v"
KEYS_GROUPED = KEYS.replace("A.v AS a, C.v AS c", "C.k, count(*) AS n") + " GROUP BY C.k"


@pytest.mark.parametrize("query", always(1, [KEYS_GROUPED, KEYS, STAGES]))
def test_plans_of_several_stages_migrate_side_by_side(query, tmp_path):
    inputs = tables()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    got = chain.run(question.tables, 30, {3: ("(A (B C))", "genmig"), 8: ("((A B) C)", "auto")})
    expected = ms.run(query, inputs)
    assert chain.query.staged.stages > 1
    assert ms.snapshot_equal(got, expected)
    if query is KEYS:
        assert as_multiset(got) == as_multiset(expected)


@pytest.mark.parametrize("strategy", ["parallel_track", "genmig_shortened"])
def test_strategies_inside_tasks_are_refused_over_several_stages(strategy, tmp_path):
    question = ask(KEYS, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, plan="((A B) C)")
    with pytest.raises(ms.MigrationError, match="several stages") as refused:
        chain.migrate("(A (B C))", strategy)
    assert refused.value.hint == "use genmig or genmig_reference_point or moving_state_paced or moving_state"


def test_every_batch_of_a_migration_side_by_side_can_be_told(tmp_path):
    """What a batch did is told after its commit, which may have ended the migration."""
    question = ask(KEYS, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A B) C)")
    told = 0
    for i, parts in enumerate(chain.cut(question.tables, 30)):
        if i == 3:
            chain.migrate("(A (B C))", "genmig")
        told += progress_of(chain.batch(parts), chain.manifest)["queries"]["q"]["results"]
    assert chain.query.plan.text == "(A (B C))"
    assert told == chain.manifest.account("q").results


def test_the_history_outlives_a_restart(tmp_path):
    question = ask(THREE, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    parts = chain.cut(question.tables, 30)
    chain.batch(parts[0])
    chain.migrate("(A (B C))", "genmig")
    expected = {"trigger": "a test", "old_plan": "((A B) C)", "new_plan": "(A (B C))", "strategy": "genmig"}
    expected["part"] = "((A B) C) to (A (B C))"
    waiting = {**expected, "start_batch": None, "end_batch": None, "status": "waiting"}
    assert history_of(chain.driver, chain.query) == [waiting]
    chain.batch(parts[1])
    chain = Chain(question.plan, question.catalog, tmp_path, plan="((A B) C)")
    assert history_of(chain.driver, chain.query) == [{**waiting, "start_batch": 1, "status": "under way"}]
    chain.run(question.tables, 30)
    chain = Chain(question.plan, question.catalog, tmp_path)
    (record,) = history_of(chain.driver, chain.query)
    assert {**record, **expected, "start_batch": 1, "status": "done"} == record
    assert record["split_time"] == record["split_after"] + 0.5
    assert record["batches"] == record["end_batch"] - record["start_batch"] + 1
    assert record["duration"] == record["ended_at"] - record["started_at"] > 0
    assert record["processed_twice"] > 0
    assert record["peak_extra_rows"] > 0
    assert record["wall_seconds"] >= record["longest_silence_seconds"] > 0
    assert 1 < record["end_batch"] <= chain.manifest.batch_id


def test_statistics_tell_what_came_and_what_is_held(tmp_path):
    chain = silent_chain(tmp_path)
    assert statistics_of(chain.driver, chain.query)["batch"] is None
    chain.batch({"A": rows((1, 10, 100), (2, 11, 101)), "B": rows((1, 20, 90))})
    chain.batch({"A": rows((1, 12, 50)), "B": rows((1, 21, 102))})
    told = statistics_of(chain.driver, chain.query)
    assert (told["batch"], told["rows"], told["late"]) == (1, {"A": 3, "B": 2}, {"A": 1, "B": 0})
    assert told["registers"] == {"A": 101, "B": 102}
    assert told["results"] == chain.results().num_rows == 1
    assert sorted(state["rows"] for state in told["states"].values()) == [2, 2]
    assert told["state_rows"] == 4
    assert told["state_bytes"] == sum(state["bytes"] for state in told["states"].values()) > 0


TWO = "SELECT A.v AS a, B.v AS b FROM A [RANGE 50], B [RANGE 50] WHERE A.k = B.k"


def rows(*rows: tuple[int, int, int], kind: pa.DataType | None = None) -> pa.RecordBatch:
    k, v, ts = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
    return pa.RecordBatch.from_arrays([k, v, ts.cast(kind or pa.int64())], names=["k", "v", "ts"])


def silent_chain(folder: Path, kind: pa.DataType | None = None, **declared: Any) -> Chain:
    """A chain over two streams, of which B is declared as told."""
    empty = pa.table(rows((0, 0, 0), kind=kind)).slice(0, 0)
    query = TWO if kind is None else TWO.replace("50", "50 SECONDS")
    question = ask(query, {"A": empty, "B": empty})
    streams = dict(question.catalog.streams)
    streams["B"] = replace(streams["B"], **declared)
    return Chain(question.plan, replace(question.catalog, streams=streams), folder, slots=2)


def test_a_silent_stream_holds_others_back_unless_its_skew_is_declared(tmp_path):
    waiting = silent_chain(tmp_path / "waits")
    willing = silent_chain(tmp_path / "says", skew=5, on_demand=True)
    for chain in (waiting, willing):
        chain.batch({"A": rows((1, 10, 100)), "B": rows((1, 20, 90))})
        assert chain.manifest.streams.registers == {"A": 100, "B": 90}
        chain.batch({"A": rows((1, 11, 130))})
        chain.batch({"A": rows((1, 12, 131))})
    assert waiting.manifest.streams.registers == {"A": 131, "B": 90}
    assert waiting.results().num_rows == 0
    assert willing.manifest.streams.registers == {"A": 131, "B": 125}
    assert willing.results().column("a").to_pylist() == [10]


def test_rows_below_what_a_silent_stream_has_said_are_late(tmp_path):
    chain = silent_chain(tmp_path, skew=5, on_demand=True)
    chain.batch({"A": rows((1, 10, 100))})
    chain.batch({"A": rows((2, 11, 100))})
    assert chain.manifest.streams.registers["B"] == 95
    resumed = silent_chain(tmp_path, skew=5, on_demand=True)
    resumed.batch({"B": rows((1, 20, 94), (1, 21, 95))})
    manifest = resumed.manifest
    assert manifest.streams.late == {"B": 1}
    assert len(manifest.outputs.dead_letters.newer) == 1
    resumed.batch({}, end=True)
    assert resumed.results().column("b").to_pylist() == [21]


def test_a_silent_stamped_stream_follows_stamped_streams_only(tmp_path):
    stamped: dict[str, Any] = {"timestamps": "internal", "on_demand": True}
    chain = silent_chain(tmp_path, kind=pa.timestamp("us"), **stamped)
    a = rows((1, 10, 1_000), kind=pa.timestamp("us"))
    chain.batch({"A": a})
    assert "B" not in chain.manifest.streams.registers
    chain.driver.streams[0] = replace(chain.driver.streams[0], **stamped)
    chain.batch({"A": a})
    assert chain.manifest.streams.registers == {"A": 1_000, "B": 1_000}


def test_a_driver_that_lost_its_lease_commits_nothing(tmp_path):
    chain = silent_chain(tmp_path)
    chain.driver.commits.lease = Heartbeat(chain.driver.files, pause=0.01)
    chain.batch({"A": rows((1, 10, 100))})
    first = chain.driver.commits.lease.lease
    while first.beats < 3:
        time.sleep(0.01)
    with pytest.raises(ms.errors.JobError, match="another driver"):
        Lease.take(chain.driver.files, "other")
    chain.driver.commits.lease.beating.stop()
    other = Lease.take(chain.driver.files, "other", clock=lambda: time.monotonic() + 100)
    with pytest.raises(ms.errors.JobError, match="is lost"):
        chain.batch({"A": rows((1, 11, 101))})
    assert chain.driver.store.batch_ids() == [0]
    chain.driver.commits.lease.stop()
    other.check()


class Crash(BaseException):
    pass


@pytest.mark.parametrize(("query", "migrates"), [(THREE, True), (GROUPS, True), (STAGES, True)])
def test_a_crash_at_any_write_changes_nothing(query, migrates, tmp_path, monkeypatch):
    inputs = tables(rows=40, last=80)
    question = ask(query, inputs)
    expected = ms.run(query, inputs)
    migrations = {2: ("(A (B C))", "genmig")} if migrates else {}
    reached = 0
    crash_at = 7

    def reach(name: str) -> None:
        nonlocal reached
        reached += 1
        if reached >= crash_at:  # a thread of an earlier test may come here first, and must not come alone
            raise Crash(name)

    for module in _users_of_crash_points():
        monkeypatch.setattr(module, "reach", reach)
    crashes = 0
    while True:
        chain = Chain(question.plan, question.catalog, tmp_path, plan="((A B) C)")
        try:
            got = chain.run(question.tables, 8, migrations)
            chain.driver.store.wait()  # old manifests go beside the run, and a crash there is one of it
            break
        except Crash:
            crashes += 1
            reached, crash_at = 0, 3 + crashes * 13 % 150
    assert crashes > 3
    assert ms.snapshot_equal(got, expected)
    collect(chain.driver.store, chain.driver.files)
    named = set().union(*(chain.driver.store.named(i).files for i in chain.driver.store.batch_ids()))
    assert set(chain.driver.files.list("state")) <= named


def _users_of_crash_points() -> list:
    from midstream.checkpoint import local_files, store

    found = [module for module in (local_files, store) if hasattr(module, "reach")]
    assert found and all(module.reach is crash_points.reach for module in found)
    return found


@pytest.mark.parametrize(
    ("scheduling", "query"), always(4, mixed(["bfs", "rr", "k=2", "chain"], [THREE, GROUPS, STAGES]))
)
def test_every_schedule_gives_the_same_and_is_remembered(query, scheduling, tmp_path):
    inputs = tables()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3)
    parts = chain.cut(question.tables, 30)
    chain.batch(parts[0])
    assert chain.manifest.settings.scheduling == "dfs"
    chain.driver.apply(Scheduled(scheduling))
    chain.batch(parts[1])
    resumed = Chain(question.plan, question.catalog, tmp_path, slots=3)
    assert resumed.driver.state.settings.scheduling == scheduling
    assert ms.snapshot_equal(resumed.run(question.tables, 30), ms.run(query, inputs))


@pytest.mark.parametrize("number", [0, 3])
def test_a_query_that_joins_at_two_places_goes_on_by_the_plan_it_had(number, tmp_path):
    """At both of them: a plan of which the checkpoint kept half would not find its states."""
    inputs = tables()
    query = f"{THREE} UNION ALL {THREE.replace('[RANGE 20]', '[RANGE 9]')}"
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, plan=ms.plans(query, inputs)[number])
    for parts in chain.cut(question.tables, 40)[:4]:
        chain.batch(parts)
    resumed = Chain(question.plan, question.catalog, tmp_path)
    assert resumed.query.plan.physical == chain.query.plan.physical
    assert ms.snapshot_equal(resumed.run(question.tables, 40), ms.run(query, inputs))
