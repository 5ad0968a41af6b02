"""OVER and the first rows of every snapshot, in slots, through migrations, other slots and restarts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.profiles import always, mixed

import midstream as ms
from midstream.api import ask
from midstream.migration.registry import STRATEGIES

JOINED = "FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
RANKED = f"SELECT A.k, A.v, B.v AS b, rank() OVER (PARTITION BY A.k ORDER BY C.v DESC) AS place {JOINED}"
FRAMES = f"SELECT A.k, sum(C.v) OVER (PARTITION BY B.k ORDER BY A.v, B.v, C.v ROWS 2 PRECEDING) AS s {JOINED}"
FIRST = f"SELECT A.k, A.v, C.v AS c {JOINED} ORDER BY C.v DESC, A.v LIMIT 3 OFFSET 1"


def tables(rows: int = 40, last: int = 200, seed: int = 5) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 6, rows), "v": random.integers(0, 30, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, last, rows))})

    return {name: table() for name in "ABC"}


BY_KEY = mixed(sorted(STRATEGIES.keys() - {"auto"}), [RANKED, FRAMES])
IN_ONE_SLOT = [(strategy, FIRST) for strategy in ("genmig", "moving_state", "moving_state_paced")]


@pytest.mark.parametrize(("strategy", "query"), [*always(4, BY_KEY), *IN_ONE_SLOT])
def test_a_migration_changes_no_place(query, strategy, tmp_path):
    inputs = tables()
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, plan="((A B) C)")
    got = chain.run(question.tables, 30, {1: ("(A (B C))", strategy)}, part="smallest")
    assert ms.snapshot_equal(got, ms.reference(query, inputs))
    assert chain.query.plan.text == "(A (B C))"


@pytest.mark.parametrize("query", [RANKED, FIRST])
def test_a_restart_in_other_slots_changes_no_place(query, tmp_path):
    inputs = tables(seed=7)
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2)
    parts = chain.cut(question.tables, 25)
    for i, part in enumerate(parts):
        if i == len(parts) // 2:
            chain = Chain(question.plan, question.catalog, tmp_path, resize=3)
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


def test_partitions_lie_in_different_slots(tmp_path):
    question = ask(RANKED, tables())
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3)
    assert chain.query.staged.stages == 1
