"""Groups that move while their rows go to two slots: no result is lost, doubled or late, whatever happens meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job.chain import Chain
from tests.job.test_chain import GROUPS, STAGES, THREE, Crash, _users_of_crash_points, as_multiset, tables
from tests.job.test_group_moves import QUERIES, answer, chain_of, owned, read_by
from tests.job.test_sharing import ASKED as ALL_ASKED
from tests.job.test_sharing import Watched, rows_at
from tests.job.test_slot_decisions import pushed
from tests.profiles import always, examples
from tests.scheduling.watched import drawn, from_

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.collect import collect
from midstream.checkpoint.records import Fault
from midstream.job.task.lanes import Lane

SPLIT = "split_time_balancing"
ASKED = [cql for cql in ALL_ASKED if "ROWS" not in cql and "FOLLOWED" not in cql]
FINITE = {
    **{name: query for name, query in QUERIES.items() if name != "rows"},
    "sequence": "SELECT A.v, B.v AS w, B.ts FROM A FOLLOWED BY B ON A.k = B.k WITHIN 30",
    "as of": "SELECT A.v, B.v AS w, A.ts FROM A ASOF LEFT JOIN B ON A.k = B.k AND A.ts >= B.ts WITHIN 20",
    "changes": "SELECT ISTREAM k, count(*) AS n FROM A [RANGE 25] GROUP BY k",
    "counted": "SELECT k, count(*) AS n FROM A [RANGE 40] GROUP BY k",
    "hop": "SELECT A.k, count(*) AS n FROM A [HOP 20, 10], B [HOP 20, 10] WHERE A.k = B.k GROUP BY A.k",
}


def moved(routing: Sequence[int], slots: int, rng: random.Random, most: int = 60) -> list[int]:
    """A routing in which some groups have other slots."""
    routing, first = list(routing), rng.randrange(len(routing))
    for group in range(first, min(len(routing), first + rng.randint(1, most))):
        routing[group] = rng.randrange(slots)
    return routing


CASES = [("join", True), ("hop", True), *((name, False) for name in sorted(FINITE))]


@pytest.mark.parametrize(("name", "scattered"), always(4, CASES))
def test_each_slot_answers_for_its_side_of_the_split_time(name, scattered, tmp_path):
    query, inputs = FINITE[name], tables(rows=120, last=240)
    chain, parts = chain_of(query, tmp_path, inputs, slots=3)
    begin = len(parts) // 4
    for part in parts[:begin]:
        chain.batch(part)
    before = list(chain.driver.state.routing.groups)
    other = [(slot + 1) % 3 for slot in before]
    wanted = [
        new if (group % 2 if scattered else group % 64 < 40) else old
        for group, (old, new) in enumerate(zip(before, other, strict=True))
    ]
    assert chain.driver.rebalance(wanted, protocol=SPLIT)
    ways = []
    for part in parts[begin:]:
        chain.batch(part)
        told = chain.manifest.slots.doubled
        ways.append(None if told is None else told.queries["q"])
        assert list(chain.manifest.slots.routing) == (wanted if told is None else before)
    apart = not scattered and len(chain.query.staged.fragments) == 1
    assert set(ways) == {"groups" if apart else "whole", None}
    assert chain.moves == 0, "state was sent"
    record = chain.manifest.slots.moves[-1]
    assert (record["protocol"], record["rows_sent"], record["bytes_written"]) == (SPLIT, 0, 0)
    assert not [name for name in chain.manifest.segments if "~" in name]
    owned(chain)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))
    if name in ("join", "two columns"):
        assert as_multiset(chain.results()) == as_multiset(answer(query, inputs))


JOINS = {
    "bounds": "SELECT A.v AS a, A.window_start AS s, C.v AS c FROM A [TUMBLE 30], B [TUMBLE 30], C [TUMBLE 30]"
    " WHERE A.k = B.k AND B.v = C.v AND A.window_start < B.window_end",
    "join": QUERIES["join"],
    "two columns": QUERIES["two columns"],
    "tree": "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 30], B [RANGE 40], C [RANGE 30]"
    " WHERE A.k = B.k AND B.k = C.k AND A.v < 25",
    "union": "SELECT A.v FROM A [RANGE 30], B [RANGE 40] WHERE A.k = B.k AND A.v < 20"
    " UNION ALL SELECT A.v FROM A [RANGE 30], C [RANGE 20] WHERE A.k = C.k",
    "two keys": "SELECT A.v AS a, C.k AS c FROM A [RANGE 30], B [RANGE 40], C [RANGE 30] WHERE A.k = B.k AND B.v = C.v",
    "any": "SELECT A.v AS a, B.v AS b FROM A [RANGE 30], B [RANGE 40] WHERE A.v < B.v AND A.v + B.v < 20",
    "filtered union": "SELECT A.v FROM A [RANGE 30], B [RANGE 40] WHERE A.k = B.k AND A.v < 20"
    " UNION ALL SELECT A.v FROM A [RANGE 30], C [RANGE 20] WHERE A.v = C.v",
}


@pytest.mark.parametrize("query", [FINITE["counted"], "SELECT DISTINCT v FROM A [RANGE 40]"])
def test_groups_move_at_once_where_nothing_has_come_that_the_old_slots_would_answer_for(query, tmp_path):
    inputs = {"A": tables(rows=120, last=240)["A"]}
    chain, parts = chain_of(query, tmp_path, inputs, slots=3)
    chain.batch({})
    before = list(chain.driver.state.routing.groups)
    wanted = [(slot + 1) % 3 if group % 64 < 40 else slot for group, slot in enumerate(before)]
    assert chain.driver.rebalance(wanted, protocol=SPLIT)
    for part in parts:
        chain.batch(part)
        assert list(chain.manifest.slots.routing) == wanted and chain.manifest.slots.doubled is None
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))


@pytest.mark.parametrize(("name", "scattered"), always(4, [("tree", True), *((name, False) for name in JOINS)]))
def test_the_sender_leaves_out_what_is_made_of_new_rows_alone(name, scattered, tmp_path):
    query, inputs = JOINS[name], tables(rows=120, last=240)
    chain, parts = chain_of(query, tmp_path, inputs, slots=3)
    begin = len(parts) // 4
    for part in parts[:begin]:
        chain.batch(part)
    before = list(chain.driver.state.routing.groups)
    wanted = [
        (slot + 1) % 3 if (group % 2 if scattered else group % 64 < 40) else slot for group, slot in enumerate(before)
    ]
    assert chain.driver.rebalance(wanted, protocol="ptlb")
    lasted = []
    for part in parts[begin:]:
        chain.batch(part)
        if chain.manifest.slots.doubled is not None:
            lasted.append(chain.manifest.streams.latest["A"])
        if len(lasted) == 2:
            chain, _ = chain_of(query, tmp_path, inputs)
    assert chain.manifest.slots.doubled is None and chain.moves == 0
    assert list(chain.manifest.slots.routing) == wanted
    # One window, and the batches by which registers follow: rows are kept as long as all their parts are valid.
    least = 30 if "RANGE" in query else 0  # how long rows of tumbling windows are valid depends on when they come
    assert least <= lasted[-1] - lasted[0] <= 41 + 3 * (lasted[1] - lasted[0])
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(query, read_by(query, inputs)))


@pytest.mark.parametrize("name", sorted(set(FINITE) - set(JOINS) - {"stages"}))
def test_ptlb_refuses_what_is_not_a_combination_of_rows(name, tmp_path):
    chain, parts = chain_of(FINITE[name], tmp_path, tables(rows=20), slots=2)
    chain.batch(parts[0])
    with pytest.raises(ms.MigrationError, match="query q: ptlb cannot move groups of this plan"):
        chain.driver.rebalance([1] * 100 + [0] * 156, protocol="ptlb")
    assert chain.driver.state.wanted is None


def test_new_rows_meet_old_ones_in_stages_that_a_query_has_for_the_sake_of_another(tmp_path):
    rng = random.Random(0)
    watched = Watched(tmp_path, slots=2)
    watched.add("by_value", "SELECT v, k FROM A [RANGE 30] WHERE v > 3")
    watched.add("by_value_joined", "SELECT A.v FROM A [RANGE 30], C [RANGE 30] WHERE A.v = C.v")
    watched.add("joined", JOINS["join"])
    assert len(watched.many.driver.queries["joined"].staged.fragments) > 1
    doubled = 0
    for step in range(24):
        if step == 4:
            driver = watched.many.driver
            assert driver.rebalance(moved(driver.state.routing.groups, driver.state.slots, rng, 200), protocol="ptlb")
        watched.batch(rows_at(rng, 4 * step))
        doubled += watched.many.manifest.slots.doubled is not None
    assert 6 < doubled < 18
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def test_ptlb_refuses_routed_joins(tmp_path):
    question = ask(JOINS["two keys"], tables(rows=20))
    plan = "A -> B -> C, B -> A -> C, C -> B -> A"
    chain = Chain(question.plan, question.catalog, tmp_path, plan=plan, slots=2)
    chain.batch(chain.cut(question.tables, 20)[0])
    with pytest.raises(ms.MigrationError, match="query q: ptlb cannot move groups of this plan: it joins by routes"):
        chain.driver.rebalance([1] * 100 + [0] * 156, protocol="ptlb")


@examples(6)
@given(name=st.sampled_from(sorted(JOINS)), seed=st.integers(0, 1_000_000))
def test_joins_move_by_any_protocol_at_random_moments(name, seed, tmp_path_factory):
    query, inputs, rng = JOINS[name], tables(rows=60, last=160), random.Random(seed)
    folder = tmp_path_factory.mktemp("joins")
    chain, parts = chain_of(query, folder, inputs, slots=rng.randint(2, 4), seed=seed)
    for part in parts:
        if rng.random() < 0.2 and chain.driver.manifest is not None:
            chain, _ = chain_of(query, folder, inputs, seed=seed)
        state = chain.driver.state
        with suppress(ms.MigrationError):
            wanted = moved(state.routing.groups, state.slots, rng, 200)
            chain.driver.rebalance(wanted, protocol=rng.choice(["mslb", SPLIT, "ptlb", "ptlb"]))
        chain.batch(part)
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(query, read_by(query, inputs))), f"{name} {seed}"


@examples(8)
@given(name=st.sampled_from(sorted(FINITE)), seed=st.integers(0, 1_000_000))
def test_moves_restarts_and_rescaling_at_random_moments(name, seed, tmp_path_factory):
    query, inputs, rng = FINITE[name], tables(rows=60, last=160), random.Random(seed)
    folder = tmp_path_factory.mktemp("doubled")
    chain, parts = chain_of(query, folder, inputs, slots=rng.randint(2, 4), seed=seed)
    for part in parts:
        state = chain.driver.state
        resting = state.manifest is None or state.manifest.slots.doubled is None
        match rng.choice(["stay", "move", "move", "rescale", "restart"]):
            case "move" if resting and state.slots > 1 and (state.wanted is None or state.wanted.slots == state.slots):
                chain.driver.rebalance(moved(state.routing.groups, state.slots, rng), protocol=SPLIT)
            case "rescale" if resting:
                chain.driver.rescale(rng.randint(1, 4))
            case "restart" if state.manifest is not None:
                chain, _ = chain_of(query, folder, inputs, seed=seed)
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), answer(query, inputs))
    assert difference, f"{difference}\n{name} {seed}"


@pytest.mark.parametrize("name", ["counted", "outer", "stages"])
def test_a_crash_at_any_write_changes_nothing(name, tmp_path, monkeypatch):
    query, inputs = FINITE[name], tables(rows=50, last=120)
    crashes, reached, crash_at = 0, 0, 5

    def reach(point: str) -> None:
        nonlocal reached
        reached += threading.current_thread() is threading.main_thread()
        if reached == crash_at and threading.current_thread() is threading.main_thread():
            raise Crash(point)

    for module in _users_of_crash_points():
        monkeypatch.setattr(module, "reach", reach)
    begun = set()
    while True:
        chain, parts = chain_of(query, tmp_path, inputs, slots=2)
        try:
            for part in parts[chain.next_batch :]:
                slots = chain.driver.manifest and chain.driver.manifest.slots
                if slots and slots.doubled is None and chain.next_batch % 2:
                    chain.driver.rebalance([1 - slot for slot in chain.driver.state.routing.groups], protocol=SPLIT)
                chain.batch(part)
                begun |= {chain.manifest.slots.doubled.begun} if chain.manifest.slots.doubled else set()
            chain.batch({}, end=True)
            break
        except Crash:
            crashes += 1
            reached, crash_at = 0, 5 + crashes * 17 % 31
    assert crashes and begun
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))
    collect(chain.driver.store, chain.driver.files)
    named = set().union(*(chain.driver.store.named(i).files for i in chain.driver.store.batch_ids()))
    assert set(chain.driver.files.list("state")) <= named


@pytest.mark.parametrize("query", [THREE, GROUPS], ids=["join", "groups"])
def test_sender_and_receiver_may_run_different_plans(query, tmp_path):
    inputs = tables(rows=80, last=160)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A B) C)")
    parts = chain.cut(question.tables, 16)
    chain.batch(parts[0])
    chain.migrate("(A (B C))", "moving_state", slots=[1])
    for part in parts[1:4]:
        chain.batch(part)
    assert [chain.query.in_slot(slot).plan.text for slot in (0, 1)] == ["((A B) C)", "(A (B C))"]
    assert chain.driver.rebalance([1] * 100 + [0] * 156, protocol=SPLIT)
    for part in parts[4:]:
        chain.batch(part)
    assert chain.manifest.slots.doubled is None and chain.moves == 0
    assert list(chain.manifest.slots.routing) == [1] * 100 + [0] * 156
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


def test_another_number_of_slots_waits_for_the_end(tmp_path):
    inputs = tables(rows=80, last=200)
    question = ask(STAGES, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A B) C)")
    parts = chain.cut(question.tables, 16)
    chain.batch(parts[0])
    assert chain.driver.rebalance([1] * 100 + [0] * 156, protocol=SPLIT)
    for part in parts[1:]:
        chain.batch(part)
        if chain.manifest.slots.doubled is not None and chain.driver.state.wanted_slots == 2:
            chain.driver.rescale(3)
            with pytest.raises(ms.MidstreamError, match="goes over to 3 slots already"):
                chain.driver.rebalance([0] * 256)
    assert [record["slots"] for record in chain.manifest.slots.moves] == [[2, 2], [2, 3]]
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(STAGES, inputs))


@pytest.mark.parametrize("seed", always(1, range(4)))
def test_queries_that_share_come_and_go_while_groups_move(seed, tmp_path):
    rng = random.Random(seed)
    watched = Watched(tmp_path, slots=2 + seed % 2, seed=seed)
    for number in range(3):
        watched.add(f"q{number}", rng.choice(ASKED))
    doubled = 0
    for step in range(18):
        driver = watched.many.driver
        with suppress(ms.MigrationError):
            driver.rebalance(moved(driver.state.routing.groups, driver.state.slots, rng, 200), protocol=SPLIT)
        if rng.random() < 0.3:
            watched.add(f"q{len(watched.begun)}", rng.choice(ASKED))
        if len(driver.queries) > 1 and rng.random() < 0.2:
            watched.many.drop(rng.choice(list(driver.queries)))
        watched.batch(rows_at(rng, 4 * step))
        doubled += watched.many.manifest.slots.doubled is not None
        if rng.random() < 0.2:
            watched.open()
    assert doubled
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def test_a_query_that_is_replaced_meanwhile_ends_with_all_its_groups(tmp_path):
    old = "SELECT k, count(*) AS n FROM A [RANGE 30] GROUP BY k"
    new = "SELECT k, max(v) AS m FROM A [RANGE 15] GROUP BY k"
    parts = [pushed(number) for number in range(10)]
    wanted = [1] * 100 + [0] * 156
    with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as session:
        session.stream("A", parts[0].schema)
        session.query("q", old)
        session.start()
        for part in parts[:2]:
            session.push("A", part)
        session.rebalance(wanted, protocol="split_time")
        session.push("A", parts[2])
    with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as session:
        session.stream("A", parts[0].schema)
        session.query("q", new, replace=True)
        session.start()
        for part in parts[3:]:
            session.push("A", part)
        slots = session.job.slots
        session.finish()
        assert list(slots.routing) == wanted
        # It takes the place once groups have come to their slots, and the old text has answered up to where it begins.
        before, after = (session.job.results(name) for name in sorted(session.job.queries, reverse=True))
    at = min(after.column("valid_from").to_pylist())
    assert 60 <= at < 110
    seen = ms.reference(old, {"A": pa.concat_tables(parts)})
    assert ms.snapshot_equal(until(before, at), until(seen, at))
    expected = ms.reference(new, {"A": pa.concat_tables(parts[3:])})
    assert ms.snapshot_equal(from_(after, at), from_(expected, at))


def until(results: pa.Table, end: int) -> pa.Table:
    """Results before an instant."""
    ends = pc.min_element_wise(results["valid_to"], end)
    cut = results.set_column(results.schema.get_field_index("valid_to"), "valid_to", ends)
    return cut.filter(pc.field("valid_from") < end)


def test_a_query_that_does_not_read_the_key_takes_rows_where_they_arrive():
    rows = pa.RecordBatch.from_pydict({"v": [1, 2]})
    track = Lane(routing=(0, 1) * 128, keys={"A": ("k",)})
    assert track.takes("A", rows, 0, copied=False).all()
    assert not track.takes("A", rows, 0, copied=True).any()


def test_a_move_waits_for_a_query_in_quarantine(tmp_path):
    rng, watched = random.Random(7), Watched(tmp_path)
    watched.add("q0", "SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k")
    watched.add("q1", "SELECT k, max(v) AS m FROM A [RANGE 9] GROUP BY k")
    driver = watched.many.driver
    for step in range(12):
        if step == 2:
            driver.rebalance([1] * 100 + [0] * 156, protocol=SPLIT)
        if step == 3:
            driver.state.faults.stopped["q1"] = Fault(2, "a test")
        if step == 8:
            driver.resume("q1")
        watched.batch({"A": drawn(rng, 4 * step)})
        assert (watched.many.manifest.slots.doubled is not None) == (2 <= step <= 8), step
    watched.many.batch({}, end=True)
    watched.check("q0")


def test_a_change_at_the_split_time_is_one_from_the_instant_before(tmp_path):
    query = "SELECT ISTREAM k, count(*) AS n FROM A [RANGE 25] GROUP BY k"
    rows = [(15, 1), (32, 1), (33, 1), (39, 1), (40, 1), (41, 1), (60, 1), (90, 1)]
    inputs = {"A": pa.table({"ts": [t for t, _ in rows], "k": [k for _, k in rows], "v": [0] * len(rows)})}
    chain, _ = chain_of(query, tmp_path, inputs, slots=2)
    parts = chain.cut(inputs, 1)
    chain.batch(parts[0])
    assert chain.driver.rebalance([1 - slot for slot in chain.driver.state.routing.groups], protocol=SPLIT)
    for part in parts[1:]:
        chain.batch(part)
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(answer(query, inputs))
