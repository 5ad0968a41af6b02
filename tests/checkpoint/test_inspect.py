"""What a checkpoint holds, as a program and as a person reads it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.checkpoint.making import STATE, flip, pack, segment
from typer.testing import CliRunner

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.file_entries import FileLog, ListFile, ResultFile
from midstream.checkpoint.inspect import _query, describe
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import lane_name
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.records import Outputs, Slots, Streams
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.cli import app


@pytest.fixture
def checkpoint(tmp_path):
    """A query with two states in two slots, of which one segment is shared by its parts."""
    files = files_at(str(tmp_path / "job"))
    other = ("payments as B", ("B.k", "B.day"))
    first = pack(files, 2, [segment(start=10), segment(start=100)])
    second = pack(files, 2, [segment(start=50, rows=6)], state=other, slot=1)
    parts = [first[1].part(0, 2**63), first[1].part(2**63, 2**64)]
    files.write_atomic("results/hot/x", b"")
    pack(files, 1)
    CheckpointStore(files).commit(
        Manifest(
            "spark-query",
            2,
            epoch=4,
            queries={"hot": QueryEntry("SELECT …", "(A B)", time="timestamp")},
            streams=Streams(registers={"A": 5_000_000, "B": BEGINNING}, latest={"A": 6_000_000}),
            advanced_to={"hot": 4_000_000},
            slots=Slots(routing=(0, 1) * 128),
            segments={"hot": {0: {0: (first[0], parts[0]), 1: (parts[1], *second)}}},
            outputs=Outputs(results={"hot": FileLog((ResultFile("results/hot/x", 3, 1, 2, 2),))}),
            released={"hot": 3_000_000},
        )
    )
    return files


def test_a_description_counts_what_is_there(checkpoint):
    found = describe(checkpoint.uri)
    assert json.loads(json.dumps(found)) == found
    assert (found["batch"], found["epoch"], found["partition_groups"]) == (2, 4, 256)
    assert found["streams"] == {
        "A": {"register": 5_000_000, "latest": 6_000_000},
        "B": {"register": None, "latest": None},
    }
    assert (found["totals"]["segments"], found["totals"]["rows"], found["totals"]["files"]) == (3, 14, 2)
    hot = found["queries"]["hot"]
    assert (hot["advanced_to"], hot["released"], hot["migration"]) == (4_000_000, 3_000_000, None)
    assert hot["results"] == {"files": 1, "rows": 3}
    states = {state["state"]: state for state in hot["states"]}
    assert (states[STATE[0]]["rows"], states[STATE[0]]["valid_from"], states[STATE[0]]["valid_to"]) == (8, 10, 110)
    assert states["payments as B"]["key"] == ["B.k", "B.day"]
    by_slot = [(state["slot"], state["rows"]) for state in hot["states_by_slot"]]
    assert [sum(rows for slot, rows in by_slot if slot == wanted) for wanted in (0, 1)] == [6, 8]
    assert len(found["garbage"]) == 1 and found["holder"] is None


def test_a_stored_job_counts_the_parts_of_a_segment_that_slots_share(checkpoint):
    states = StoredJob.open(checkpoint.uri).query("hot").states
    assert {state.state: (state.segments, state.rows) for state in states} == {
        STATE[0]: (2, 8),
        "payments as B": (1, 6),
    }


def test_what_the_lanes_of_a_query_hold_is_its_own(checkpoint):
    store = CheckpointStore(checkpoint)
    last = store.latest()
    assert last is not None
    stages = last.segments["hot"]
    only = {stage: {0: slots[0][:1]} for stage, slots in stages.items()}
    store.commit(replace(last, batch_id=3, segments={"hot": only, lane_name("hot", 3): stages}))
    assert set(describe(checkpoint.uri)["queries"]) == {"hot"}
    assert sum(state.rows for state in StoredJob.open(checkpoint.uri).query("hot").states) == 14


def test_lists_of_older_files_are_counted(checkpoint):
    store = CheckpointStore(checkpoint)
    last = store.latest()
    assert last is not None
    log = replace(last.outputs.results["hot"], lists=(ListFile("lists/none", 100, 1000),))
    found = last.with_outputs(results={"hot": log})
    assert _query(found, "hot")["results"] == {"files": 101, "rows": 1003}


def test_the_driver_at_work_is_named(checkpoint):
    with Lease.take(checkpoint, "me"):
        assert describe(checkpoint.uri)["holder"]["owner"] == "me"
    assert describe(checkpoint.uri)["holder"] is None


def test_a_place_without_a_batch_is_refused(tmp_path):
    with pytest.raises(JobError, match="no finished batch"):
        describe(str(tmp_path))


def midstream(*arguments):
    return CliRunner().invoke(app, ["state", *map(str, arguments)])


def test_the_command_shows_states_and_times(checkpoint):
    shown = midstream(checkpoint.uri)
    assert shown.exit_code == 0
    for text in (
        STATE[0],
        "payments as B",
        "B.k, B.day",
        "1970-01-01 00:00:05",
        "none yet",
        "(A B)",
        "1 unreferenced files",
    ):
        assert text in shown.stdout
    by_slot = midstream(checkpoint.uri, "--slots")
    assert by_slot.exit_code == 0 and by_slot.stdout.count(STATE[0]) == 2


def test_the_command_gives_one_object(checkpoint):
    shown = midstream(checkpoint.uri, "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["totals"]["rows"] == 14


def test_the_command_verifies(checkpoint):
    assert midstream(checkpoint.uri, "--verify").exit_code == 0
    (entry, *_) = CheckpointStore(checkpoint).read(2).slot("hot", 0, 0)
    flip(checkpoint.full(entry.file), entry.offset + 8)
    shown = midstream(checkpoint.uri, "--verify", "--json")
    assert shown.exit_code == 2
    (wrong,) = json.loads(shown.stdout)["wrong"]
    assert entry.file in wrong and "cannot be used" in shown.stderr


def test_the_command_says_what_is_wrong_with_the_place(tmp_path):
    shown = midstream(tmp_path)
    assert shown.exit_code == 2 and "no finished batch" in shown.stderr
    assert "ftp" in midstream("ftp://x/y").stderr
