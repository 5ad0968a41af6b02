"""Parquet files that need no interpretation are read without Spark; all others are left to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream.checkpoint.spark_log import SparkLog
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.spark.frames.tagging import StreamInput
from midstream.cluster.spark.plain_files import PlainFiles
from midstream.inputs import NamedSource, StreamSettings
from midstream.job.circumstances import Incoming
from midstream.job.task.exchange import PORT, Layout

COLUMNS = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("x", pa.float32()), ("unused", pa.date32())])
NEEDED = ["ts", "k", "x"]


def rows(start: int, count: int = 3) -> pa.Table:
    times = pa.array(range(start, start + count), pa.int64())
    keys = pa.array([None if i % 2 else f"ü{i}" for i in range(count)], pa.string())
    values = pa.array([i / 2 for i in range(count)], pa.float32())
    return pa.table({"k": keys, "ts": times, "x": values, "other": times})


class World:
    """Two folders, and Spark's log of what it has read of them."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root, self.named = root, changes.pop("named", False)
        self.files = CheckpointStore(str(root / "checkpoint")).files
        self.log = SparkLog(self.files)
        settings: dict[str, Any] = {
            "format": "parquet",
            "options": {"maxFilesPerTrigger": "1"},
            "columns": (),
            **changes,
        }
        self.inputs = [self._input(name, settings) for name in ("A", "B b")]
        schemas = dict.fromkeys(range(2), pa.schema([COLUMNS.field(name) for name in NEEDED]))
        streams = {port: stream.declaration for port, stream in enumerate(self.inputs)}
        self.incoming = Incoming(streams, Layout.of(schemas))

    def _input(self, name: str, settings: dict[str, Any]) -> StreamInput:
        (self.root / name).mkdir()
        source = NamedSource(name, path=str(self.root / name), schema="", **settings)
        frame: Any = None
        return StreamInput(StreamSettings().declaration(name, COLUMNS), frame, source)

    def read(self, number: int, files: dict[str, list[Path]], compact: bool = False) -> str:
        """Notes that Spark reads files in a batch; gives the entry of the batch."""
        for place, stream in enumerate(self.inputs):
            name = stream.declaration.name
            folder = self.root / "checkpoint/spark/sources" / (name if self.named else str(place))
            folder.mkdir(parents=True, exist_ok=True)
            told = [{"path": path.as_uri(), "timestamp": 1, "batchId": number} for path in files.get(name, [])]
            older = [{"path": "file:///gone.parquet", "timestamp": 1, "batchId": number - 1}] if compact else []
            content = "\n".join(["v1", *map(json.dumps, [*older, *told])])
            (folder / (f"{number}.compact" if compact else str(number))).write_text(content)
        lines = [f'{{"logOffset":{number}}}'] * 2
        if self.named:
            lines = [f"{stream.declaration.name}:{line}" for stream, line in zip(self.inputs, lines, strict=True)]
        entry = "\n".join(["v2" if self.named else "v1", "{}", *lines])
        offsets = self.root / "checkpoint/spark/offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(number)).write_text(entry)
        return entry

    def write(self, name: str, table: pa.Table, path: str = "0.parquet") -> Path:
        target = self.root / name / path
        target.parent.mkdir(exist_ok=True)
        pq.write_table(table, target)
        return target

    def table(self, number: int, entry: str, most: int = 10_000) -> pa.Table | None:
        plain = PlainFiles.of(self.log, self.inputs)
        assert plain is not None
        return plain.table(self.incoming, number, entry, most)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("compact", [False, True])
def test_the_files_of_a_batch_are_read_as_they_travel(named, compact, tmp_path):
    world = World(tmp_path, named=named)
    world.read(0, {"A": [world.write("A", rows(0), "old.parquet")]})
    files = {"A": [world.write("A", rows(10), "a 1.parquet")], "B b": [world.write("B b", rows(20, 2))]}
    got = world.table(1, world.read(1, files, compact))
    assert got is not None and got.column(PORT).to_pylist() == [0, 0, 0, 1, 1]
    layout = world.incoming.layout
    for port, expected in ((0, rows(10)), (1, rows(20, 2))):
        piece = pa.concat_batches([b for b in got.to_batches() if b.column(PORT)[0].as_py() == port])
        assert layout.payload(port, piece).to_pylist() == expected.select(NEEDED).to_pylist()


def test_the_first_batch_has_all_files_so_far(tmp_path):
    world = World(tmp_path)
    got = world.table(0, world.read(0, {"A": [world.write("A", rows(0))]}))
    assert got is not None and got.num_rows == 3


@pytest.mark.parametrize(
    "table",
    [
        rows(0).drop_columns(["x"]),
        rows(0).set_column(1, "ts", pa.array([1, 2, 3], pa.int32())),
        rows(0).rename_columns(["K", "ts", "x", "other"]),
        rows(0, 1000),
    ],
    ids=["missing", "type", "case", "many"],
)
def test_what_must_be_interpreted_is_left_to_spark(table, tmp_path):
    world = World(tmp_path)
    assert world.table(0, world.read(0, {"A": [world.write("A", table)]})) is None


def test_folders_in_folders_and_damaged_and_missing_files_are_left_to_spark(tmp_path):
    world = World(tmp_path)
    assert world.table(0, world.read(0, {"A": [world.write("A", rows(0), "k=1/0.parquet")]})) is None
    damaged = tmp_path / "A/damaged.parquet"
    damaged.write_bytes(b"PAR1 no")
    assert world.table(1, world.read(1, {"A": [damaged]})) is None
    assert world.table(2, world.read(2, {"A": [tmp_path / "A/gone.parquet"]})) is None
    later = world.read(4, {})  # and the log lacks entry 3
    assert world.table(4, later) is None


@pytest.mark.parametrize(
    "changes", [{"format": "orc"}, {"columns": ("ts + 1 AS ts",)}, {"options": {"mergeSchema": "true"}}]
)
def test_sources_that_are_not_plain_folders_are_left_to_spark(changes, tmp_path):
    world = World(tmp_path, **changes)
    assert PlainFiles.of(world.log, world.inputs) is None
