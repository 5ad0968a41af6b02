"""A running job spread over more and fewer slots, with migrations and restarts between: the answers stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.local.test_durable_sessions import SCHEMA, drawn
from tests.profiles import always

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession

QUERIES = {
    "join": "SELECT A.k, C.v FROM A [RANGE 30], B [RANGE 30], C [RANGE 30] WHERE A.k = B.k AND B.k = C.k",
    "other": "SELECT A.v, B.k FROM A [RANGE 20], B [RANGE 20] WHERE A.v = B.v",
    "groups": "SELECT v, count(*) AS n FROM A [RANGE 30] GROUP BY v",
    "rows": "SELECT k, sum(v) AS s FROM B [PARTITION BY k ROWS 3] GROUP BY k",
}
PLANS = ("((A B) C)", "(A (B C))")


def opened(folder: object) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local", slots=None)
    for name in "ABC":
        session.stream(name, SCHEMA)
    for name, cql in QUERIES.items():
        session.query(name, cql)
    session.start()
    return session


@pytest.mark.parametrize("seed", always(2, range(4)))
def test_slots_come_and_go_while_a_job_runs(tmp_path, seed):
    random = np.random.default_rng(seed)
    parts = {name: [drawn(1000 * seed + 10 * i + n, i * 15, 10, 15) for i in range(10)] for n, name in enumerate("ABC")}
    session, slots = opened(tmp_path), {1}
    for i in range(10):
        if random.random() < 0.6:
            session.rescale(int(random.integers(1, 7)))
        if random.random() < 0.3 and session.queries["join"].migrating is None:
            strategy = str(random.choice(["moving_state", "genmig", "auto"]))
            session.queries["join"].migrate(PLANS[int(random.integers(2))], strategy)
        session.push({name: parts[name][i] for name in "ABC"})
        slots.add(session._job.state.slots)
        if random.random() < 0.2:
            session.stop()
            session = opened(tmp_path)
    session.finish()
    inputs = {name: pa.concat_tables(parts[name]) for name in "ABC"}
    for name, cql in QUERIES.items():
        assert ms.snapshot_equal(session.queries[name].table(), ms.reference(cql, inputs)), name
    session.stop()
    assert len(slots) > 1


@pytest.mark.parametrize("slots", [0, -1, 2.5, True, 257])
def test_a_number_of_slots_that_cannot_be_is_refused(tmp_path, slots):
    with opened(tmp_path) as session, pytest.raises(ms.MidstreamError):
        session.rescale(slots)


def slots_after(folder: Path, declared: int | None, asked: int | None = None) -> int:
    """How many slots a job has after a run that declares a number of them, and is asked for another."""
    with CheckpointSession(checkpoint=str(folder), on="local", slots=declared) as session:
        session.stream("A", SLOTS_SCHEMA).query("q", "SELECT k FROM A [NOW]")
        session.start()
        if asked is not None:
            session.rescale(asked)
        at = int(session.job.batch + 1) if session._job.manifest is not None else 0
        session.push("A", pa.table({"k": [at], "ts": [at]}, schema=SLOTS_SCHEMA))
        return session.job.slots.count


SLOTS_SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64())])


def test_the_slots_that_were_asked_for_stay_until_another_number_is_declared(tmp_path, caplog):
    assert slots_after(tmp_path, 2) == 2
    assert slots_after(tmp_path, 2, asked=4) == 4
    assert "keeps" not in caplog.text
    assert slots_after(tmp_path, 2) == 4
    assert "the job keeps 4 slots, as it was asked to while it ran; slots = 2" in caplog.text
    assert slots_after(tmp_path, 3) == 3
    assert slots_after(tmp_path, 3) == 3
    assert slots_after(tmp_path, None) == 3
    assert slots_after(tmp_path, 2) == 2
