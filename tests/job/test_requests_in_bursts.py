"""Several requests between two batches, whatever they are and in whatever order: answers stay what they must be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.job.test_replacing import clipped
from tests.profiles import always

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
TEXTS = (
    "SELECT k, COUNT(*) AS n FROM A [RANGE 12] GROUP BY k",
    "SELECT k, SUM(v) AS n FROM A [RANGE 9] WHERE v > 2 GROUP BY k",
    "SELECT A.k, A.v AS n FROM A [RANGE 12], B [RANGE 12] WHERE A.k = B.k",
    "SELECT A.k, B.v AS n FROM A [RANGE 8], B [RANGE 8] WHERE A.k = B.k AND A.v < 200",
    "SELECT DISTINCT k, v % 3 AS n FROM B [RANGE 10]",
    "SELECT k, v AS n FROM A [RANGE 12] EXCEPT SELECT k, v FROM B [RANGE 6]",
    "SELECT k, v AS n FROM A [RANGE 7] WHERE v % 2 = 0",
    "SELECT A.k, COUNT(*) AS n FROM A [RANGE 10], B [RANGE 14] WHERE A.k = B.k GROUP BY A.k",
)
STRATEGIES = ("moving_state", "moving_state_paced", "genmig", "genmig_shortened", "parallel_track")
KINDS = (
    "replace",
    "replace",
    "verify",
    "cancel",
    "cancel",
    "switch",
    "migrate",
    "migrate and verify",
    "drop",
    "add",
    "verify another",
)
OF_SLOTS = ("rebalance", "rescale", "cancel the move")


def ask(session: CheckpointSession, rng: Random) -> None:
    """Asks for something."""
    asked = [name for name in session.queries if not name.startswith("kept")]
    text, kind = rng.choice(TEXTS), rng.choice([*KINDS, *OF_SLOTS] if asked else ["add", *OF_SLOTS])
    name = rng.choice(asked) if asked else "q"
    match kind:
        case "replace":
            session.replace(name, text, incomplete=rng.choice(["emit", "withhold"]))
        case "verify":
            session.replace(name, text, verify=rng.choice([3, 20]), where="k < 0", then=rng.choice(["switch", "wait"]))
        case "verify another":
            session.queries[name].cancel_migration()
            session.replace(name, text, verify=3, where="k < 0")
        case "cancel":
            session.queries[name].cancel_migration()
        case "switch":
            session.queries[name].switch()
        case "migrate" | "migrate and verify":
            verify = 5 if kind == "migrate and verify" else None
            session.queries[name].migrate(rng.choice(["(A B)", "(B A)"]), rng.choice(STRATEGIES), verify=verify)
        case "drop":
            session.drop(name)
        case "add":
            session.query(rng.choice("pqr"), text)
        case "rebalance":
            routing = [rng.randrange(session._job.state.slots) for _ in range(256)]
            session.rebalance(routing, protocol=rng.choice(["mslb", "split_time_balancing", "ptlb"]))
        case "rescale":
            session.rescale(rng.randint(1, 4))
        case "cancel the move":
            session.cancel_rebalance()


def batches(rng: Random) -> Iterator[dict[str, list[dict[str, int]]]]:
    """Four instants at a time."""
    for at in range(0, 200, 4):
        times = {name: [ts for ts in range(at, at + 4) for _ in range(rng.randrange(3))] for name in "AB"}
        yield {n: [{"k": rng.randrange(4), "v": rng.randrange(300), "ts": ts} for ts in of] for n, of in times.items()}


@pytest.mark.parametrize("seed", [19, 56, 125, *always(4, range(200))])
def test_requests_that_come_between_two_batches_agree_with_one_another(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=rng.choice([1, 2, 3]))
    coming, came = batches(rng), {name: list[dict[str, int]]() for name in "AB"}
    for name in "AB":
        session.stream(name, SCHEMA)
        if seed % 2:
            session.query(f"kept_{name}", f"SELECT KEEP * FROM {name} [RANGE 40]")
    for name in "pq":
        session.query(name, rng.choice(TEXTS))

    def push(count: int) -> None:
        for _ in range(count):
            rows = next(coming)
            session.push({name: some for name, some in rows.items() if some})
            for name, some in rows.items():
                came[name] += some

    with session.start():
        push(4)
        for _ in range(4):
            for _ in range(rng.randint(1, 4)):
                try:
                    ask(session, rng)
                except ms.MidstreamError as refused:
                    assert not isinstance(refused, ms.InternalError)
            push(rng.randint(1, 4))
        push(rng.randint(3, 10))
        session.finish()
        inputs = {name: pa.Table.from_pylist(rows, SCHEMA) for name, rows in came.items()}
        for name, query in session.queries.items():
            if name.startswith("kept"):
                continue
            begun = [start for done in query.history if (start := done.record.get("complete_from")) is not None]
            got, expected = (
                clipped(x, [0, *begun][-1]) for x in (session.results(name), ms.reference(query.cql, inputs))
            )
            assert (agrees := ms.snapshot_equal(got, expected)), f"{name}: {query.cql}\n{agrees}"
