"""Joins of 3 to 8 streams in slots, with rows out of order, migrations between all kinds of plans, and kills anywhere.

A kill is a crash at any write of the driver; the job is then opened again, sometimes on another number of slots.
"""

from __future__ import annotations

import threading
from random import Random

import pyarrow as pa
import pytest
from tests.distribution.routed.joins import Joined, draw_join, draw_plan
from tests.job.chain import Chain
from tests.job.test_chain import Crash, _users_of_crash_points
from tests.profiles import always

import midstream as ms
from midstream.api import ask
from midstream.optimizer.plans import enumerate_plans

DISORDER = 5
"""By how many ticks rows come too late at most; streams declare as much."""


class Kills:
    """Crashes the main thread at a drawn number of writes, again and again, each time after more of them."""

    def __init__(self, random: Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random, self.left, self.happened = random, random.randint(1, 15), 0
        for module in _users_of_crash_points():
            monkeypatch.setattr(module, "reach", self.reach)

    def reach(self, name: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.left -= 1
            if self.left <= 0:
                self.happened += 1
                self.left = self.random.randint(5, 90) * self.happened  # a batch may write more than 90 times
                raise Crash(name)


def disordered(random: Random, table: pa.Table) -> pa.Table:
    late = [ts + random.randint(0, DISORDER) for ts in table.column("ts").to_pylist()]
    return table.take(sorted(range(table.num_rows), key=lambda row: late[row]))


def plans_of(random: Random, joined: Joined) -> dict[str, list[str]]:
    """Some plans of each kind."""
    listed = [plan.text for plan in enumerate_plans(ask(joined.text, joined.tables).plan, limit=40)]
    texts = [text for text in listed if "->" not in text and "<-" not in text]
    trees = [text for text in texts if ":" not in text]
    return {
        "routed": [str(draw_plan(random, joined.query.conditions)) for _ in range(2)],
        "tree": random.sample(trees, min(2, len(trees))),
        "multi-way": [text for text in texts if ":" in text][:1],
    }


def drawn_migrations(random: Random, joined: Joined, batches: int) -> tuple[str, dict[int, tuple[str, str]]]:
    """A first plan, and two or three migrations, each to another kind of plan than before or between routed joins."""
    kinds = {kind: plans for kind, plans in plans_of(random, joined).items() if plans}
    strategies = (
        ["moving_state"] if "UNBOUNDED" in joined.text else ["genmig", "genmig_reference_point", "moving_state"]
    )
    at = sorted(random.sample(range(1, batches - 1), min(3, batches - 2)))
    last = random.choice(list(kinds))
    first, found = random.choice(kinds[last]), dict[int, tuple[str, str]]()
    for number in at:
        last = random.choice([kind for kind in kinds if kind != last or kind == "routed"])
        found[number] = random.choice(kinds[last]), random.choice(strategies)
    return first, found


@pytest.mark.parametrize("seed", always(3, range(90)))
def test_any_join_by_any_plans_is_right_under_kills(seed, tmp_path, monkeypatch):
    random, count = Random(2000 + seed), 3 + seed % 6
    joined = draw_join(random, count, 12 if count < 5 else 6)
    inputs = {name: disordered(random, table) for name, table in joined.tables.items()}
    asked, rows = ask(joined.text, inputs), count * (2 if count < 5 else 1)

    def opened(slots: int) -> Chain:
        return Chain(asked.plan, asked.catalog, tmp_path, plan=first, slots=slots, resize=slots, seed=seed)

    parts = -(-sum(table.num_rows for table in inputs.values()) // rows)
    first, migrations = drawn_migrations(random, joined, min(parts, 8))
    kills, slots = Kills(random, monkeypatch), random.choice([1, 2, 3])
    while True:
        try:
            found = opened(slots).run(inputs, rows, migrations)
            break
        except Crash:
            slots = random.choice([slots, slots, 1, 2, 3])
    same = ms.snapshot_equal(found, ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{joined.text}\n{first}, then {migrations}"
    assert kills.happened
