"""Groups move to two slots while plans change, in any order: no result is lost, doubled or out of order."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.test_chain import GROUPS, STAGES, THREE, as_multiset, tables
from tests.job.test_doubled_moves import SPLIT, moved
from tests.job.test_local_plans import DISTINCT, ENTERED, HOPS, LEFT, many_keys, opened
from tests.job.test_slot_decisions import pushed
from tests.profiles import always

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.commands import Migrate
from midstream.checkpoint.stored_slots import moving_groups
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import Listener, status
from midstream.job.commands.accounts import history_of
from midstream.job.commands.forecast import forecast
from midstream.job.events import MoveCancelled
from midstream.job.migrations.migrating import require_way
from midstream.migration.registry import STRATEGIES

QUERIES = {
    "join": THREE,
    "groups": GROUPS,
    "distinct": DISTINCT,
    "istream": ENTERED,
    "dstream": LEFT,
    "hops": HOPS,
    "filtered": f"{THREE} AND A.v < 25 AND C.v > 3",
}
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)", "A: B C, B: A C, C: B A")
WANTED = [1] * 100 + [2] * 50 + [0] * 106


ORDERS = [(SPLIT, "move"), (SPLIT, "migration"), ("ptlb", "move")]
USUAL = [(SPLIT, "move", "genmig_shortened"), (SPLIT, "migration", "genmig"), ("ptlb", "move", "moving_state")]
BOTH = [(*order, strategy) for order in ORDERS for strategy in sorted({*STRATEGIES} - {"auto"})]


@pytest.mark.parametrize(
    ("protocol", "first", "strategy"), always(len(USUAL), [*USUAL, *(case for case in BOTH if case not in USUAL)])
)
def test_groups_move_while_their_query_migrates(protocol, first, strategy, tmp_path):
    inputs = many_keys(rows=80, last=160)
    chain = opened(THREE, inputs, tmp_path)
    both, done = 0, None
    for number, part in enumerate(chain.cut(inputs, 16)):
        if number == (4 if first == "move" else 5):
            assert chain.driver.rebalance(WANTED, protocol=protocol)
        if number == (5 if first == "move" else 4):
            chain.migrate("(A (B C))", strategy)
        chain.batch(part)
        both += chain.manifest.slots.doubled is not None and chain.manifest.account("q").plans.migration is not None
        done = number if done is None and list(chain.manifest.slots.routing) == WANTED else done
    # Once states have moved, the end of a migration takes one batch.
    assert both or (first == "migration" and strategy.startswith("moving_state")), "one waited for the other"
    assert done is not None and chain.moves == 0
    assert chain.query.plan.text == "(A (B C))" and chain.query.migration is None
    assert not [name for name in chain.manifest.segments if "~" in name]
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


def test_rows_ahead_of_a_split_move_with_their_groups_and_are_there_when_it_is_cancelled(tmp_path):
    inputs = many_keys(rows=80, last=160)
    chain = opened(THREE, inputs, tmp_path)
    parts, held = chain.cut(inputs, 16), []
    for number, part in enumerate(parts):
        if number == 2:
            chain.migrate("(A (B C))", "genmig")
        if number == len(parts) - 2:
            assert chain.driver.rebalance(WANTED, protocol="mslb")
        if number == len(parts) - 1:
            assert any("ahead of the split" in entry.state for entry in chain.manifest.entries())
            assert list(chain.manifest.slots.routing) == WANTED
            chain.driver.cancel_migration("q")
        # One stream is behind the others, so their rows lie after the split long before it is reached.
        held += [part["C"]] if number >= 2 and "C" in part else []
        chain.batch({name: rows for name, rows in part.items() if name != "C" or number < 2})
    for rows in held:
        chain.batch({"C": rows})
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


def random_run(name: str, seed: int, folder, verified: bool = False) -> None:
    """A query whose groups move and whose plans change at random moments, with restarts."""
    query, rng = QUERIES[name], random.Random(seed)
    inputs = many_keys(rows=50, last=120, seed=seed % 7)
    chain = opened(query, inputs, folder, slots=rng.randint(2, 4))
    both, log = 0, []
    for part in chain.cut(inputs, rng.choice([5, 9, 16])):
        for _ in range(rng.randint(0, 2)):
            steps = ["move", "move", "migrate", "migrate", "local", "cancel", "back", "restart", "rescale"]
            step = rng.choice([*steps, "verify", "verify"] if verified else steps)
            state = chain.driver.state
            with suppress(ms.MidstreamError):
                match step:
                    case "move":
                        wanted = moved(state.routing.groups, state.slots, rng, 200)
                        chain.driver.rebalance(wanted, protocol=rng.choice([SPLIT, SPLIT, "ptlb", "mslb", "auto"]))
                    case "migrate":
                        chain.migrate(rng.choice(PLANS), rng.choice(sorted(STRATEGIES)), rng.choice(["auto", "whole"]))
                    case "verify":
                        asked = chain._by_plan(rng.choice(PLANS)), rng.choice(sorted(STRATEGIES)), "a test"
                        chain.driver.begin_migration("q", *asked, verify=rng.choice([1, 10, 40]))
                    case "local":
                        slots = [rng.randrange(state.slots)]
                        chain.migrate(rng.choice(PLANS), rng.choice(sorted(STRATEGIES)), slots=slots)
                    case "cancel":
                        chain.driver.cancel_migration("q")
                    case "back":
                        chain.driver.apply(MoveCancelled())
                    case "rescale" if rng.random() < 0.3:
                        chain.driver.rescale(rng.randint(1, 4))
                    case "restart" if state.manifest is not None and not state.verifications.by_query:
                        question = ask(query, inputs)
                        chain = Chain(question.plan, question.catalog, folder)
                log.append(f"{chain.next_batch}: {step}")
        chain.batch(part)
        both += chain.manifest.slots.doubled is not None and chain.query.migrates
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), ms.run(query, inputs))
    assert difference, f"{difference}\n{name} {seed} both {both}\n{log}"
    if name in ("join", "filtered"):
        assert as_multiset(chain.results()) == as_multiset(ms.run(query, inputs)), f"{name} {seed}\n{log}"


@pytest.mark.parametrize(("name", "seed"), always(2, [(name, seed) for seed in range(12) for name in sorted(QUERIES)]))
def test_moves_and_migrations_at_random_moments(name, seed, tmp_path):
    random_run(name, seed, tmp_path)


@pytest.mark.parametrize(("name", "seed"), always(1, [(name, seed) for seed in range(12) for name in sorted(QUERIES)]))
def test_moves_and_verified_migrations_at_random_moments(name, seed, tmp_path):
    random_run(name, 100 + seed, tmp_path, verified=True)


def test_forecasts_and_decisions_know_which_strategies_are_right_while_groups_move(tmp_path):
    inputs = tables(rows=60, last=160)
    question = ask(STAGES, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A B) C)")
    for number, part in enumerate(chain.cut(question.tables, 12)[:5]):
        if number == 3:
            assert chain.driver.rebalance([1] * 100 + [0] * 156, protocol=SPLIT)
        chain.batch(part)
    assert chain.manifest.slots.doubled is not None
    told = forecast(chain.driver, Migrate("q", "(A (B C))"), question.catalog)
    legal = {known["strategy"] for known in told["strategies"] if known["legal"]}
    target = chain._by_plan("(A (B C))")
    assert legal == {"genmig"}
    for name in STRATEGIES:
        if name not in (*legal, "auto"):
            with pytest.raises(ms.MigrationError):
                require_way(chain.driver.state, chain.query, target.plan, name)
            with pytest.raises(ms.MigrationError):
                chain.migrate("(A (B C))", name)
    require_way(chain.driver.state, chain.query, target.plan, "genmig")
    chain.migrate("(A (B C))", "genmig")


@pytest.mark.parametrize("cancelled", ["nothing", "first", "last"])
@pytest.mark.parametrize("first", ["move", "migration"])
def test_plans_in_different_slots_and_slots_of_groups_change_at_once(first, cancelled, tmp_path):
    inputs = tables(rows=60, last=160)
    question = ask(STAGES, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, plan="((A B) C)")
    wanted, lanes = [1] * 100 + [0] * 156, set()

    def begin(what):
        if what == "move":
            assert chain.driver.rebalance(wanted, protocol=SPLIT)
        else:
            chain.migrate("(A (B C))", "genmig")

    def cancel(what):
        if what == "move":
            chain.driver.apply(MoveCancelled("a test"))
        else:
            chain.driver.cancel_migration("q")

    second = "migration" if first == "move" else "move"
    for number, part in enumerate(chain.cut(question.tables, 12)):
        if number in (3, 4):
            begin(first if number == 3 else second)
        if number == 5 and cancelled == "first":
            with pytest.raises(ms.MigrationError, match="cannot be cancelled while"):
                cancel(first)
        if number == 5 and cancelled == "last":
            cancel(second)
        chain.batch(part)
        lanes.add(len(chain.manifest.segments))
    assert max(lanes) == 3
    chain.batch({}, end=True)
    assert chain.query.plan.text == ("((A B) C)" if cancelled == "last" and first == "move" else "(A (B C))")
    assert (list(chain.manifest.slots.routing) == wanted) == (cancelled != "last" or first == "move")
    assert ms.snapshot_equal(chain.results(), ms.reference(STAGES, inputs))


@pytest.mark.parametrize("protocol", [SPLIT, "ptlb"])
@pytest.mark.parametrize(
    ("name", "scattered"), always(2, [("join", True), ("stages", False), ("groups", False), ("join", False)])
)
def test_a_move_is_cancelled(name, scattered, protocol, tmp_path):
    query, inputs = {**QUERIES, "stages": STAGES}[name], many_keys(rows=80, last=160)
    if protocol == "ptlb" and name != "join":
        pytest.skip("refused")
    chain = opened(query, inputs, tmp_path)
    before = chain.driver.state.routing.groups
    wanted = [(slot + 1) % 3 if group % 2 else slot for group, slot in enumerate(before)] if scattered else WANTED
    for number, part in enumerate(chain.cut(inputs, 16)):
        if number == 4:
            chain.driver.rebalance(wanted, protocol=protocol)
        if number == 6:
            assert chain.manifest.slots.doubled is not None
            chain.driver.apply(MoveCancelled("a test"))
        chain.batch(part)
        if number == 6:
            assert chain.manifest.slots.doubled is None and chain.driver.state.wanted is None
            assert not [name for name in chain.manifest.segments if "~" in name]
            assert not [entry for entry in chain.manifest.entries() if entry.state.startswith("marked/")]
    assert list(chain.manifest.slots.routing) == list(before)
    record = chain.manifest.slots.moves[-1]
    assert (record["batch"], record["status"], record["start_batch"]) == (6, "cancelled", 4)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))
    if name == "join":
        assert as_multiset(chain.results()) == as_multiset(ms.run(query, inputs))


def test_a_move_that_has_not_begun_is_forgotten_and_none_is_not_cancelled(tmp_path):
    inputs = many_keys(rows=20)
    chain = opened(THREE, inputs, tmp_path)
    parts = chain.cut(inputs, 16)
    with pytest.raises(ms.MigrationError, match="no partition groups are moving"):
        chain.driver.apply(MoveCancelled())
    chain.batch(parts[0])
    chain.driver.rebalance(WANTED)
    chain.driver.apply(MoveCancelled())
    chain.batch(parts[1])
    assert list(chain.manifest.slots.routing) != WANTED
    with pytest.raises(ms.MigrationError, match="no partition groups are moving"):
        chain.driver.apply(MoveCancelled())


def test_a_move_by_ptlb_whose_query_migrates_is_not_cancelled(tmp_path):
    inputs = many_keys(rows=80, last=160)
    chain = opened(THREE, inputs, tmp_path)
    for number, part in enumerate(chain.cut(inputs, 16)):
        if number == 4:
            chain.driver.rebalance(WANTED, protocol="ptlb")
            chain.migrate("(A (B C))", "genmig")
        if number == 5:
            with pytest.raises(ms.MigrationError, match="cannot be cancelled while query q migrates"):
                chain.driver.apply(MoveCancelled())
            chain.driver.cancel_migration("q")
        if number == 6:
            chain.driver.apply(MoveCancelled())
        chain.batch(part)
    assert list(chain.manifest.slots.routing) != WANTED and chain.query.plan.text == "((A B) C)"
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


def test_groups_of_many_pairs_of_slots_move_together(tmp_path):
    inputs = many_keys(rows=60, last=200)
    chain = opened(THREE, inputs, tmp_path, slots=10)
    rng = random.Random(1)
    wanted = [rng.randrange(10) for _ in range(256)]
    moving = []
    for number, part in enumerate(chain.cut(inputs, 5)):
        if number == 2:
            assert chain.driver.rebalance(wanted, protocol=SPLIT)
        chain.batch(part)
        told = moving_groups(chain.manifest)
        moving += [told.groups] if told else []
    assert list(chain.manifest.slots.routing) == wanted and len(chain.manifest.slots.moves) == 1
    assert set(moving) == {232}
    chain.batch({}, end=True)
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))


def test_a_session_cancels_a_move_by_call_and_by_request(tmp_path):
    parts = [pushed(number) for number in range(6)]
    with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as session:
        assert isinstance(session, CheckpointSession)
        session.stream("A", parts[0].schema)
        query = session.query("q", "SELECT k, count(*) AS n FROM A [RANGE 30] GROUP BY k")
        session.start()
        session.push("A", parts[0])
        listener = Listener(session)
        for number, cancel in enumerate((session.cancel_rebalance, lambda: listener.answer(CANCEL))):
            session.rebalance([1] * 100 + [0] * 156, protocol="split_time")
            session.push("A", parts[2 * number + 1])
            assert status(session)["slots"]["moving"]["groups"] == 228
            assert foretold(session, CANCEL)["cancelled"]["groups"] == 228
            cancel()
            session.push("A", parts[2 * number + 2])
            assert status(session)["slots"]["moving"] is None
        assert [(move["status"], move["start_batch"]) for move in session.moves] == [("cancelled", 1), ("cancelled", 3)]
        session.push("A", parts[5])
        session.finish()
        assert ms.snapshot_equal(query.table(), ms.reference(query.cql, {"A": pa.concat_tables(parts)}))


CANCEL = {"command": "cancel_rebalance"}


def foretold(session: CheckpointSession, request: dict[str, Any]) -> Any:
    return Listener(session).answer({"command": "forecast", "of": request})


@pytest.mark.parametrize(("protocol", "first"), [(SPLIT, "move"), ("ptlb", "move"), (SPLIT, "migration")])
def test_a_migration_is_verified_while_groups_move(protocol, first, tmp_path):
    """A copy of a query has its tracks too: groups move for both, and the copy takes the query's place meanwhile."""
    inputs = many_keys(rows=120, last=240)
    chain, both, adopted = opened(THREE, inputs, tmp_path), 0, 0
    for number, part in enumerate(chain.cut(inputs, 16)):
        if number == (4 if first == "move" else 5):
            assert chain.driver.rebalance(WANTED, protocol=protocol)
        if number == (5 if first == "move" else 4):
            chain.driver.begin_migration("q", chain._by_plan("(A (B C))"), "moving_state", "a test", verify=1)
        chain.batch(part)
        both += chain.manifest.slots.doubled is not None and chain.manifest.account("q").verifying is not None
        adopted += chain.manifest.slots.doubled is not None and chain.query.plan.text == "(A (B C))"
    assert both, "one waited for the other"
    assert adopted or (protocol, first) != (SPLIT, "migration"), "the copy was to take the query's place meanwhile"
    assert list(chain.manifest.slots.routing) == WANTED and chain.query.plan.text == "(A (B C))"
    assert not [name for name in chain.manifest.segments if "~" in name]
    chain.batch({}, end=True)
    (record,) = history_of(chain.driver, chain.query)
    assert record["status"] == "done" and record["verified"]["difference"] is None
    assert as_multiset(chain.results()) == as_multiset(ms.run(THREE, inputs))
