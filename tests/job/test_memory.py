"""Whatever memory a slot may take, a batch gives the same: input, results and state only go through files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.generators import EVERYTHING, random_case
from tests.job.chain import Chain

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.collect import collect, garbage
from midstream.checkpoint.local_files import LocalFiles
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run as run_embedded
from midstream.errors import JobError
from midstream.job.commits import Compactor
from midstream.job.task import step
from midstream.job.task.exchange import Layout
from midstream.job.task.memory import Memory
from midstream.job.task.sorted_runs import Runs

QUERIES = {
    "join": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k",
    "rows": "SELECT A.k, A.v FROM A [PARTITION BY k ROWS 3]",
    "rows of all": "SELECT A.v, B.v AS w FROM A [ROWS 5], B [RANGE 10] WHERE A.k = B.k",
    "aggregation": "SELECT A.k, count(*) AS n, sum(A.v) AS total FROM A [RANGE 20] GROUP BY A.k",
    "outer join": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20] LEFT JOIN B [RANGE 20] ON A.k = B.k",
    "full join": "SELECT A.v AS a, B.v AS b FROM A [RANGE 20] FULL JOIN B [RANGE 9] ON A.k = B.k AND A.v < B.v",
    "anti join": "SELECT A.v FROM A [RANGE 20] WHERE NOT EXISTS (SELECT 1 FROM B [RANGE 20] WHERE A.k = B.k)",
    "difference": "SELECT A.k, A.v FROM A [RANGE 20] EXCEPT ALL SELECT B.k, B.v FROM B [RANGE 20]",
    "intersection": "SELECT A.v FROM A [RANGE 20], C [RANGE 20] WHERE A.k = C.k INTERSECT ALL SELECT v FROM B [NOW]",
    "stages": "SELECT DISTINCT A.v FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v",
    "stream": "SELECT ISTREAM A.k, count(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.k",
}
MULTISETS = ("join",)


def tables(rows: int = 60, last: int = 100, seed: int = 5) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 6, rows), "v": random.integers(0, 30, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, last, rows))})

    return {name: table() for name in "ABC"}


def as_multiset(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.fixture
def without_merging(monkeypatch):
    """Small files are not merged: a round that nobody waits for leaves a file that no manifest names."""
    monkeypatch.setattr(Compactor, "begin", lambda self, manifest: None)


@pytest.mark.usefixtures("without_merging")
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("memory", [2**12, 2**20])
def test_a_small_memory_changes_no_result(name, memory, tmp_path, monkeypatch):
    cut: list[Runs] = []

    def counted(*arguments: Any) -> Runs:
        cut.append(Runs(*arguments))
        return cut[-1]

    monkeypatch.setattr(step, "Runs", counted)
    inputs = tables()
    question = ask(QUERIES[name], inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2, memory=Memory(memory))
    got = chain.run(question.tables, batch_rows=90)
    expected = ms.run(QUERIES[name], inputs)
    assert bool(cut) == (memory < 2**20)
    assert ms.snapshot_equal(got, expected)
    if name in MULTISETS:
        assert as_multiset(got) == as_multiset(expected)
    newest = f"{chain.manifest.batch_id:012d}"
    assert not [path for path in garbage(chain.driver.store, chain.driver.files) if newest in path]


@pytest.mark.usefixtures("without_merging")
@pytest.mark.parametrize("name", ["join", "stages", "aggregation"])
def test_a_step_that_fails_midway_leaves_nothing_that_counts(name, tmp_path, monkeypatch):
    inputs = tables()
    question = ask(QUERIES[name], inputs)
    write, failing = LocalFiles.write_atomic, [False]

    def write_or_fail(self, path, data, **how):
        if failing[0] and how.get("point") == "results":
            raise JobError("no room")
        write(self, path, data, **how)

    monkeypatch.setattr(LocalFiles, "write_atomic", write_or_fail)

    def opened() -> Chain:
        return Chain(question.plan, question.catalog, tmp_path, slots=2, memory=Memory(2**12))

    chain, failures = opened(), 0
    for part in chain.cut(question.tables, 25):
        failing[0] = True
        try:
            chain.batch(part)
            failing[0] = False
        except JobError:
            failing[0], failures, chain = False, failures + 1, opened()
            chain.batch(part)
    assert failures
    got = chain.run(question.tables, 25)
    assert ms.snapshot_equal(got, ms.run(QUERIES[name], inputs))
    collect(chain.driver.store, chain.driver.files)
    assert not garbage(chain.driver.store, chain.driver.files)


@pytest.mark.parametrize("size", ["15 MB", "a lot", "", 7, True])
def test_a_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(JobError, match="memory_per_slot"):
        Memory.of(size)


def test_fewer_rows_cross_at_once_where_memory_is_small_or_rows_are_wide():
    narrow, wide = (Layout.of({0: pa.schema([(f"c{i}", pa.int64()) for i in range(n)])}) for n in (3, 300))
    assert Memory.of("1 GB").rows_at_once(narrow.row_bytes) == 200_000
    assert Memory.of("1 GB").rows_at_once(wide.row_bytes) < 30_000
    assert Memory.of("16 MB").rows_at_once(narrow.row_bytes) < 40_000
    assert Memory.of("16 MB").rows_at_once(Layout.of({0: pa.schema([("s", pa.string())])}).row_bytes) < 20_000


@pytest.mark.parametrize("seed", range(12))
def test_random_queries_give_the_same_in_little_memory(seed, tmp_path):
    case = random_case(seed, EVERYTHING)
    question = ask(case.query, case.inputs, time=case.time)
    expected = run_embedded(question.plan, question.tables, question.catalog, FiniteRun())
    memory = Memory(2 ** (12 + seed % 3))
    chain = Chain(question.plan, question.catalog, tmp_path, slots=1 + seed % 3, seed=seed, memory=memory)
    got = chain.run(question.tables, batch_rows=5 + seed * 7 % 60)
    difference = ms.snapshot_equal(got, expected)
    assert difference, f"{difference}\n{chain.query.staged}\n{case.replay()}"
