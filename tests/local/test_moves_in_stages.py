"""Queries that have stages for the sake of others: their groups move by marks, and their plans change meanwhile."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.local.test_durable_sessions import SCHEMA
from tests.profiles import always

import midstream as ms
from midstream.checkpoint.store import CheckpointStore

QUERIES = {
    "by_value": "SELECT A.v FROM A [RANGE 20], D [RANGE 30] WHERE A.v = D.v",
    "by_key": "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 20], B [RANGE 25], C [RANGE 20] "
    "WHERE A.k = B.k AND B.k = C.k",
}
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)", "A: B C, B: A C, C: B A")
STEPS = ("move", "move", "migrate", "migrate", "verify", "back", "cancel", "restart")


def opened(folder: Path, **options: Any) -> ms.Session:
    session = ms.Session(checkpoint=str(folder), on="local", **options)
    for name in "ABCD":
        session.stream(name, SCHEMA)
    for name, cql in QUERIES.items():
        session.query(name, cql)
    session.start()
    return session


def rows(rng: np.random.Generator, part: int) -> pa.Table:
    ticks = np.sort(rng.integers(8 * part, 8 * part + 8, 14))
    columns = {"k": rng.integers(0, 6, 14), "v": rng.integers(0, 6, 14), "ts": ticks}
    return pa.table(columns).select(SCHEMA.names).cast(SCHEMA)


def step_of(session: ms.Session, step: str, rng: random.Random) -> None:
    """Asks for a change; what is refused changes nothing."""
    query = session.queries["by_key"]
    with suppress(ms.MidstreamError):
        match step:
            case "move":
                session.rebalance([rng.randrange(3) for _ in range(256)], protocol=rng.choice(["ptlb", "ptlb", "auto"]))
            case "migrate":
                strategy = rng.choice(["moving_state", "moving_state_paced", "auto", "parallel_track"])
                query.migrate(rng.choice(PLANS), strategy)
            case "verify":
                query.migrate(rng.choice(PLANS), "moving_state", verify=10)
            case "back":
                session.cancel_rebalance()
            case "cancel":
                query.cancel_migration()


@pytest.mark.parametrize("seed", always(1, range(60)))
def test_marked_groups_of_several_stages_move_and_migrate_at_random_moments(seed: int, tmp_path: Path) -> None:
    rng, drawn, log = random.Random(seed), np.random.default_rng(seed), []
    parts = {name: [rows(drawn, part) for part in range(14)] for name in "ABCD"}
    session, moving = opened(tmp_path, slots=3), 0
    for part in range(14):
        for step in rng.choices(STEPS, k=rng.randint(0, 2)) if part else ():
            if step == "restart":
                session.stop()
                session = opened(tmp_path)
            else:
                step_of(session, step, rng)
            log.append(f"{part}: {step}")
        session.push({name: parts[name][part] for name in "ABCD"})
        manifest = CheckpointStore(str(tmp_path)).latest()
        assert manifest is not None
        moving += manifest.slots.doubled is not None and manifest.slots.doubled.queries["by_key"] == "whole"
    session.finish()
    inputs = {name: pa.concat_tables(tables) for name, tables in parts.items()}
    for name, cql in QUERIES.items():
        read = {stream: table for stream, table in inputs.items() if f"{stream} [" in cql}
        difference = ms.snapshot_equal(session.queries[name].table(), ms.reference(cql, read))
        assert difference, f"{name}: {difference}\n{log}"
    session.stop()
    if seed < 4:
        assert moving, log
