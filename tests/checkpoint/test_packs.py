"""Packs: what is written is read again, where it lies; what was changed is named and never read."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from decimal import Decimal
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.making import STATE, flip, pack, same, segment

from midstream.checkpoint import maps
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.format import EntryReader, Writer
from midstream.checkpoint.opening import open_segment, open_states
from midstream.checkpoint.packs import ALIGNMENT, StateKey, joined, kept_entries, write_pack
from midstream.errors import JobError
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

COLUMNS = {
    "integers": pa.array([1, None, 3], pa.int64()),
    "small": pa.array([1, None, -3], pa.int8()),
    "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "doubles": pa.array([1.5, float("nan"), None]),
    "floats": pa.array([1.5, -0.0, None], pa.float32()),
    "booleans": pa.array([True, None, False]),
    "strings": pa.array(["ä", None, ""]),
    "large strings": pa.array(["x" * 100, None, ""], pa.large_string()),
    "bytes": pa.array([b"\x00\xff", None, b""]),
    "views": pa.array(["a string longer than twelve bytes", None, "short"], pa.string_view()),
    "decimals": pa.array([Decimal("12345678901234567890.123"), None, Decimal("-1.000")], pa.decimal128(38, 3)),
    "dates": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
    "times": pa.array([dt.datetime(2024, 2, 29, 1, 2, 3), None, dt.datetime(1970, 1, 1)], pa.timestamp("us")),
    "zoned": pa.array([0, None, 1], pa.timestamp("us", "Europe/Berlin")),
    "durations": pa.array([1, None, -1], pa.duration("us")),
    "lists": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "structs": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
    "maps": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "dictionaries": pa.array(["a", None, "a"]).dictionary_encode(),
    "nothing": pa.nulls(3),
}


@pytest.fixture
def files(tmp_path):
    return files_at(str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_any_type_comes_back_as_it_was(files, name):
    written = segment({name: COLUMNS[name]})
    (entry,) = pack(files, segments=[written])
    assert same(open_segment(files, entry), written)


def test_all_columns_together_come_back_as_they_were(files):
    written = segment(COLUMNS)
    (entry,) = pack(files, segments=[written])
    assert same(open_segment(files, entry, SortedState(*STATE, written.elements.columns.schema, None)), written)


def test_rows_without_columns_come_back_as_they_were(files):
    written = segment({}, rows=5)
    (entry,) = pack(files, segments=[written])
    opened = open_segment(files, entry)
    assert same(opened, written) and opened.elements.columns.num_rows == 5


def test_columns_of_equal_name_come_back_as_they_were(files):
    written = segment({"k": [1, 2]})
    columns = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["x", "y"])], names=["k", "k"])
    written = with_payload(written, columns)
    (entry,) = pack(files, segments=[written])
    assert same(open_segment(files, entry), written)


def with_payload(written, columns):
    return replace(written, stored=replace(written.elements, columns=columns))


def test_a_slice_of_a_larger_batch_is_written_without_the_rest(files):
    large = segment({"s": [f"{i:0100d}" for i in range(10_000)]})
    small = with_payload(segment(rows=4), large.elements.columns.slice(500, 4))
    (entry,) = pack(files, segments=[small])
    assert same(open_segment(files, entry), small)
    assert entry.length < 4_000


def test_segments_of_all_states_share_a_file_and_keep_their_order(files):
    states: dict[StateKey, list[Segment]] = {
        (f"state {i}", ("k",)): [segment(start=10 * i), segment(start=10 * i + 5)] for i in range(3)
    }
    entries = write_pack(files, "state/one.pack", states)
    assert len(files.list("state")) == 1
    assert all(entry.offset % ALIGNMENT == 0 for entry in entries)
    opened = open_states(files, entries)
    assert list(opened) == list(states)
    assert all(same(a, b) for key in states for a, b in zip(opened[key], states[key], strict=True))


def test_columns_lie_in_the_mapped_file_and_are_not_copied(files):
    (entry,) = pack(files, segments=[segment({"k": range(1000)})])
    opened = open_segment(files, entry)
    mapped = files.open_map(entry.file)
    ends = (mapped.address, mapped.address + mapped.size)
    values = opened.elements.columns.column(0).buffers()[1].address
    assert ends[0] <= values < ends[1]
    assert all(ends[0] <= a.ctypes.data < ends[1] for a in (opened.hashes, opened.elements.valid_from))


def test_only_segments_that_are_kept_nowhere_are_written(files):
    old = pack(files, segments=[segment(), segment(start=50)])
    held = open_states(files, old)[STATE]
    new = segment(start=90)
    entries = write_pack(files, "state/next.pack", {STATE: [held[1], new]})
    assert [entry.file for entry in entries] == ["state/next.pack"]
    assert kept_entries(old, {STATE: [held[1], new]}) == [old[1]]


def test_a_pack_without_new_segments_makes_no_file(files):
    held = open_states(files, pack(files))[STATE]
    assert write_pack(files, "state/next.pack", {STATE: held, ("other", ()): []}) == []
    assert not files.exists("state/next.pack")


def test_a_state_goes_on_from_what_was_stored(files):
    written = segment()
    state = SortedState(*STATE, written.elements.columns.schema, longest=100)
    state.replace_segments(open_states(files, pack(files, segments=[written]))[STATE])
    assert state.appends == 3
    state.insert(written.elements, written.hashes)
    state.compact(0)
    assert state.rows == 8


def test_a_part_of_a_segment_holds_the_hashes_asked_for(files):
    written = segment({"k": range(100)})
    (entry,) = pack(files, segments=[written])
    middle = int(written.hashes[40])
    low, high = (open_segment(files, entry.part(*ends)) for ends in ((0, middle), (middle, 2**64)))
    assert (len(low), len(high)) == (40, 60)
    assert low.elements.columns.column(0).to_pylist() == list(range(40))
    assert np.array_equal(np.concatenate([low.hashes, high.hashes]), written.hashes)
    assert len({low.place, high.place, entry.place}) == 3
    assert len(open_segment(files, entry.part(5, 5))) == 0
    assert open_states(files, [entry.part(1, 2)]) == {}


def test_groups_of_a_segment_are_its_partition(files):
    written = segment({"k": range(1000)})
    (entry,) = pack(files, segments=[written])
    parts = [open_segment(files, entry.part(g << 56, (g + 1) << 56)) for g in range(256)]
    assert sum(map(len, parts)) == 1000
    assert all((part.hashes >> np.uint64(56) == g).all() for g, part in enumerate(parts))


@given(cuts=st.sets(st.integers(1, 2**64 - 1), max_size=6), gone=st.sets(st.integers(0, 6)), order=st.randoms())
def test_parts_that_lie_side_by_side_become_one_and_gaps_stay(tmp_path_factory, cuts, gone, order):
    files = files_at(str(tmp_path_factory.mktemp("parts")))
    (one, other) = pack(files, segments=[segment({"k": range(300)}), segment({"k": range(300)}, start=50)])
    parts = [one.part(start, end) for start, end in pairwise([0, *sorted(cuts), 2**64])]
    left = [part for number, part in enumerate(parts) if number not in gone]
    found = joined(order.sample([*left, other], len(left) + 1))
    assert sum(part.origin == one.origin for part in found) == len([g for g, _ in groupby(left, _run_in(parts))])
    assert other in found and (gone & set(range(len(parts))) or found.count(one) == 1)

    def hashes(entries):
        opened = [open_segment(files, entry).hashes for entry in entries if entry.origin == one.origin]
        return np.sort(np.concatenate([np.empty(0, np.uint64), *opened])).tolist()

    assert hashes(found) == hashes(left)


def _run_in(parts):
    """Numbers parts so that those of one run without a gap have the same number."""
    count = iter(range(len(parts)))
    return lambda part: parts.index(part) - next(count)


def test_entries_survive_as_text(files):
    entries = pack(files, segments=[segment(), segment(start=30)])
    entries = (*entries, entries[0].part(7, 2**63))
    for some in (entries, ()):
        writer = Writer()
        written = json.loads(writer.once(some).text)
        assert EntryReader(json.loads(json.dumps(writer.texts()))).once(written) == some


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_changed_byte_is_named_and_never_read(files, place):
    (entry,) = pack(files, segments=[segment({"s": ["some text"] * 100})])
    flip(files.full(entry.file), entry.offset + int(entry.length * place))
    with pytest.raises(JobError, match="damaged") as error:
        open_segment(files, entry)
    assert entry.file in str(error.value) and STATE[0] in str(error.value) and "checksum" in str(error.value)


def test_damage_beside_a_segment_does_not_hurt_it(files):
    first, second = pack(files, segments=[segment(), segment(start=50)])
    flip(files.full(first.file), first.offset + 20)
    assert len(open_segment(files, second)) == 4


@pytest.mark.parametrize("length", [0, 1, 64, 300])
def test_a_truncated_file_is_named_and_never_read(files, length):
    (entry,) = pack(files)
    os.truncate(files.full(entry.file), length)
    with pytest.raises(JobError, match="damaged") as error:
        open_segment(files, entry)
    assert entry.file in str(error.value) and STATE[0] in str(error.value) and f"{length} bytes" in str(error.value)


def test_a_file_truncated_after_it_was_mapped_is_named_and_never_read(files):
    (entry,) = pack(files)
    open_segment(files, entry)
    os.truncate(files.full(entry.file), 100)
    with pytest.raises(JobError, match="damaged\n.*it is 100 bytes long"):
        open_segment(files, entry)


def test_a_missing_file_is_named(files):
    (entry,) = pack(files)
    os.unlink(files.full(entry.file))
    with pytest.raises(MissingFile, match="missing") as error:
        open_segment(files, entry)
    assert entry.file in str(error.value) and STATE[0] in str(error.value)


def test_a_file_that_vanishes_after_it_was_mapped_is_named(files):
    (entry,) = pack(files)
    open_segment(files, entry)
    os.unlink(files.full(entry.file))
    with pytest.raises(MissingFile):
        open_segment(files, entry)


def test_an_entry_that_speaks_of_another_segment_is_refused(files):
    (entry,) = pack(files)
    with pytest.raises(JobError, match="damaged"):
        open_segment(files, replace(entry, rows=5))
    (other,) = pack(files, segments=[segment(start=500)])
    with pytest.raises(JobError, match="checksum"):
        open_segment(files, replace(entry, file=other.file))


def test_other_columns_than_the_plan_expects_are_refused(files):
    (entry,) = pack(files, segments=[segment({"k": [1, 2]})])
    with pytest.raises(JobError, match="other columns") as error:
        open_segment(files, entry, SortedState(*STATE, pa.schema([("k", pa.string())]), None))
    assert "k int64" in str(error.value) and "k string" in str(error.value)


def test_the_checksum_is_compared_on_the_first_open_of_a_mapping_only(files):
    (entry,) = pack(files)
    open_segment(files, entry)
    assert files.mapped(entry.file).verified == {entry.offset}
    maps.forget(files.full(entry.file))
    assert files.mapped(entry.file).verified == set()


def test_mappings_of_deleted_files_are_let_go(files, monkeypatch):
    monkeypatch.setattr(maps, "SWEEP_EVERY", 1)
    (entry,) = pack(files)
    opened = open_segment(files, entry)
    path = files.full(entry.file)
    Path(path).unlink()
    open_segment(files, *pack(files))
    assert path not in maps._maps
    assert opened.elements.columns.column(0).to_pylist() == [0, 1, 2, 3]


def test_the_oldest_mappings_go_when_there_are_too_many(files, monkeypatch):
    monkeypatch.setattr(maps, "MOST_MAPS", 3)
    entries = [pack(files)[0] for _ in range(5)]
    for entry in entries:
        open_segment(files, entry)
    assert len(maps._maps) <= 3
    assert files.full(entries[-1].file) in maps._maps
