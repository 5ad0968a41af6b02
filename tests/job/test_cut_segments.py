"""States whose segments are merged by ranges of hashes, so that manifests name what is left of some of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import midstream as ms
from midstream.operators.state import sorted_state
from midstream.operators.state.crowds import Crowd, lowest_crowd
from midstream.operators.state.segment import Segment

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
QUERIES = {
    "pairs": "SELECT A.k, A.v, B.v AS w FROM A [RANGE 600], B [RANGE 600] WHERE A.k = B.k",
    "narrow": "SELECT A.k, A.v FROM A [RANGE 300], B [RANGE 400] WHERE A.k = B.k AND A.v < 60",
    "known": "SELECT DISTINCT k FROM A [RANGE 500]",
}
BATCHES, ROWS = 45, 24


def batch(number: int) -> dict[str, pa.Table]:
    chance = np.random.default_rng(number)
    return {
        name: pa.table(
            {
                "ts": np.arange(number * ROWS, number * ROWS + ROWS),
                "k": chance.integers(0, 300, ROWS),
                "v": chance.integers(0, 100, ROWS),
            },
            schema=SCHEMA,
        )
        for name in "AB"
    }


def test_a_job_goes_on_from_what_is_left_of_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[Crowd] = []

    def counted(segments: list[Segment], most: int, least: int = 2) -> Crowd | None:
        found = lowest_crowd(segments, most, least)
        if found is not None and any(part.within for part in found.stays):
            cut.append(found)
        return found

    monkeypatch.setattr(sorted_state, "MERGE_ROWS", 8)
    monkeypatch.setattr(sorted_state, "lowest_crowd", counted)
    checkpoint = str(tmp_path / "c")
    for since, until in pairwise((0, 17, 18, 19, 31, BATCHES)):
        with ms.Session(checkpoint=checkpoint, on="local", slots=2) as session:
            for name in "AB":
                session.stream(name, SCHEMA)
            for name, cql in QUERIES.items():
                session.query(name, cql)
            session.start()
            for number in range(since, until):
                session.push(batch(number))
            if until == BATCHES:
                session.finish()
                found = {name: session.results(name) for name in QUERIES}
    assert len(cut) > 3
    inputs = {name: pa.concat_tables([batch(i)[name] for i in range(BATCHES)]) for name in "AB"}
    for name, cql in QUERIES.items():
        assert ms.snapshot_equal(found[name], ms.reference(cql, inputs, time="ts")), name
