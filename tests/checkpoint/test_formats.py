"""Checkpoints that earlier versions made go on, with all that was under way.

`data/format_4.zip` is a checkpoint of the fourth format: three streams, a join that migrates, a query that adapts, one
in quarantine, and a change of slots that waits for the migration. `data/format_5.zip` has two of the fifth: `job`, of
which a join migrates, and `routed`, of which a join runs by a routed plan.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore

QUERIES = {
    "j": "SELECT A.k, B.v AS b, C.v AS c FROM A [RANGE 40], B [RANGE 40], C [RANGE 40] WHERE A.k = B.k AND B.k = C.k",
    "d": "SELECT DISTINCT k FROM A [RANGE 20]",
    "g": "SELECT k, COUNT(*) AS n FROM B [RANGE 30] GROUP BY k",
    "bad": "SELECT CAST(w AS BIGINT) AS x FROM C [RANGE 5]",
}
PUSHED = {"A": 61, "B": 60, "C": 60}
"""How many rows of each stream the checkpoint has taken in."""


def rows(first: int, after: int) -> pa.Table:
    numbers = range(first, after)
    return pa.table(
        {
            "ts": pa.array(list(numbers), pa.int64()),
            "k": [i % 7 for i in numbers],
            "v": [i * 3 % 11 for i in numbers],
            "w": ["x" if i == 33 else str(i) for i in numbers],
        }
    )


def unpacked(folder: Path, archive: str, name: str = "job") -> Path:
    with zipfile.ZipFile(Path(__file__).parent / "data" / archive) as opened:
        opened.extractall(folder)
    return folder / name


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return unpacked(tmp_path, "format_4.zip")


def newest(folder: Path) -> Manifest:
    manifest = CheckpointStore(str(folder)).latest()
    assert manifest is not None
    return manifest


def test_every_part_of_the_fourth_format_has_its_place(old):
    manifest = newest(old)
    assert manifest.streams.rows == PUSHED and manifest.streams.registers == {"A": 60, "B": 59, "C": 59}
    assert manifest.slots.count == 3 and manifest.slots.wanted is not None and len(manifest.slots.moves) == 1
    assert manifest.migration["j"]["strategy"] == "genmig" and not manifest.migration["j"]["done"]
    fault = manifest.account("bad").fault
    assert fault is not None and fault.reason == "cannot cast 'x' to int64"
    assert (manifest.account("d").knowledge or {})["mode"] == "auto"
    assert manifest.settings.declared.keys() == PUSHED.keys() and manifest.settings.identity
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_job_of_the_fourth_format_goes_on_in_the_middle_of_its_migration(old):
    session: Any = ms.Session(checkpoint=str(old), on="local")
    for name in PUSHED:
        session.stream(name, rows(0, 1).schema, time="ts")
    for name, cql in QUERIES.items():
        session.query(name, cql, adaptive="auto" if name == "d" else "off")
    with session.start():
        assert session.queries["j"].history[-1].status == "under way"
        for start in range(60, 160, 20):
            for name, taken in PUSHED.items():
                session.push(name, rows(max(start, taken), start + 20))
        assert session.queries["j"].plan.text == "((B C) A)"
        session.finish()
        found = {name: session.queries[name].table() for name in ("j", "d", "g")}
        assert session.queries["bad"].quarantine is not None
    assert newest(old).slots.wanted is None and len(newest(old).slots.moves) == 2
    inputs = dict.fromkeys(PUSHED, rows(0, 160))
    for name, table in found.items():
        assert ms.snapshot_equal(table, ms.reference(QUERIES[name], inputs)), name


def declared(folder: Path, queries: Mapping[str, str]) -> Any:
    session: Any = ms.Session(checkpoint=str(folder), on="local")
    for name in "ABC":
        session.stream(name, rows(0, 1).schema, time="ts")
    for name, cql in queries.items():
        session.query(name, cql)
    return session


def test_a_job_of_the_fifth_format_goes_on_in_the_middle_of_its_migration(tmp_path):
    asked = {name: QUERIES[name] for name in ("j", "d", "g")}
    session = declared(unpacked(tmp_path, "format_5.zip"), asked)
    with session.start():
        assert session.queries["j"].history[-1].status == "under way"
        for start in range(60, 160, 20):
            session.push({name: rows(start, start + 20) for name in "ABC"})
        assert session.queries["j"].plan.text == "(A (B C))"
        session.finish()
        found = {name: session.queries[name].table() for name in asked}
    inputs = dict.fromkeys("ABC", rows(0, 160))
    for name, table in found.items():
        assert ms.snapshot_equal(table, ms.reference(asked[name], inputs)), name


def test_windows_that_lie_by_another_hash_are_refused_and_nothing_changes(tmp_path):
    folder = unpacked(tmp_path, "format_5.zip", "routed")
    before = newest(folder)
    with pytest.raises(ms.JobError, match=r"query r of .* runs by a routed plan, and its windows lie by the hash"):
        declared(folder, {})
    assert newest(folder) == before
