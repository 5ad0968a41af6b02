"""Moving state on a cluster, where rows arrive in any order: to other slots, another plan, and more slots."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.spark import moving_process
from tests.spark.test_processes import process_of, write_inputs

import midstream as ms


def run(folder: Path, master: str) -> None:
    inputs = write_inputs(folder)
    process = process_of("moving_process.py", str(folder), master)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    account = json.loads(told.splitlines()[-1])
    assert [move["slots"] for move in account["moves"]] == [[2, 2], [2, 3]]
    assert all(move["rows_sent"] > 0 for move in account["moves"])
    assert account["migrations"] == {name: ["moving_state"] for name in moving_process.QUERIES}
    assert set(account["plans"].values()) == {"(A (B C))"}
    for name, query in moving_process.QUERIES.items():
        difference = ms.snapshot_equal(pq.read_table(folder / f"{name}.parquet"), ms.reference(query, inputs))
        assert difference, f"{name}: {difference}"


@pytest.mark.cluster
@pytest.mark.slow
def test_state_moves_on_a_cluster(tmp_path):
    run(tmp_path, "local-cluster[2,1,1500]")
