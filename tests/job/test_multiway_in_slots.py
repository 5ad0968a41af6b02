"""Multi-way joins whose states are sorted by partition group, in several slots."""

from __future__ import annotations

import pyarrow as pa
import pytest

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
ROWS = [{"k": None if ts % 5 == 4 else ts % 4, "v": None if ts % 7 == 6 else ts % 6, "ts": ts} for ts in range(60)]
NOT_DISTINCT = (
    "SELECT x.v, y.k AS j, z.v AS w FROM A [RANGE 9] AS x, A [RANGE 9] AS y, A [RANGE 9] AS z"
    " WHERE x.k IS NOT DISTINCT FROM y.v AND x.k = z.k AND y.v <= z.v"
)


@pytest.mark.parametrize("plan", ["x: z y, y: z x, z: x y", "x: y z, y: x z, z: y x"])
def test_a_state_is_looked_up_by_all_rows_of_a_group_before_its_key_is_known(plan, tmp_path):
    """From y to z there is no key, though both are dealt by values that equal those of x."""
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=3)
    session.stream("A", SCHEMA)
    session.query("q", NOT_DISTINCT, plan=plan)
    with session.start():
        for at in range(0, 60, 6):
            session.push("A", table.slice(at, 6))
        session.finish()
        got = session.results("q")
    assert got.num_rows and ms.snapshot_equal(got, ms.reference(NOT_DISTINCT, {"A": table}))
