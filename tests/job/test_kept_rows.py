"""Rows that are kept for questions to come: stored in few bytes, merged late, lying wherever they came."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.job.test_changed_queries import ASKED, SCHEMA, later, streams
from tests.profiles import always

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.check import check
from midstream.checkpoint.opening import ClosedSegment, open_in, open_segment
from midstream.checkpoint.packs import write_pack
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.operators.elements import Elements
from midstream.operators.state.segment import Segment, numbered_segment, numbering
from midstream.operators.state.sorted_state import RestingState, SortedState

KEPT = "SELECT KEEP * FROM {} [RANGE 45]"
JOINED = "SELECT A.v, B.v AS w FROM A [RANGE 45], B [RANGE 30] WHERE A.k = B.k"
OTHER = "SELECT A.k, B.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"


@pytest.mark.parametrize("seed", always(6, range(80)))
def test_kept_rows_serve_queries_whatever_happened_to_slots(seed, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.checkpoint.packs.LEAST_PACKED", 1)
    monkeypatch.setattr(RestingState, "tier", 2)
    rng, tables = Random(seed), streams(seed, seed % 3 == 1, rows=90)
    new, asked = (*ASKED, JOINED)[seed % 6], rng.randint(8, 14)
    kept = {"kept_A": KEPT.format("A"), "kept_B": KEPT.format("B")}
    before = {**kept, "other": OTHER} if seed % 2 else {"other": OTHER, **kept}

    def opened(queries: dict[str, str]) -> CheckpointSession:
        session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=2)
        for name in "AB":
            session.stream(name, SCHEMA)
        for name, cql in queries.items():
            session.query(name, cql)
        return session.start()

    session = opened(before)
    for number, low in enumerate(range(0, 160, 8)):
        if number == asked:
            session.query("q", new)
        match rng.choice(["", "rescale", "rebalance", "restart"]) if number != asked else "":
            case "rescale":
                session.rescale(rng.randint(1, 4))
            case "rebalance":
                session.rebalance([rng.randrange(session._job.state.slots) for _ in range(256)], protocol="mslb")
            case "restart":
                session.stop()
                session = opened(before if number < asked else {**before, "q": new})
        within = {n: pc.and_(pc.greater_equal(t["ts"], low), pc.less(t["ts"], low + 8)) for n, t in tables.items()}
        session.push({name: part for name in "AB" if (part := tables[name].filter(within[name])).num_rows})
    session.finish()
    got, records = session.results("q"), [r.record for r in session.queries["q"].history]
    session.stop()
    stored = ms.open(str(tmp_path))
    assert not check(stored.store.files, stored.manifest)
    begun = next(r for r in records if r.get("event") == "started")
    whole, expected = begun["complete_from"], ms.reference(new, tables)
    assert begun["complete"] == "all results are complete"
    assert ms.snapshot_equal(later(got, whole), later(expected, whole))


COLUMNS = {
    "one number": pa.array([7] * 300),
    "small ones": pa.array(np.arange(300) % 100),
    "far ones": pa.array(np.arange(300) + 2**60),
    "wide ones": pa.array(np.arange(300) * 2**54 - 2**62),
    "all ones": pa.array(np.where(np.arange(300) % 2, -(2**63), 2**63 - 1)),
    "unsigned": pa.array(np.arange(300, dtype=np.uint64) + np.uint64(2**64 - 300)),
    "narrow already": pa.array(np.arange(300) % 50, pa.int8()),
    "with nulls": pa.array([None, *range(299)]),
    "the time": pa.array(np.arange(10, 310)),
    "the time again": pa.array(np.arange(10, 310), pa.timestamp("us")),
    "doubles": pa.array(np.arange(300) / 7),
    "texts": pa.array([f"text {i}" for i in range(300)]),
    "times": pa.array(np.arange(300) * 1_000_000, pa.timestamp("us", "Europe/Berlin")),
    "dates": pa.array((np.arange(300) + 19_000).astype("datetime64[D]")),
    "booleans": pa.array([True, False] * 150),
    "lists": pa.array([[i] for i in range(300)]),
    "dictionaries": pa.array(["a", "b", "c"] * 100).dictionary_encode(),
}


def numbered(
    columns: dict[str, pa.Array], lengths: int | np.ndarray = 45, since: int = 10, lasting: int | None = None
) -> Segment:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    ticks = np.arange(since, since + 300)
    return numbered_segment(Elements(batch, ticks, ticks + lengths, lasting=lasting), 1, 3)


@pytest.mark.parametrize("name", [*COLUMNS, ""])
@pytest.mark.parametrize(("lengths", "lasting"), [(45, None), (45, 45), (np.arange(300) % 3 + 1, None)])
def test_numbered_rows_come_back_as_they_were_whole_and_in_part(name, lengths, lasting, tmp_path):
    columns = {name: COLUMNS[name]} if name else COLUMNS
    files, written = files_at(str(tmp_path)), numbered(columns, lengths, lasting=lasting)
    assert (written.earliest_to, written.latest_to) == (min(written.stored.valid_to), max(written.stored.valid_to))
    (entry,) = write_pack(files, "state/x", {("s", ()): [written]})
    for part in (entry, entry.part(2**62, 2**63)):
        rows = np.flatnonzero([part.hash_from <= hashed < part.hash_to for hashed in written.hashes.tolist()])
        read = open_segment(files, part, SortedState("s", (), written.elements.columns.schema, None))
        assert read.elements.columns.equals(written.elements.columns.take(pa.array(rows)))
        assert np.array_equal(read.hashes, written.hashes[rows])
        assert np.array_equal(read.elements.valid_from, written.elements.valid_from[rows])
        assert np.array_equal(read.elements.valid_to, written.elements.valid_to[rows])


def test_rows_of_one_number_and_one_time_take_no_room(tmp_path):
    files = files_at(str(tmp_path))
    ticks = np.full(300, 5)
    batch = pa.RecordBatch.from_arrays([COLUMNS["one number"]], names=["k"])
    (entry,) = write_pack(files, "state/x", {("s", ()): [numbered_segment(Elements(batch, ticks, ticks + 1), 1, 3)]})
    read = open_segment(files, entry)
    assert (
        entry.length < 2_000 and read.elements.columns.equals(batch) and np.array_equal(read.elements.valid_from, ticks)
    )


def test_a_column_that_repeats_the_time_takes_no_room(tmp_path):
    files = files_at(str(tmp_path))
    sizes = [
        write_pack(files, f"state/{name}", {("s", ()): [numbered({name: COLUMNS[name]})]})[0].length
        for name in ("one number", "the time", "the time again", "small ones")
    ]
    assert max(sizes[:3]) - min(sizes[:3]) < 100 < 300 <= sizes[3] - sizes[0]


def test_kept_rows_take_few_bytes_and_are_opened_only_when_somebody_looks(tmp_path):
    files = files_at(str(tmp_path))
    written = numbered({name: COLUMNS[name] for name in ("small ones", "far ones")})
    state = RestingState("s", (), written.elements.columns.schema, 45)
    (entry,) = write_pack(files, "state/x", {("s", ()): [written]})
    assert entry.length < written.bytes // 3
    closed = open_in(files, entry, state)
    files.delete("state/x")
    assert isinstance(closed, ClosedSegment) and (len(closed), closed.bytes) == (300, written.bytes)
    assert (closed.place, closed.latest_to) == (entry.place, written.latest_to)
    with pytest.raises(ms.MidstreamError, match="is missing"):
        assert closed.elements


def test_kept_rows_stay_in_the_order_in_which_they_came_and_are_merged_late():
    state = RestingState("s", (), pa.schema([("k", pa.int64())]), 10_000)
    came = [np.arange(i * 10, i * 10 + 10) for i in range(40)]
    for ticks in came:
        batch = pa.RecordBatch.from_arrays([pa.array(ticks * 7 % 11)], schema=state.schema)
        state.insert(Elements(batch, ticks, ticks + 10_000), np.zeros(len(ticks), np.uint64))
        state.compact(0, len(ticks))
    sizes = [len(segment) for segment in sorted(state.segments, key=lambda s: s.born)]
    merged = [size for size in sizes if size > 10]  # of 16 segments, or more until it is this state's turn
    assert len(merged) == 2 and all(160 <= size <= 320 for size in merged) and sizes[2:] == [10] * len(sizes[2:])
    rows = np.concatenate([s.elements.valid_from for s in sorted(state.segments, key=lambda s: s.born)])
    assert rows.tolist() == list(range(400))
    assert all(np.array_equal(segment.hashes, numbering(len(segment))) for segment in state.segments)
    state.expire(10_000 + sizes[0] - 1)
    assert state.rows == 400 - sizes[0]
