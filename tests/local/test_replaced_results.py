"""What queries that were replaced have given: few files, the same rows, and nothing of it in later batches' metrics."""

from __future__ import annotations

import pyarrow as pa

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.checkpoint_session import CheckpointSession

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
EVERY, TIMES = 5, 6


def merged(session: CheckpointSession) -> None:
    """Waits for the merges that are under way, so that the next manifest has them."""
    if session._job.commits.compactor.round is not None:
        session._job.commits.compactor.round.result()


def run(folder) -> dict[str, list[int]]:
    """A query that is replaced again and again; gives what each of them has released, by name."""
    expected: dict[str, list[int]] = {}
    session = CheckpointSession(checkpoint=str(folder), on="local")
    session.stream("A", SCHEMA)
    session.query("q", "SELECT k FROM A [NOW] WHERE k >= 0")
    session.start()
    for i in range(EVERY * TIMES):
        replaced = i > 0 and i % EVERY == 0
        if replaced:
            session.query("q", f"SELECT k FROM A [NOW] WHERE k >= {i // EVERY}", replace=True)
        session.push("A", pa.table({"k": [i], "ts": [10 * i]}))
        if replaced:
            assert session._job.manifest is not None
            old = f"q@{session._job.manifest.batch_id}"
            expected[old] = ms.read_results(str(folder), old)["k"].to_pylist()
        merged(session)
    for i in range(3):
        session.push("A", pa.table({"k": [0], "ts": [10_000 + i]}))
        merged(session)
    session.stop()
    return expected


def test_what_a_replaced_query_has_given_is_in_one_file(tmp_path):
    expected = run(tmp_path)
    manifest = CheckpointStore(str(tmp_path)).latest()
    assert manifest is not None and len(expected) == TIMES - 1
    for name, rows in expected.items():
        own = [file for file in manifest.outputs.results[name].newer if not file.part]
        assert len(own) == 1, name
        assert len(rows) >= EVERY - 1
        assert ms.read_results(str(tmp_path), name)["k"].to_pylist() == rows


def test_metrics_do_not_tell_again_how_far_replaced_queries_were(tmp_path):
    run(tmp_path)
    rows = metrics_of(files_at(str(tmp_path)), CheckpointStore(str(tmp_path)).latest()).to_pylist()
    assert all(set(dict(row["released"])) <= {"q"} for row in rows)
    assert dict(rows[-1]["released"]).keys() == {"q"}
