"""Queries that come and go on the path of a batch: each answers as if alone, and common state is kept once."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.job.many import Many
from tests.job.test_chain import Crash, _users_of_crash_points
from tests.profiles import always
from tests.scheduling.test_session import JOIN, QUERIES, THREE
from tests.scheduling.watched import SCHEMA, WINDOW, drawn, from_, table

import midstream as ms
from midstream.checkpoint.format import unseal
from midstream.checkpoint.manifest import FORMAT_VERSION, KIND, Manifest
from midstream.checkpoint.stored_queries import shared_with
from midstream.inputs import catalog_of
from midstream.job.events import Scheduled
from midstream.job.task.kept_tasks import Pool
from midstream.job.task.memory import Memory
from midstream.job.task.task import Task
from midstream.operators.join import SymmetricJoin
from midstream.scheduling import scheduler

CATALOG = catalog_of(dict.fromkeys("ABC", SCHEMA), "ts")
STAGES = "SELECT A.v, C.k AS w FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v"
ASKED = [
    *QUERIES,
    STAGES,
    "SELECT k, v FROM A [RANGE 9] UNION ALL SELECT k, v FROM B [RANGE 9]",
    "SELECT k, v FROM B [PARTITION BY k ROWS 2]",
    "SELECT count(*) AS n FROM C [ROWS 3]",
    "SELECT A.v, B.v AS w FROM A FOLLOWED BY B RECENT ON A.k = B.k",
    "SELECT A.v, B.v AS w FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k WITHIN 9",
]


class Watched:
    """A chain that remembers what it was given, so that every query can be asked of the oracle."""

    streams = "ABC"

    def __init__(self, folder: Path, slots: int = 2, seed: int = 0, memory: Memory | None = None) -> None:
        self.folder, self.slots, self.seed, self.memory = folder, slots, seed, memory or Memory()
        self.batches: list[dict[str, list[tuple[int, int, int]]]] = []
        self.begun: dict[str, int] = {}
        self.open()

    def open(self) -> None:
        """Goes on from the checkpoint, as after a crash."""
        catalog = catalog_of(dict.fromkeys(self.streams, SCHEMA), "ts")
        self.many = Many(catalog=catalog, folder=self.folder, slots=self.slots, seed=self.seed)
        self.many.driver.memory = self.memory

    def batch(self, rows: Mapping[str, list[tuple[int, int, int]]]) -> None:
        batches = {name: table(given).combine_chunks().to_batches()[0] for name, given in rows.items() if given}
        self.many.batch(batches)
        self.batches.append({name: sorted(given) for name, given in rows.items()})

    def add(self, name: str, cql: str, **options: object) -> None:
        self.begun[name] = len(self.batches)
        self.many.add(name, cql, **options)

    def check(self, name: str) -> None:
        """A result equals, from its start on, the query alone over streams that begin with what it inherited."""
        query = self.many.driver.queries[name]
        started = next((r for r in self.many.history(name) if r.get("event") == "started"), {})
        start = started.get("at")
        istream = "ISTREAM" in query.cql or "DSTREAM" in query.cql
        streams = {}
        for stream in self.streams:
            first = min(started.get("inherited", {}).get(stream, self.begun[name]), self.begun[name])
            before = [r for b in self.batches[first : self.begun[name]] for r in b.get(stream, ())]
            bounded = not any(word in query.cql for word in ("ROWS", "FOLLOWED"))
            window = 40 if "RANGE 40" in query.cql else WINDOW
            kept = [r for r in before if not bounded or r[0] + window >= (start or 0) - istream]
            streams[stream] = table([*kept, *(r for b in self.batches[self.begun[name] :] for r in b.get(stream, ()))])
        expected = ms.reference(query.cql, streams)
        if start is not None:
            expected = from_(expected, start)
        difference = ms.snapshot_equal(self.many.table(name), expected)
        assert difference, (name, query.cql, started, str(difference))


def rows_at(rng: random.Random, time: int) -> dict[str, list[tuple[int, int, int]]]:
    return {name: drawn(rng, time, rng.randrange(1, 6)) for name in "ABC" if rng.random() < 0.85}


@pytest.mark.parametrize("seed", always(2, range(8)))
def test_queries_added_and_dropped_at_random_each_answer_as_if_alone(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    reached, crash_at = 0, 10**9

    def reach(name: str) -> None:
        nonlocal reached
        reached += threading.current_thread() is threading.main_thread()
        if reached >= crash_at and threading.current_thread() is threading.main_thread():
            raise Crash(name)

    for module in _users_of_crash_points():
        monkeypatch.setattr(module, "reach", reach)
    monkeypatch.setattr(scheduler, "TUPLE_ROWS", 2)
    # Every other one has so little memory that windows and what follows from them go through files in chunks.
    watched = Watched(tmp_path, slots=1 + seed % 3, seed=seed, memory=Memory(2**12) if seed % 2 else None)
    watched.add("q0", rng.choice(ASKED))
    for step in range(16):
        new = [f"q{len(watched.begun) + i}" for i in range(rng.choice([0, 0, 1, 1, 2]))]
        asked = {name: rng.choice(ASKED) for name in new}
        for name, cql in asked.items():
            watched.add(name, cql)
        running = watched.many.driver.queries
        if len(running) > 1 and rng.random() < 0.3:
            watched.many.drop(rng.choice(list(running)))
        if rng.random() < 0.3:
            watched.many.driver.apply(Scheduled(rng.choice(["dfs", "bfs", "rr", "batch:2", "chain"])))
        rows = rows_at(rng, 4 * step)
        there = list(watched.many.driver.queries)
        if rng.random() < 0.25 and step:
            reached, crash_at = 0, rng.randrange(1, 20)
            try:
                watched.batch(rows)
            except Crash:
                crash_at = 10**9
                watched.open()
                for name in set(watched.many.driver.queries) - set(there):
                    watched.many.drop(name)
                for name in there:
                    if name not in watched.many.driver.queries:
                        watched.many.add(name, asked[name])
                if watched.many.next_batch == len(watched.batches):
                    watched.batch(rows)
                else:
                    watched.batches.append({name: sorted(given) for name, given in rows.items()})
            crash_at = 10**9
        else:
            watched.batch(rows)
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def filled(folder: Path, queries: list[str], batches: int = 12, **options: object) -> Watched:
    watched = Watched(folder)
    for i, cql in enumerate(queries):
        watched.add(f"q{i}", cql, **options)
    rng = random.Random(3)
    for step in range(batches):
        watched.batch({name: drawn(rng, 4 * step, 12) for name in "ABC"})
    return watched


def test_equal_queries_keep_their_state_once(tmp_path):
    one = filled(tmp_path / "one", [THREE])
    two = filled(tmp_path / "two", [THREE, THREE])
    apart = filled(tmp_path / "apart", [THREE, THREE], share=False)
    assert two.many.stored == one.many.stored
    assert apart.many.stored == 2 * one.many.stored
    assert shared_with(two.many.manifest, "q0") == {"q1": one.many.stored}
    assert shared_with(apart.many.manifest, "q0") == {}
    assert two.many.table("q0").equals(two.many.table("q1"))
    assert two.many.manifest.segments["q0"] == two.many.manifest.segments["q1"]
    written = unseal(KIND, FORMAT_VERSION, two.many.manifest.to_bytes(), "it")["segments"]
    assert {slot: type(held) for slot, held in written["q0"]["0"].items()} == dict.fromkeys(written["q1"]["0"], list)
    assert list(written["q1"]["0"].values()) == list(range(len(written["q1"]["0"])))
    assert Manifest.from_bytes(two.many.manifest.to_bytes()) == two.many.driver.store.latest()


def test_different_joins_of_one_window_keep_it_once_and_the_second_starts_from_it(tmp_path):
    watched = Watched(tmp_path)
    rng = random.Random(2)
    watched.add("with b", "SELECT A.k, A.v, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    for step in range(4):
        watched.batch({name: drawn(rng, 4 * step) for name in "ABC"})
    watched.add("with c", "SELECT A.k, A.v, C.v AS u FROM A [RANGE 9], C [RANGE 9] WHERE A.k = C.k")
    for step in range(4, 12):
        watched.batch({name: drawn(rng, 4 * step) for name in "ABC"})
    (started,) = watched.many.history("with c")
    assert started["inherited"] == {"A": 0}
    assert started["shares"] == ["with b"]
    places: dict[str, list[set[str]]] = {"A": [], "B": [], "C": []}
    for name in ("with b", "with c"):
        entries = [e for slots in watched.many.manifest.segments[name].values() for es in slots.values() for e in es]
        for stream in "ABC":
            held = {e.place for e in entries if f"Source {stream}" in e.state}
            if held:
                places[stream].append(held)
    assert [len(held) for held in places.values()] == [2, 1, 1]
    assert places["A"][0] == places["A"][1]
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def test_dropping_a_query_frees_just_what_no_other_uses(tmp_path):
    watched = filled(tmp_path, [QUERIES[0], QUERIES[0], QUERIES[12]])
    everything = watched.many.stored
    watched.many.drop("q0")
    watched.batch({})
    assert 0 < watched.many.stored <= everything
    held = {e.state for e in watched.many.manifest.entries()}
    assert any("join" in state or "B" in state for state in held)
    watched.many.drop("q1")
    watched.batch({})
    assert all("Source B" not in e.state for e in watched.many.manifest.entries())
    watched.many.drop("q2")
    watched.batch({})
    assert watched.many.stored == 0


def test_queries_of_different_selections_share_the_join_from_the_second_on(tmp_path):
    watched = filled(tmp_path, [f"{THREE} AND A.v = {i}" for i in range(5)])
    queries = watched.many.driver.queries
    assert queries["q0"].core is None
    assert all(queries[f"q{i}"].core for i in range(1, 5))
    segments = watched.many.manifest.segments
    assert segments["q1"] == segments["q2"] == segments["q4"]
    watched.open()
    assert watched.many.driver.queries["q3"].core == queries["q3"].core
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


@pytest.mark.parametrize("strategy", always(1, ["genmig", "moving_state"]))
def test_a_query_migrates_out_of_what_it_shares_and_joins_again_after(strategy, tmp_path):
    watched = filled(tmp_path, [THREE, THREE], batches=5)
    rng = random.Random(4)
    watched.many.migrate_query("q1", "(A (B C))", strategy)
    for step in range(5, 14):
        watched.batch({name: drawn(rng, 4 * step, 8) for name in "ABC"})
        if step == 8:
            watched.open()
    assert watched.many.driver.queries["q1"].plan.text == "(A (B C))"
    sharing = watched.many.manifest.account("q1").sharing
    assert sharing is not None and sharing.own is False
    watched.add("q2", THREE, wanted="(A (B C))")
    for step in range(14, 20):
        watched.batch({name: drawn(rng, 4 * step, 8) for name in "ABC"})
    assert watched.many.manifest.segments["q1"] == watched.many.manifest.segments["q2"]
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def test_a_query_that_begins_with_a_migration_starts_from_nothing(tmp_path):
    watched = filled(tmp_path, [THREE], batches=5)
    watched.add("new", THREE)
    watched.many.migrate_query("new", "(A (B C))", "genmig")
    rng = random.Random(4)
    for step in range(5, 11):
        watched.batch({name: drawn(rng, 4 * step, 8) for name in "ABC"})
    started, migrated = watched.many.history("new")
    assert started["inherited"] == {} and migrated["new_plan"] == "(A (B C))"
    watched.many.batch({}, end=True)
    watched.check("new")


@pytest.mark.parametrize("table", ["bfs", "rr", "batch:2", "chain"])
def test_the_fork_delivers_to_all_who_read_it_under_every_table(table, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "TUPLE_ROWS", 2)
    monkeypatch.setattr(scheduler, "RECHAIN_STEPS", 3)
    chains = spied(monkeypatch, "chain")
    watched = filled(
        tmp_path, [f"SELECT {given} {JOIN}" for given in ("A.v, B.v AS w", "A.v + B.v AS s", "A.v * B.v AS p")]
    )
    watched.many.driver.apply(Scheduled(table))
    watched.batch({name: drawn(random.Random(9), 60, 12) for name in "AB"})
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)
    assert any(node.is_fork for (graph,) in chains for node in graph.nodes) == (table == "chain")


def spied(monkeypatch, name: str) -> list[tuple[Any, ...]]:
    """The arguments with which a function of the scheduler's is called from now on."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(scheduler, name)

    def noting(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(scheduler, name, noting)
    return calls


@pytest.mark.parametrize("cql", [THREE, STAGES])
def test_a_watched_query_is_told_of_shared_operators_as_of_its_own(cql, tmp_path):
    def operators(folder: Path, count: int) -> list[tuple[str, int]]:
        watched = filled(folder, [cql] * count, batches=3)
        batch = watched.many.made()
        batch.options = replace(batch.options, watched=frozenset(["q0"]))
        rows = {name: table(drawn(random.Random(1), 12, 9)).combine_chunks().to_batches()[0] for name in "ABC"}
        reports = watched.many.cluster.run(batch, rows)
        parts = [part for r in reports for (query, _), part in r.fragments.items() if query == "q0"]
        return sorted((o.label, o.work.taken) for part in parts for o in part.operators)

    alone = operators(tmp_path / "alone", 1)
    assert len(alone) > 2
    assert operators(tmp_path / "shared", 2) == alone


def test_a_join_is_shared_by_queries_that_answer_on_different_grids(tmp_path):
    join = JOIN.replace("RANGE 9", "RANGE 40")
    asked = {
        "groups": f"SELECT A.k, sum(B.v) AS s {join} GROUP BY A.k",
        "pairs": f"SELECT A.k, B.v {join}",
        "changes": f"SELECT ISTREAM A.k, B.v {join}",
        "most": f"SELECT A.k, max(B.v) AS m {join} GROUP BY A.k",
    }
    watched = Watched(tmp_path)
    rng = random.Random(6)
    watched.add("groups", asked["groups"])
    for step in range(20):
        if step in (5, 6, 11):
            name = list(asked)[len(watched.begun)]
            watched.add(name, asked[name])
        watched.batch({name: drawn(rng, 4 * step, 5) for name in "AB"})
    queries = watched.many.driver.queries
    assert str(queries["groups"].grid) != str(queries["pairs"].grid)
    segments = watched.many.manifest.segments
    places = {n: {e.place for slots in segments[n].values() for es in slots.values() for e in es} for n in segments}
    assert places["pairs"] < places["groups"]
    assert places["pairs"] < places["changes"]
    assert watched.many.history("pairs")[0]["shares"] == ["groups"]
    batch = watched.many.made()
    (work,) = batch.steps()[0].work
    assert work.shares
    operators = Task(work, watched.many.driver.files, 0, Pool()).graph.live.operators
    assert sum(isinstance(operator, SymmetricJoin) for operator in operators) == 1
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)
