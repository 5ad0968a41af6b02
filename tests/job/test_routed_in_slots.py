"""Routed joins in slots: rounds of one-way joins, windows kept once, migrations to and from other plans, restarts."""

from __future__ import annotations

from random import Random

import pytest
from tests.distribution.routed.joins import Joined, draw_join, draw_plan
from tests.job.chain import Chain

import midstream as ms
from midstream.algebra.physical import walk_physical
from midstream.algebra.physical.routed import KeptWindow, OneWayJoin
from midstream.api import ask
from midstream.distribution.stages import cut
from midstream.job.task.memory import Memory
from midstream.optimizer.plans import plan_query

CHAIN = "SELECT {what} FROM A [RANGE 6], B [RANGE 5], C [RANGE 7] WHERE A.k0 = B.k0 AND B.k1 = C.k1{rest}"
WAYS = "A -> B -> C, B -> A -> C, C -> B -> A"
PLAIN = CHAIN.format(what="A.v AS a, B.v AS b, C.v AS c", rest="")


def tables(seed: int = 3, rows: int = 30):
    return draw_join(Random(seed), 3, rows).tables


def chain(text: str, inputs, folder, plan: str, **options) -> Chain:
    asked = ask(text, inputs)
    return Chain(asked.plan, asked.catalog, folder, plan=plan, **options)


def right(found, text: str, inputs, *told: object) -> None:
    same = ms.snapshot_equal(found, ms.reference(text, inputs))
    assert same, "\n".join(map(str, [same, text, *told]))


def drawn(random: Random, count: int, rows: int) -> tuple[Joined, str]:
    joined = draw_join(random, count, rows)
    return joined, str(draw_plan(random, joined.query.conditions))


