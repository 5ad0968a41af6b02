"""Rows that are stamped on arrival are never late, whatever the clock does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.job.chain import Chain

from midstream.api import ask
from midstream.cluster.sessions import Session

SECOND = 1_000_000
CLOCKS = st.lists(st.integers(0, 200), min_size=1, max_size=6)
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def stamps(folder: Path, seconds: list[int], lateness: int = 0) -> list[int]:
    """The times that rows have which come when the clock is at these seconds."""
    question = ask("SELECT k, ts FROM A [NOW]", {"A": SCHEMA.empty_table()})
    declared = replace(question.catalog.streams["A"], timestamps="internal", on_demand=True, lateness=lateness)
    chain = Chain(question.plan, replace(question.catalog, streams={"A": declared}), folder)
    for i, now in enumerate(seconds):
        column = pa.array([now * SECOND] * 3, SCHEMA.field("ts").type)
        chain.batch({"A": pa.record_batch({"k": pa.array([i] * 3), "ts": column})})
    chain.batch({}, end=True)
    assert chain.manifest.streams.late == {}
    found = chain.results()
    assert found["ts"].cast(pa.int64()).to_pylist() == found["valid_from"].cast(pa.int64()).to_pylist()
    by_batch = dict(zip(found["k"].to_pylist(), found["ts"].cast(pa.int64()).to_pylist(), strict=True))
    assert sorted(found["k"].to_pylist()) == sorted(list(range(len(seconds))) * 3)
    return [by_batch[i] for i in range(len(seconds))]


def test_a_clock_that_goes_backwards_makes_no_row_late(tmp_path):
    found = stamps(tmp_path, [100, 98, 99, 101])
    assert found == [100 * SECOND, 100 * SECOND + 1, 100 * SECOND + 2, 101 * SECOND]


@settings(max_examples=25)
@given(CLOCKS, st.sampled_from([0, 5 * SECOND]))
def test_stamps_never_go_backwards(tmp_path_factory, seconds, lateness):
    found = stamps(tmp_path_factory.mktemp("stamped"), seconds, lateness)
    assert all(a <= b for a, b in pairwise(found))
    assert all(stamp >= now * SECOND for stamp, now in zip(found, seconds, strict=True))


@given(CLOCKS, st.sampled_from([0, "5 seconds"]))
def test_stamps_in_this_process_never_go_backwards(seconds, lateness):
    now = [0]
    session = Session(clock=lambda: now[0])
    session.stream("A", SCHEMA, timestamps="internal", lateness=lateness)
    query = session.query("q", "SELECT k, ts FROM A [NOW]")
    for i, at in enumerate(seconds):
        now[0] = at * SECOND
        session.push("A", {"k": [i]})
    session.stop()
    found = query.results()["ts"].cast(pa.int64()).to_pylist()
    assert len(found) == len(seconds) and not session.dead_letters
    assert all(a <= b for a, b in pairwise(found))
