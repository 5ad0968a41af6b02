"""Moving state between slots and plans: whatever moves, whenever, a query gives what it would have given."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.generators import EVERYTHING, random_case
from tests.job.chain import Chain
from tests.job.many import Many
from tests.job.test_chain import (
    KEYS,
    KEYS_GROUPED,
    STAGES,
    Crash,
    _users_of_crash_points,
    as_multiset,
    rows,
    tables,
)
from tests.job.test_sharing import ASKED, CATALOG, Watched, rows_at
from tests.profiles import always, mixed

import midstream as ms
from midstream.adaptation.group_moves import BalancePolicy
from midstream.adaptation.policy import Policy
from midstream.api import ask
from midstream.checkpoint.collect import collect
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run as run_embedded
from midstream.distribution.balancing import PATIENCE
from midstream.distribution.fragments import Route
from midstream.job.batch import Batch
from midstream.job.commands.accounts import history_of
from midstream.job.queries.running_query import Cutting, RunningQuery
from midstream.job.slots.class_dealing import ClassLoads
from midstream.job.slots.measuring import Measured, measured
from midstream.job.slots.rerouting import Rerouter
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.task.memory import Memory
from midstream.optimizer.plans import enumerate_plans

ROWS = KEYS.replace("A [RANGE 20]", "A [PARTITION BY k ROWS 3]")
FOR_EVER = KEYS.replace("A [RANGE 20]", "A [UNBOUNDED]")
ENTERED = KEYS.replace("SELECT", "SELECT ISTREAM")
LEFT = KEYS.replace("SELECT", "SELECT DSTREAM")
HOPS = KEYS_GROUPED.replace("C [RANGE 20]", "C [HOP 20, 5]")
QUERIES = {
    "join": KEYS,
    "groups": KEYS_GROUPED,
    "distinct": STAGES,
    "rows": ROWS,
    "unbounded": FOR_EVER,
    "istream": ENTERED,
    "dstream": LEFT,
    "hops": HOPS,
}


@pytest.mark.parametrize("name", always(5, QUERIES))
def test_moving_state_between_plans_of_several_stages(name, tmp_path):
    query, inputs = QUERIES[name], tables(rows=60, last=120)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    got = chain.run(question.tables, 25, {2: ("(A (B C))", "moving_state"), 4: ("((A B) C)", "moving_state")})
    assert chain.moves == 2
    assert chain.query.plan.text == "((A B) C)"
    for record, batch in zip(history_of(chain.driver, chain.query), (2, 4), strict=True):
        assert (record["status"], record["start_batch"], record["end_batch"]) == ("done", batch, batch)
        assert (record["strategy"], record["batches"], record["duration"]) == ("moving_state", 1, 0)
        assert record["processed_twice"] > 0 or record["peak_extra_rows"] == 0
    expected = ms.run(query, inputs)
    assert got.num_rows
    assert ms.snapshot_equal(got, expected)
    if name in ("join", "unbounded"):
        assert as_multiset(got) == as_multiset(expected)


def test_a_stream_that_is_behind_still_meets_what_others_have_left_behind(tmp_path):
    query = KEYS.replace("RANGE 20", "RANGE 10")
    empty = pa.table(rows((0, 0, 0))).slice(0, 0)
    question = ask(query, dict.fromkeys("ABC", empty))
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    chain.batch({"A": rows((1, 1, 0), (9, 9, 20)), "B": rows((1, 7, 5), (9, 9, 20)), "C": rows((0, 0, 3))})
    chain.batch({"A": rows((9, 9, 20))})
    assert chain.manifest.streams.registers == {"A": 20, "B": 20, "C": 3}
    chain.migrate("(A (B C))", "moving_state")
    chain.batch({"C": rows((2, 7, 6))})
    chain.batch({}, end=True)
    assert chain.moves == 1
    assert chain.results().to_pylist() == [{"a": 1, "c": 7, "valid_from": 6, "valid_to": 11}]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(("before", "after"), always(1, [(1, 3), (4, 2)]))
def test_another_number_of_slots(name, before, after, tmp_path):
    query, inputs = QUERIES[name], tables(rows=60, last=120)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=before, plan="((A B) C)")
    for part in chain.cut(question.tables, 25)[:3]:
        chain.batch(part)
    chain = Chain(question.plan, question.catalog, tmp_path, resize=after)
    got = chain.run(question.tables, 25)
    assert chain.driver.state.slots == after
    (told,) = chain.manifest.slots.moves
    assert told["slots"] == [before, after]
    assert ms.snapshot_equal(got, ms.run(query, inputs))


ONE_KEY = KEYS.replace("B.v = C.v", "B.k = C.k")


@pytest.mark.parametrize(
    ("strategy", "after"),
    always(4, mixed(["genmig", "parallel_track", "moving_state_paced", "genmig_reference_point"], [0, 1])),
)
def test_a_migration_inside_tasks_is_cancelled(strategy, after, tmp_path):
    chain = cancelled(ONE_KEY, strategy, after, tmp_path)
    assert len(chain.query.staged.fragments) == 1


@pytest.mark.parametrize("name", ["join", "groups", "distinct", "hops"])
@pytest.mark.parametrize("after", always(1, [1, 0, 2, 4]))
def test_a_migration_side_by_side_is_cancelled(name, after, tmp_path):
    chain = cancelled(QUERIES[name], "genmig", after, tmp_path)
    assert chain.query.staged.stages > 1


def cancelled(query: str, strategy: str, after: int, folder: Path) -> Chain:
    """A chain whose migration was cancelled some batches after it began."""
    inputs = tables(rows=60, last=120)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, folder, slots=3, plan="((A B) C)")
    parts = chain.cut(question.tables, 15)
    for i, part in enumerate(parts):
        if i == 3:
            chain.migrate("(A (B C))", strategy)
        if i == 3 + after and chain.query.migration is not None:
            chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    assert chain.query.plan.text == "((A B) C)"
    assert chain.query.migration is None
    (record,) = history_of(chain.driver, chain.query)
    assert (record["status"], record["new_plan"]) == ("cancelled", "(A (B C))")
    assert after == 0 or record["batches"] == after + 1
    expected = ms.run(query, inputs)
    assert ms.snapshot_equal(chain.results(), expected)
    if query in (KEYS, ONE_KEY):
        assert as_multiset(chain.results()) == as_multiset(expected)
    return chain


@pytest.mark.parametrize("again", [False, True])
def test_state_that_has_moved_is_not_given_up(again, tmp_path):
    inputs = tables(rows=60, last=120)
    question = ask(ONE_KEY, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    parts = chain.cut(question.tables, 15)
    for i, part in enumerate(parts):
        if i == 3:
            chain.migrate("(A (B C))", "moving_state")
        if i == 4:
            chain = Chain(question.plan, question.catalog, tmp_path) if again else chain
            with pytest.raises(ms.MigrationError, match="moving_state cannot be cancelled"):
                chain.driver.cancel_migration("q")
        chain.batch(part)
    chain.batch({}, end=True)
    assert chain.query.plan.text == "(A (B C))"
    assert ms.snapshot_equal(chain.results(), ms.run(ONE_KEY, inputs))


def test_a_migration_that_is_asked_for_right_after_another_was_cancelled_is_begun_once(tmp_path):
    inputs = tables(rows=60, last=120)
    question = ask(ONE_KEY, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    parts = chain.cut(question.tables, 15)
    for i, part in enumerate(parts):
        if i == 3:
            chain.migrate("(A (B C))", "genmig")
            chain.driver.cancel_migration("q")
            chain.migrate("(A (B C))", "parallel_track")
        chain.batch(part)
    chain.batch({}, end=True)
    assert [record["status"] for record in history_of(chain.driver, chain.query)] == ["cancelled", "done"]
    assert ms.snapshot_equal(chain.results(), ms.run(ONE_KEY, inputs))


def test_nothing_to_cancel_is_said(tmp_path):
    question = ask(KEYS, tables())
    chain = Chain(question.plan, question.catalog, tmp_path)
    with pytest.raises(ms.MigrationError, match="not migrating"):
        chain.driver.cancel_migration("q")


def skewed(rows: int = 400) -> dict[str, pa.Table]:
    """Streams of which some keys have most rows."""
    random = np.random.default_rng(3)

    def table() -> pa.Table:
        k = np.minimum(random.zipf(1.3, rows), 60)
        return pa.table({"k": k, "v": random.integers(0, 30, rows), "ts": np.sort(random.integers(0, 200, rows))})

    return {name: table() for name in "ABC"}


@pytest.mark.parametrize("name", ["groups", "distinct", "rows"])
def test_rebalancing_moves_the_state_of_groups_with_them(name, tmp_path):
    query, inputs = QUERIES[name], skewed()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=4)
    parts = chain.cut(question.tables, 200)
    chain.batch(parts[0])
    loads, before = ClassLoads.of(chain.manifest), chain.driver.state.routing
    assert loads.skew(before) > 1.2
    assert chain.driver.rebalance(None)
    for part in parts[1:]:
        chain.batch(part)
    chain.batch({}, end=True)
    (told,) = chain.manifest.slots.moves
    assert 0 < told["groups"] < 128
    assert loads.skew(chain.driver.state.routing) < loads.skew(before)
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))


def by_rows(batch: Batch, interval: float) -> Measured:
    """What is measured where every row takes a millisecond: tests do not depend on how fast a machine is."""
    seen = measured(batch, 1.0)
    return replace(seen, groups=tuple(replace(group, seconds=group.rate / 1000) for group in seen.groups))


def test_groups_move_by_themselves_only_after_a_while(tmp_path):
    inputs = skewed()
    question = ask(KEYS, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=8)
    chain.driver.deciding = SlotDecisions(BalancePolicy(), measure=by_rows)
    for i, part in enumerate(chain.cut(question.tables, 60)):
        chain.batch(part)
        if i < PATIENCE:
            assert chain.manifest.slots.moves == []
    chain.batch({}, end=True)
    moves = chain.manifest.slots.moves
    assert 1 <= len(moves) <= 4
    assert all(told["trigger"].startswith("The fullest slot has") for told in moves)
    decisions = chain.manifest.slots.decisions
    assert [told["batch"] + 1 for told in decisions if told["action"] == "move"] == [told["batch"] for told in moves]
    assert all(told["expected_skew"] < told["skew"] for told in decisions if told["action"] == "move")
    assert ms.snapshot_equal(chain.results(), ms.run(KEYS, inputs))


def test_a_routing_must_name_a_slot_for_each_group(tmp_path):
    question = ask(KEYS, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2)
    with pytest.raises(ms.MidstreamError, match="256 partition groups"):
        chain.driver.rebalance([0, 1, 2])
    assert not chain.driver.rebalance([0] * 128 + [1] * 128)


@pytest.mark.parametrize("name", ["join", "distinct", "rows"])
def test_a_crash_in_the_middle_of_moves_changes_nothing(name, tmp_path, monkeypatch):
    query, inputs = QUERIES[name], tables(rows=40, last=80)
    question = ask(query, inputs)
    crashes, reached, crash_at = 0, 0, 5

    def reach(point: str) -> None:
        nonlocal reached
        # Files are merged in a thread of its own, perhaps still that of another test: a crash there is no crash here.
        reached += threading.current_thread() is threading.main_thread()
        if reached == crash_at and threading.current_thread() is threading.main_thread():
            raise Crash(point)

    for module in _users_of_crash_points():
        monkeypatch.setattr(module, "reach", reach)
    while True:
        chain = Chain(question.plan, question.catalog, tmp_path, plan="((A B) C)", resize=2 + crashes % 3)
        try:
            changes = {i: (("(A (B C))", "((A B) C)")[i // 2 % 2], "moving_state") for i in range(1, 9, 2)}
            got = chain.run(question.tables, 12, changes)
            break
        except Crash:
            crashes += 1
            reached, crash_at = 0, 5 + crashes * 17 % 140
    assert crashes > 3
    assert len(chain.manifest.slots.moves) > 1
    assert ms.snapshot_equal(got, ms.run(query, inputs))
    collect(chain.driver.store, chain.driver.files)
    named = set().union(*(chain.driver.store.named(i).files for i in chain.driver.store.batch_ids()))
    assert set(chain.driver.files.list("state")) <= named


@dataclass
class Case:
    """A query over some streams with joins on different keys, and its inputs."""

    random: np.random.Generator

    def __post_init__(self) -> None:
        random = self.random
        self.names = "ABCDE"[: int(random.integers(3, 5))]
        self.inputs = {name: self._table() for name in self.names}
        self.query = self._query()

    def _table(self) -> pa.Table:
        rows = int(self.random.integers(15, 40))
        columns: dict[str, Any] = {"k": self.random.integers(0, 4, rows), "v": self.random.integers(0, 6, rows)}
        columns["s"] = [["x", "yy", None][i] for i in self.random.integers(0, 3, rows)]
        return pa.table({**columns, "ts": np.sort(self.random.integers(0, 80, rows))})

    def _query(self) -> str:
        random, names = self.random, self.names
        windows = ["RANGE 12", "RANGE 25", "HOP 12, 4", "UNBOUNDED", "PARTITION BY k ROWS 2"]
        sources = [f"{n} [{windows[random.choice(5, p=[0.4, 0.3, 0.1, 0.1, 0.1])]}]" for n in names]
        equal = []
        for i, name in enumerate(names[1:], 1):
            here, there = (["k", "v"][random.integers(2)] for _ in range(2))
            equal.append(f"{name}.{here} = {names[random.integers(i)]}.{there}")
        if random.random() < 0.3:
            equal.append(f"{names[0]}.v < {names[-1]}.v + 3")
        if random.random() < 0.3:
            equal.append(f"{names[0]}.k > 0")
        head, tail = [
            (", ".join(f"{n}.v AS {n.lower()}" for n in names), ""),
            (f"DISTINCT {names[0]}.v, {names[-1]}.k", ""),
            (f"{names[1]}.s, count(*) AS n, sum({names[0]}.v) AS t", f" GROUP BY {names[1]}.s"),
            ("count(*) AS n", ""),
            (f"ISTREAM {names[0]}.v, {names[-1]}.s", ""),
            (f"DSTREAM {names[0]}.v, {names[-1]}.s", ""),
        ][random.integers(6)]
        return f"SELECT {head} FROM {', '.join(sources)} WHERE {' AND '.join(equal)}{tail}"


def moved_at_random(seed: int, folder: Path) -> tuple[str, Any, int]:
    """A run with moves at random: other plans, other numbers of slots, restarts; and what it should have given.

    Every other one has so little memory that what moves goes through files in chunks.
    """
    random = np.random.default_rng(seed)
    memory = Memory(2**12) if seed % 2 else Memory()
    case = Case(random)
    question = ask(case.query, case.inputs)
    plans = [plan.text for plan in enumerate_plans(question.plan)]
    texts = [plans[i] for i in random.permutation(len(plans))[:4]]
    slots = int(random.integers(1, 5))
    chain = Chain(question.plan, question.catalog, folder, slots=slots, plan=texts[0], seed=seed, memory=memory)
    parts = chain.cut(question.tables, int(random.integers(10, 30)))
    told, moves = [case.query, texts[0]], 0
    for i, part in enumerate(parts):
        choice = random.random()
        if choice < 0.3:
            text = texts[random.integers(len(texts))]
            try:
                chain.migrate(text, ["moving_state", "auto", "genmig"][random.integers(3)])
                told.append(f"{i}: {text} {getattr(chain.query.migration, 'strategy', None)}")
            except ms.MigrationError as error:
                told.append(f"{i}: {text} refused: {error.message}")
        elif choice < 0.4 and chain.query.migration is not None:
            try:
                chain.driver.cancel_migration("q")
                told.append(f"{i}: cancelled")
            except ms.MigrationError as error:
                told.append(f"{i}: cannot be cancelled: {error.message}")
        elif choice < 0.5:
            moves += chain.moves
            slots = int(random.integers(1, 6))
            chain = Chain(question.plan, question.catalog, folder, resize=slots, seed=seed, memory=memory)
            told.append(f"{i}: {slots} slots")
        chain.batch(part)
    chain.batch({}, end=True)
    expected = ms.run(case.query, case.inputs)
    difference = ms.snapshot_equal(chain.results(), expected)
    return "\n".join([*told, str(difference)]), difference, moves + chain.moves


@pytest.mark.parametrize("seed", always(2, range(12)))
def test_moves_at_random(seed, tmp_path):
    told, difference, _ = moved_at_random(seed, tmp_path)
    assert difference, told


@pytest.mark.parametrize("seed", always(2, range(10)))
def test_every_kind_of_query_in_other_slots(seed, tmp_path):
    case = random_case(seed, EVERYTHING)
    question = ask(case.query, case.inputs, time=case.time)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=1 + seed % 4, seed=seed)
    parts = chain.cut(question.tables, 5)
    for i, part in enumerate(parts):
        if i in (len(parts) // 3, len(parts) // 2):
            chain = Chain(question.plan, question.catalog, tmp_path, resize=1 + (seed + i) % 5, seed=seed)
        chain.batch(part)
    chain.batch({}, end=True)
    expected = run_embedded(question.plan, question.tables, question.catalog, FiniteRun())
    assert ms.snapshot_equal(chain.results(), expected), case.replay()


def test_a_watched_query_tells_what_its_migration_was_predicted_to_take(tmp_path):
    question = ask(KEYS, tables())
    policy = Policy(mode="suggest")
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A B) C)", adaptive=policy)
    got = chain.run(question.tables, 30, {3: ("(A (B C))", "genmig")})
    (record,) = history_of(chain.driver, chain.query)
    assert record["predicted"]["strategy"] == "genmig"
    assert record["predicted"]["duration"] > 0
    assert ms.snapshot_equal(got, ms.run(KEYS, tables()))


@pytest.mark.parametrize("seed", always(2, range(6)))
def test_slots_change_under_queries_that_share(seed, tmp_path):
    rng = random.Random(seed)
    asked = [cql for cql in ASKED if "[ROWS" not in cql]
    watched = Watched(tmp_path, slots=1 + seed % 3, seed=seed)
    watched.add("q0", rng.choice(asked))
    for step in range(10):
        if rng.random() < 0.5:
            watched.add(f"q{len(watched.begun)}", rng.choice(asked))
        watched.batch(rows_at(rng, 4 * step))
        if rng.random() < 0.3:
            watched.many = Many(catalog=CATALOG, folder=tmp_path, resize=rng.randrange(1, 5), seed=seed)
    watched.many.batch({}, end=True)
    assert watched.many.manifest.slots.moves
    for name in watched.many.driver.queries:
        watched.check(name)


def test_what_stays_where_it_is_is_named_and_not_copied(tmp_path):
    question = ask(KEYS, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    parts = chain.cut(question.tables, 60)
    chain.batch(parts[0])
    before = {entry.place for entry in chain.manifest.entries()}
    routing, loads = list(chain.manifest.slots.routing), chain.manifest.slots.loads
    routing[max((g for g, slot in enumerate(routing) if slot == 2), key=lambda g: loads[g])] = 0
    assert chain.driver.rebalance(routing)
    batch = chain.made(1)
    assert batch.before is not None
    stayed = before & {entry.place for entry in batch.before.entries()}
    kept = {slot for stages in batch.before.segments.values() for slots in stages.values() for slot in slots}
    assert kept == {0, 1, 2}
    # Only slot 2 loses a group: all else lies where it lay.
    lost = {e.place for slots in chain.manifest.segments["q"].values() for e in slots.get(2, ())}
    assert before - lost <= stayed
    # The group that slot 2 loses is a range of each of its segments, which slot 0 names.
    assert chain.moves == 0
    assert batch.changes.moved is not None
    assert (batch.changes.moved["rows_sent"], batch.changes.moved["bytes_written"]) == (0, 0)
    assert {entry.origin for entry in batch.before.entries()} == before


def test_groups_behind_an_exchange_move_by_naming_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(Rerouter, "better", lambda *_: None)  # the exchange is there although nobody needs it
    question = ask("SELECT DISTINCT A.v FROM A [RANGE 50]", {"A": tables()["A"]})
    chain = Chain(question.plan, question.catalog, tmp_path, slots=1)
    chain.driver.state.routes["A"] = Route(("k",))
    cutting = Cutting(chain.driver.state.routes, True, chain.driver.state.group_bits)
    query = RunningQuery.of("q", "", chain.query.plan, {}, cutting)
    chain.driver.queries["q"] = query
    parts = chain.cut(question.tables, 30)
    chain.batch(parts[0])
    assert [fragment.stage for fragment in chain.query.staged.fragments] == [0, 1]
    files = {entry.file for entry in chain.manifest.entries()}
    chain = Chain(question.plan, question.catalog, tmp_path, resize=3)
    batch = chain.made(1)
    assert chain.moves == 0
    assert batch.before is not None
    assert {entry.file for entry in batch.before.entries()} == files
    assert set(batch.before.segments["q"][1]) == {0, 1, 2}
    chain.run(question.tables, 30)
    assert ms.snapshot_equal(chain.results(), ms.run("SELECT DISTINCT A.v FROM A [RANGE 50]", {"A": tables()["A"]}))
