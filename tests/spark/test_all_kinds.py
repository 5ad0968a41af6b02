"""Every kind of operator on Spark, all in one session: any slots, any batches, the oracle's answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.kinds import KINDS, inputs
from tests.spark.all_kinds import as_they_came, run_all, write_batches

import midstream as ms
from midstream.api import ask
from midstream.distribution.stages import cut
from midstream.optimizer.plans import plan_query

IN_ONE_SLOT = {"theta join", "global aggregate", "row window", "first rows", "dependent sub-query"}
"""The kinds whose rows must all meet; everything else must be spread."""


def check(results: dict[str, pa.Table], folder: Path) -> None:
    wrong, came = {}, as_they_came(folder)
    for kind, found in results.items():
        difference = ms.snapshot_equal(found, ms.reference(KINDS[kind].query, came))
        if not difference:
            wrong[kind] = str(difference)
    assert not wrong


@pytest.mark.spark
@pytest.mark.parametrize(("seed", "slots"), [(1, 3)])
def test_every_kind_gives_the_oracles_answer(seed, slots, spark, tmp_path):
    write_batches(tmp_path, seed, count=3)
    check(run_all(spark, tmp_path, slots), tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_every_kind_with_other_batches_and_slots(seed, spark, tmp_path):
    write_batches(tmp_path, seed)
    check(run_all(spark, tmp_path, slots=1 + seed % 4), tmp_path)


@pytest.mark.slow
@pytest.mark.cluster
def test_every_kind_on_a_cluster(tmp_path):
    write_batches(tmp_path, 9, count=3)
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "tests.spark.all_kinds", str(tmp_path), "local-cluster[2,1,1500]", "3"],
        cwd=root,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": f"{root / 'src'}:{root}"},
        check=True,
        capture_output=True,
        timeout=900,
    )
    check({kind: pq.read_table(tmp_path / "results" / f"{i}.parquet") for i, kind in enumerate(KINDS)}, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_must_meet_meets_in_one_slot(kind):
    question = ask(KINDS[kind].query, dict(inputs()))
    staged = cut(plan_query(question.plan, KINDS[kind].plan).physical, {})
    routes = [*staged.routes.values(), *(f.route for f in staged.fragments if f.reader is not None)]
    assert any(route.is_one_slot for route in routes) == (kind in IN_ONE_SLOT)
