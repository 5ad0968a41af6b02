"""Random queries through the path of a batch, without Spark: snapshot-equal to the embedded runtime."""

from __future__ import annotations

import pytest
from tests.generators import EVERYTHING, random_case
from tests.spark.chain import Chain

import midstream as ms
from midstream.api import ask
from midstream.runtime.embedded import run as run_embedded


@pytest.mark.parametrize("seed", range(60))
def test_random_queries_give_the_same_in_slots_and_stages(seed, tmp_path):
    case = random_case(seed, EVERYTHING)
    question = ask(case.query, case.inputs, time=case.time)
    expected = run_embedded(question.plan, question.tables, question.catalog)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=1 + seed % 4, seed=seed)
    got = chain.run(question.tables, batch_rows=1 + seed * 7 % 40)
    difference = ms.snapshot_equal(got, expected)
    assert difference, f"{difference}\n{chain.query.staged}\n{case.replay()}"
