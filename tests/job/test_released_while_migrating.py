"""What leaves while a query migrates: in order, and with the batches in which it would leave without a migration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.profiles import always

from midstream.algebra.declarations import Catalog
from midstream.inputs import declare
from midstream.language import parse

COLUMNS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
CATALOG = Catalog({name: declare(name, COLUMNS, "ts") for name in "ABC"})
JOIN = "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 25], B [RANGE 25], C [RANGE 25] WHERE A.k = B.k AND B.k = C.k"
ONCE = JOIN.replace("SELECT", "SELECT DISTINCT")


def inputs(seed: int) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        columns = [np.sort(random.integers(0, 150, 150)), random.integers(0, 12, 150), random.integers(0, 3, 150)]
        return pa.table([pa.array(column) for column in columns], schema=COLUMNS)

    return {name: table() for name in "ABC"}


def frontiers(folder: Path, cql: str, seed: int, strategy: str | None) -> list[int]:
    """How far each batch lets results out; what it gives must not start before what the last one let out."""
    chain = Chain(parse(cql, CATALOG), CATALOG, folder, plan="((A B) C)", seed=seed)
    found: list[int] = []
    for i, parts in enumerate(chain.cut(inputs(seed), 40)):
        if strategy is not None and i == 3:
            chain.migrate("(A (B C))", strategy)
        batch = chain.batch(parts)
        given = [file for report in batch.reports for file in report.results.values()]
        assert not found or all(file.first_from >= found[-1] for file in given)
        found.append(chain.manifest.released["q"])
    if strategy is not None:
        assert chain.query.plan.text != "((A B) C)"
    return found


@pytest.mark.parametrize("strategy", always(2, ["moving_state", "genmig", "parallel_track", "genmig_reference_point"]))
def test_a_migration_of_a_join_holds_no_batch_back(strategy, tmp_path):
    plain = frontiers(tmp_path / "plain", JOIN, 1, None)
    assert frontiers(tmp_path / "moved", JOIN, 1, strategy) == plain


def test_what_waits_for_its_other_half_leaves_in_order(tmp_path):
    plain = frontiers(tmp_path / "plain", ONCE, 2, None)
    moved = frontiers(tmp_path / "moved", ONCE, 2, "genmig")
    assert all(a <= b for a, b in zip(moved, plain, strict=True))
    assert moved[-1] == plain[-1]