def some(count: int, many: int) -> list[object]:
    """Seeds, most of them for the longer profile."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= count else []) for seed in range(many)]


@pytest.mark.parametrize("seed", some(4, 60))
def test_routed_joins_in_slots_agree_with_the_oracle(seed, tmp_path):
    random, count = Random(seed), 3 + seed % 3
    joined, text = drawn(random, count, 12 if count < 5 else 6)
    made = chain(joined.text, joined.tables, tmp_path, text, slots=random.choice([1, 2, 3]), seed=seed)
    right(made.run(joined.tables, random.choice([4, 7, 50])), joined.text, joined.tables, text)


@pytest.mark.parametrize("seed", some(3, 60))
def test_migrations_between_the_kinds_in_slots_with_restarts_on_other_slots(seed, tmp_path):
    random = Random(1000 + seed)
    joined, routed = drawn(random, 3 + seed % 2, 14)
    other = str(draw_plan(random, joined.query.conditions))
    schemas = {name: table.schema for name, table in joined.tables.items()}
    trees = [plan.text for plan in ms.plans(joined.text, schemas) if "->" not in plan.text]
    first, second = random.choice([(routed, other), (routed, random.choice(trees)), (random.choice(trees), routed)])
    endless = "UNBOUNDED" in joined.text
    strategy = random.choice(["moving_state"] if endless else ["genmig", "genmig_reference_point", "moving_state"])
    made = chain(joined.text, joined.tables, tmp_path, first, slots=random.choice([1, 2, 3]), seed=seed)
    parts = made.cut(joined.tables, 5)
    at, slots = random.randint(1, len(parts) - 2), random.choice([made.slots, 1, 2, 4])
    for number, part in enumerate(parts):
        if number == at:
            made.migrate(second, strategy)
        if number == at + 1:
            made = chain(joined.text, joined.tables, tmp_path, first, slots=slots, resize=slots, seed=seed)
        made.batch(part)
    made.batch({}, end=True)
    right(made.results(), joined.text, joined.tables, f"{first} to {second} by {strategy} at {at}, to {slots} slots")


@pytest.mark.parametrize("seed", some(2, 12))
def test_what_is_above_a_routed_join_is_right_and_migrates(seed, tmp_path):
    random, inputs = Random(seed), tables(seed)
    whats = ["B.k1 AS k, count(*) AS n, max(A.v) AS m", "DISTINCT A.k0 AS k, C.v AS c"]
    text = CHAIN.format(what=whats[seed % 2], rest=" AND A.v <= C.v" + (" GROUP BY B.k1" if seed % 2 == 0 else ""))
    plans = [WAYS, "A <- B -> C, B <- A <- C, C -> B <- A", "((A B) C)"]
    first, second = random.sample(plans, 2)
    made = chain(text, inputs, tmp_path, first, seed=seed)
    right(made.run(inputs, 9, {3: (second, random.choice(["genmig", "moving_state"]))}), text, inputs, first, second)


@pytest.mark.parametrize("text", [PLAIN, CHAIN.format(what="DISTINCT A.k0 AS k", rest="")])
def test_a_cancelled_migration_goes_on_with_the_routed_join(text, tmp_path):
    inputs = tables()
    made = chain(text, inputs, tmp_path, WAYS)
    for number, part in enumerate(made.cut(inputs, 10)):
        if number == 3:
            made.migrate("((A B) C)", "genmig")
        if number == 4:
            made.driver.cancel_migration("q")
        made.batch(part)
    made.batch({}, end=True)
    assert made.query.plan.text == WAYS and made.manifest.account("q").history[-1]["status"] == "cancelled"
    right(made.results(), text, inputs)


def test_a_migration_that_is_over_is_not_cancelled(tmp_path):
    inputs = tables()
    made = chain(PLAIN, inputs, tmp_path, WAYS)
    refused = 0
    for number, part in enumerate(made.cut(inputs, 10)):
        if number == 3:
            made.migrate("((A B) C)", "genmig")
        if made.query.migration is not None and made.query.migration.done:
            refused += 1
            with pytest.raises(ms.MigrationError, match="is over"):
                made.driver.cancel_migration("q")
        made.batch(part)
    made.batch({}, end=True)
    assert refused == 1 and made.query.plan.text == "((A B) C)"
    right(made.results(), PLAIN, inputs)


def test_other_strategies_are_refused_between_slots(tmp_path):
    made = chain(PLAIN, tables(), tmp_path, WAYS)
    with pytest.raises(ms.MigrationError, match="parallel_track cannot migrate query q"):
        made.migrate("((A B) C)", "parallel_track")


def test_little_memory_changes_nothing(tmp_path):
    inputs = tables(rows=60)
    made = chain(PLAIN, inputs, tmp_path, WAYS, memory=Memory(40_000))
    right(made.run(inputs, 90), PLAIN, inputs)


def test_late_rows_are_left_out_alike(tmp_path):
    """A row that is late is seen by no way, whichever stream it heads."""
    inputs = tables()
    late = {name: table.take([*range(5, 15), 0, 1, *range(15, table.num_rows)]) for name, table in inputs.items()}
    found = {}
    for plan in (WAYS, "A <- B -> C, B <- A <- C, C -> B <- A", "((A B) C)"):
        made = chain(PLAIN, late, tmp_path / plan, plan)
        found[plan] = made.run(late, 10)
    assert ms.snapshot_equal(found[WAYS], found["((A B) C)"])
    assert ms.snapshot_equal(found[WAYS], found["A <- B -> C, B <- A <- C, C -> B <- A"])


def fragments(plan: str):
    return cut(plan_query(ask(PLAIN, tables()).plan, plan).physical)


def test_a_round_is_one_exchange_and_a_window_is_kept_once_per_key():
    staged = fragments(WAYS)
    windows = [n for f in staged.fragments for n in walk_physical(f.plan) if isinstance(n, KeptWindow)]
    assert sorted(str(w.name) for w in windows) == ["by A.k0", "by B.k0", "by B.k1", "by C.k1"]
    probes = [(f.stage, n) for f in staged.fragments for n in walk_physical(f.plan) if isinstance(n, OneWayJoin)]
    assert staged.stages == 3 and sorted(stage for stage, _ in probes) == [1, 1, 1, 2, 2, 2]


def test_windows_in_every_slot_need_no_further_stage():
    staged = fragments("A <- B <- C, B <- A <- C, C <- B <- A")
    assert staged.stages == 2
    windows = [n for f in staged.fragments for n in walk_physical(f.plan) if isinstance(n, KeptWindow)]
    assert all(window.everywhere for window in windows)


def test_rows_of_a_stream_are_sent_once_by_each_route_and_stage():
    staged = fragments(WAYS)
    sent = [(f.sources[0].stream.alias, str(f.route)) for f in staged.fragments if f.sources]
    readers = {
        f.number: {g.stage for g in staged.fragments for r in g.received if r.fragment == f.number}
        for f in staged.fragments
    }
    assert all(len(stages) <= 1 for stages in readers.values())
    assert sent.count(("A", "Exchange by A.k0")) == 2, "the first probes and the last one of C read A's rows"
