"""Manifests: they come back as they were, damage is named, and formats are respected."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import (
    DeadLetterFile,
    FileLog,
    ListFile,
    MetricsFile,
    ResultFile,
    SourceFile,
    Superseded,
)
from midstream.checkpoint.manifest import FORMAT_VERSION, Manifest, QueryEntry
from midstream.checkpoint.packs import ALL_HASHES, HashRange, SegmentEntry
from midstream.checkpoint.query_windows import FilledWindow, SharingRecord, WindowFilling
from midstream.checkpoint.records import (
    Asked,
    Fault,
    MigrationProgress,
    Outputs,
    PlansAtWork,
    QueryAccount,
    SetAside,
    Settings,
    SlotPlan,
    Slots,
    StoredRequest,
    Streams,
    StreamWait,
)
from midstream.distribution.fragments import Routing
from midstream.errors import InternalError, JobError
from midstream.migration.history import Account

names = st.text(min_size=1, max_size=12)
ticks = st.one_of(st.sampled_from([BEGINNING, INFINITY, 0]), st.integers(-(2**62), 2**62))
counts = st.integers(0, 2**40)
hash_ranges = st.builds(HashRange, st.integers(0, 2**63), st.integers(2**63, ALL_HASHES), counts)
make: Any = SegmentEntry
entries = st.builds(
    lambda texts, numbers, times, part: make(*texts, *numbers, *times, 7, part),
    st.tuples(names, st.lists(names, max_size=2).map(tuple), names),
    st.tuples(counts, counts, counts, counts, st.integers(-5, 5), counts),
    st.tuples(ticks, ticks, ticks),
    st.none() | hash_ranges,
)
by_stage = st.dictionaries(
    st.integers(0, 3), st.dictionaries(st.integers(0, 9), st.lists(entries, max_size=4).map(tuple), max_size=3)
)
by_query = st.dictionaries(names, ticks, max_size=3)
lists = st.lists(st.builds(ListFile, names, counts, counts), max_size=2).map(tuple)
opaque = st.recursive(
    st.none() | st.booleans() | counts | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
records = st.dictionaries(st.text(), opaque, max_size=2)
history = st.lists(records, max_size=2).map(tuple)
by_name = st.dictionaries(names, counts, max_size=2)


def some(kind: type, *fields: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.builds(kind, *fields), max_size=2).map(tuple)


settings = st.builds(
    Settings,
    job=st.none() | names,
    declared=st.dictionaries(names, records, max_size=2),
    arrival=st.dictionaries(names, st.none() | st.lists(names, max_size=2), max_size=2),
    scheduling=names,
    finished=st.booleans(),
)
streams = st.builds(
    Streams,
    source_batch=st.none() | counts,
    own_batches=counts,
    registers=by_query,
    latest=by_query,
    rows=by_name,
    late=by_name,
    unusable=by_name,
    silent=by_name,
    waits=st.dictionaries(names, st.builds(StreamWait, names, st.none() | ticks, counts), max_size=2),
    doubted=st.lists(names, max_size=2).map(tuple),
    files=st.dictionaries(names, st.builds(FileLog, some(SourceFile, names, counts, counts), lists), max_size=2),
)
slots = st.builds(
    Slots,
    routing=st.lists(st.integers(0, 9), max_size=8).map(tuple),
    count=counts,
    loads=st.lists(counts, max_size=3).map(tuple),
    wanted=st.none() | st.builds(Routing, st.lists(counts, max_size=3).map(tuple), counts, names),
    moves=history,
)
windows = st.builds(
    FilledWindow,
    names,
    names,
    st.dictionaries(names, names, max_size=2),
    st.booleans(),
    st.none() | st.lists(names, max_size=2).map(tuple),
    st.booleans(),
    st.dictionaries(names, st.lists(counts, max_size=2), max_size=2),
)
fillings = st.builds(WindowFilling, names, st.lists(windows, max_size=2).map(tuple), rate=st.none() | counts)
sharing = st.builds(
    SharingRecord,
    st.dictionaries(names, counts, max_size=2),
    ticks,
    st.none() | ticks,
    st.booleans(),
    st.none() | st.lists(names, max_size=2).map(tuple),
    st.none() | fillings,
)
migrations = st.none() | st.builds(
    MigrationProgress,
    names,
    names,
    records,
    names,
    st.booleans(),
    st.none() | counts,
    st.booleans(),
    st.none() | st.builds(Account, *[ticks] * 3, *[st.floats(0, 1e9)] * 3, counts),
)
accounts = st.builds(
    QueryAccount,
    results=counts,
    history=history,
    graph=st.none() | records,
    sharing=st.none() | sharing,
    knowledge=st.none() | records,
    mode=st.none() | names,
    added=st.none() | records,
    on_error=st.none() | names,
    fault=st.none() | st.builds(Fault, counts, names, st.none() | names, st.none() | names),
    set_aside=st.none() | st.builds(SetAside, counts, counts),
    plans=st.builds(
        PlansAtWork, migrations, st.dictionaries(counts, st.builds(SlotPlan, names, migrations), max_size=2)
    ),
)
outputs = st.builds(
    Outputs,
    results=st.dictionaries(
        names, st.builds(FileLog, some(ResultFile, names, counts, ticks, ticks, counts), lists), max_size=2
    ),
    dead_letters=st.builds(FileLog, some(DeadLetterFile, names, counts, counts), lists),
    superseded=some(Superseded, names, st.floats(0, 1e9)),
    given_up=history,
    metrics=some(MetricsFile, names, counts, counts, counts),
    recent=history,
)
requests = st.builds(
    StoredRequest, names, names, st.dictionaries(names, st.text(), max_size=2), st.none() | counts, st.none() | names
)
any_manifest = st.builds(
    Manifest,
    query_id=st.text(),
    batch_id=counts,
    offsets=st.text(),
    epoch=counts,
    queries=st.dictionaries(
        names, st.builds(QueryEntry, st.text(), st.text(), st.none() | counts, st.text()), max_size=2
    ),
    settings=settings,
    streams=streams,
    slots=slots,
    accounts=st.dictionaries(names, accounts, max_size=2),
    advanced_to=by_query,
    released=by_query,
    segments=st.dictionaries(names, by_stage, max_size=2),
    outputs=outputs,
    asked=st.builds(Asked, st.lists(requests, max_size=3).map(tuple), st.dictionaries(names, st.text(), max_size=2)),
)


@examples(40)
@given(any_manifest)
def test_a_manifest_comes_back_as_it_was(written):
    content = written.to_bytes()
    again = Manifest.from_bytes(content)
    assert again == written
    assert again.to_bytes() == content


def large(rows: int = 2000) -> Manifest:
    entry = SegmentEntry("a long state id " * 20, ("k",), "state/x.pack", 64, 10, 1, 1, 0, 0, 1, 2, 3, 9)
    return Manifest("q", 3, segments={"hot": {0: {0: (entry,) * rows}}})


def test_a_large_manifest_is_compressed_and_comes_back_as_it_was():
    written = large(4000)
    content = written.to_bytes()
    assert json.loads(content.partition(b"\n")[0])["encoding"] == "zstd"
    assert len(content) < 20_000
    assert Manifest.from_bytes(content) == written


def test_a_small_manifest_can_be_read_by_anybody():
    head, body = Manifest("q", 3, offsets='{"a": 1}').to_bytes().split(b"\n")
    assert json.loads(head)["midstream"] == "manifest"
    assert json.loads(body)["offsets"] == '{"a": 1}'


def test_numbers_of_numpy_are_numbers():
    registers: Any = {"A": np.int64(7)}
    written = Manifest("q", 3, streams=Streams(registers=registers), slots=Slots(loads=(np.float64(0.5),)))
    plain = Manifest("q", 3, streams=Streams(registers={"A": 7}), slots=Slots(loads=(0.5,)))
    assert Manifest.from_bytes(written.to_bytes()) == plain


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_what_json_cannot_say_is_refused_before_anything_is_written(value):
    with pytest.raises(InternalError):
        Manifest("q", 3, accounts={"q": QueryAccount(knowledge={"x": value})}).to_bytes()


@pytest.mark.parametrize("written", [Manifest("q", 3, offsets="some text"), large()], ids=["plain", "compressed"])
def test_no_changed_byte_passes(written):
    content = written.to_bytes()
    for position in range(0, len(content), max(1, len(content) // 200)):
        changed = bytearray(content)
        changed[position] ^= 0x04
        try:
            found = Manifest.from_bytes(bytes(changed), "the file x")
        except JobError as error:
            assert "the file x" in str(error)
        else:
            raise AssertionError(f"byte {position} was changed and nobody noticed: {found.batch_id}")


@pytest.mark.parametrize("written", [Manifest("q", 3, offsets="some text"), large()], ids=["plain", "compressed"])
def test_no_truncated_manifest_passes(written):
    content = written.to_bytes()
    for length in range(0, len(content), max(1, len(content) // 100)):
        with pytest.raises(JobError, match="the file x is damaged"):
            Manifest.from_bytes(content[:length], "the file x")
    with pytest.raises(JobError, match="the file x is damaged"):
        Manifest.from_bytes(content + b"x", "the file x")


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, FORMAT_VERSION + 1])
def test_another_format_is_named_and_refused(version):
    content = Manifest("q", 3).to_bytes(version)
    with pytest.raises(JobError, match=f"the file x has format {version}"):
        Manifest.from_bytes(content, "the file x")


def test_content_of_the_wrong_shape_is_damage():
    body = pa.py_buffer(b'{"query_id": "q"}').to_pybytes()
    head = {"midstream": "manifest", "format": FORMAT_VERSION, "encoding": "json", "length": len(body)}
    content = json.dumps({**head, "bytes": len(body), "checksum": zlib.crc32(body)}).encode() + b"\n" + body
    with pytest.raises(JobError, match="the file x is damaged"):
        Manifest.from_bytes(content, "the file x")
