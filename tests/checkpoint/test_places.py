"""Places of a job are checked against each other when they are declared, and nothing of others is collected."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.names import issued, name_for
from midstream.checkpoint.places import JobPlaces, Place, resolved
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import folder
from midstream.errors import JobError

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            Place("source", "/d/in", "A"),
            Place("sink", "/d/in", "q"),
            "query q would write into the folder that stream A",
        ),
        (Place("source", "/d/in", "A"), Place("sink", "/d/in/out", "q"), "query q would write into the folder"),
        (Place("sink", "file:///d/in/out", "q"), Place("source", "/d//in", "A"), "query q would write into the folder"),
        (
            Place("checkpoint", "/d/c"),
            Place("sink", "/d/c/results/q", "q"),
            "the sink of query q lies within the checkpoint",
        ),
        (Place("checkpoint", "/d/c"), Place("sink", "/d", "q"), "the checkpoint lies within the sink of query q"),
        (Place("checkpoint", "/d/c"), Place("source", "/d/c/results/q", "A"), "stream A lies within the checkpoint"),
        (Place("checkpoint", "/d/c"), Place("source", "/d", "A"), "the checkpoint lies within the folder of stream A"),
        (Place("checkpoint", "/d/c"), Place("source", "/d", "A", "*.parquet"), "lies within the folder of stream A"),
        (Place("checkpoint", "s3://b/c"), Place("sink", "s3a://b//c/out", "q"), "lies within the checkpoint"),
        (Place("cache", "/d/copies"), Place("sink", "/d/copies", "q"), "lies within the folder of copies"),
        (Place("source", "/d/*/in", "A"), Place("sink", "/d/out", "q"), "query q would write into the folder"),
    ],
)
def test_places_that_do_not_go_together_are_refused(first, second, message):
    with pytest.raises(JobError, match=message):
        places = JobPlaces()
        places.add(first)
        places.add(second)


def test_places_that_do_go_together(tmp_path):
    places = JobPlaces.of(str(tmp_path / "c"))
    places.add(Place("source", str(tmp_path / "out" / "in"), "A"))
    places.add(Place("sink", str(tmp_path / "out"), "q"))
    places.add(Place("sink", str(tmp_path / "out"), "p"))
    places.add(Place("source", str(tmp_path), "B", "*.csv"))
    places.add(Place("source", str(tmp_path / "cc"), "C"))
    places.add(Place("sink", "s3://bucket/in", "r"))


def test_links_do_not_hide_where_a_place_is(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "c")
    assert resolved(str(tmp_path / "link" / "x")) == resolved(f"file://{tmp_path}/c/x")
    session = CheckpointSession(checkpoint=str(tmp_path / "c"), on="local")
    session.stream("A", SCHEMA)
    session.query("q", "SELECT k FROM A [NOW]")
    with pytest.raises(JobError, match="lies within the checkpoint"):
        session.sink("q", folder(str(tmp_path / "link" / "results" / "q")))


def test_a_stream_below_the_checkpoint_is_refused(tmp_path):
    session = CheckpointSession(checkpoint=str(tmp_path), on="local")
    (tmp_path / "in").mkdir()
    with pytest.raises(JobError, match="the folder of stream A lies within the checkpoint"):
        session.open_stream("A", "csv", path=str(tmp_path / "in"), schema="ts BIGINT, k BIGINT")


def test_a_checkpoint_within_another_is_refused(tmp_path):
    with ms.Session(checkpoint=str(tmp_path / "c"), on="local") as session:
        session.stream("A", SCHEMA)
        session.start()
        session.push("A", pa.table({"ts": [1], "k": [1]}))
    with pytest.raises(JobError, match="lies within another"):
        ms.Session(checkpoint=str(tmp_path / "c" / "results"), on="local")


KINDS = ["state", "results/q", "results/q@3", "results/_shared/0a", "dead_letters", "lists", "metrics"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_names_that_a_job_gives_are_known_again(kind):
    path = name_for(kind, 12, 3, 1)
    within, _, name = path.rpartition("/")
    assert issued(path) == issued(f"{within}/.{name}.0123abcd.tmp") == 12
    for other in (
        f"{within}/more/and/{name}",
        f"{within}/x{name}",
        f"{path}.bak",
        name,
        f"{within}/{name[:12]}-q-0a.parquet",
    ):
        assert issued(other) is None


def test_files_of_others_below_a_checkpoint_are_never_collected(tmp_path):
    left = [tmp_path / "c" / place for place in ("results/q/000000000000-mine.parquet", "state/000000000000-a.pack")]
    session = CheckpointSession(checkpoint=str(tmp_path / "c"), on="local", retained=2)
    session.stream("A", SCHEMA)
    session.query("q", "SELECT k FROM A [RANGE 5]")
    with session.start():
        session.push("A", pa.table({"ts": [0], "k": [0]}))
        for file in left:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            file.write_text("mine")
        for i in range(1, 9):
            session.push("A", pa.table({"ts": [10 * i], "k": [i]}))
    assert all(file.read_text() == "mine" for file in left)
