"""Folders of an object store as streams: each object once, also over restarts; and files of Avro and Arrow."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem
from tests.checkpoint.s3_server import s3_bucket

from midstream import api
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.connectors.files.contents import FileContents
from midstream.errors import InputError, JobError

COLUMNS = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as address:
        yield address


def put(address: str, content: bytes) -> None:
    filesystem, place = FileSystem.from_uri(address.replace("s3a:", "s3:"))
    with filesystem.open_output_stream(place, compression=None) as stream:
        stream.write(content)


def parquet(*ids: int) -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.table({"id": ids, "ts": ids}), content)
    return content.getvalue()


def worked_through(checkpoint: Path, path: str, format: str = "parquet") -> list[int]:
    with CheckpointSession(checkpoint=str(checkpoint), on="local") as session:
        session.open_stream("s", format, path=path, schema="id BIGINT, ts BIGINT", lateness=100)
        session.query("q", "SELECT id FROM s [UNBOUNDED]")
        session.start("available")
        session.wait()
        session.end_available(False)
    return sorted(api.open(checkpoint).results("q").column("id").to_pylist())


def test_each_object_of_a_folder_is_read_once(bucket, tmp_path):
    put(f"{bucket}/in/a.parquet", parquet(1, 2))
    put(f"{bucket}/in/day/b.parquet", parquet(3))
    put(f"{bucket}/in/_begun/c.parquet", b"not yet")
    worked_through(tmp_path / "checkpoint", f"{bucket}/in/")
    put(f"{bucket}/in/_begun.parquet", b"not yet")
    put(f"{bucket}/in/d.parquet", parquet(4))
    worked_through(tmp_path / "checkpoint", f"{bucket}/in")
    stored = api.open(tmp_path / "checkpoint")
    assert stored.manifest.streams.rows["s"] == 4 and stored.manifest.streams.folders["s"] == f"{bucket}/in"
    with pytest.raises(JobError, match="has another folder than before, s3a://jobs/other, and it cannot be told"):
        worked_through(tmp_path / "checkpoint", f"{bucket}/other")


def test_objects_of_text_may_be_compressed_and_their_bad_rows_are_dead_letters(bucket, tmp_path):
    lines = [json.dumps({"id": 1, "ts": 1}), "{", json.dumps({"id": 2, "ts": 2})]
    put(f"{bucket}/text/a.json.gz", gzip.compress("\n".join(lines).encode()))
    worked_through(tmp_path / "checkpoint", f"{bucket}/text", "json")
    (letter,) = api.open(tmp_path / "checkpoint").dead_letters().to_pylist()
    assert json.loads(letter["row"])["file"] == f"{bucket}/text/a.json.gz" and json.loads(letter["row"])["line"] == 2


def test_what_cannot_be_reached_is_named_without_its_password(tmp_path, bucket):
    with pytest.raises(InputError, match="stream s cannot be read from ftp://host/in"):
        worked_through(tmp_path / "a", "ftp://me:secret@host/in")
    with pytest.raises(JobError, match="s3://no-such-bucket/in"):
        worked_through(tmp_path / "b", "s3://no-such-bucket/in")


def test_files_of_arrow_are_read_as_files_and_as_streams_whatever_packs_them(tmp_path):
    rows = pa.table({"TS": pa.array([1, 2], pa.int32()), "id": [7, 8], "more": ["a", "b"]})
    pyarrow.feather.write_feather(rows, str(tmp_path / "a.arrow"), compression="zstd")
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    (tmp_path / "b.arrow.gz").write_bytes(gzip.compress(stream.getvalue()))
    contents = FileContents("s", "arrow", COLUMNS)
    for name in ("a.arrow", "b.arrow.gz"):
        assert contents.of_path(tmp_path / name).drop_columns(["#bad"]).to_pydict() == {"id": [7, 8], "ts": [1, 2]}
    (tmp_path / "c.arrow").write_bytes(b"ARROW1 and no more")
    with pytest.raises(InputError, match=r"cannot read .*c\.arrow as arrow for stream s"):
        contents.of_path(tmp_path / "c.arrow")


def test_records_of_avro_that_do_not_fit_are_bad_rows(tmp_path):
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install 'midstream[avro]'")
    fields: list[Any] = [{"name": "id", "type": ["long", "string"]}, {"name": "TS", "type": "long"}]
    content = io.BytesIO()
    rows = [{"id": 1, "TS": 1}, {"id": "x", "TS": 2}, {"id": "3", "TS": 3}]
    fastavro.writer(content, {"type": "record", "name": "r", "fields": fields}, rows, codec="deflate")
    (tmp_path / "a.avro").write_bytes(content.getvalue())
    contents = FileContents("s", "avro", COLUMNS)
    *good, bad = contents.of_path(tmp_path / "a.avro").to_pylist()
    assert [(row["id"], row["ts"]) for row in good] == [(1, 1), (3, 3)]
    assert json.loads(bad["#bad"])["reason"] == "id: 'x' is no int64" and json.loads(bad["#bad"])["at"]["line"] == 2
    (tmp_path / "b.avro").write_bytes(content.getvalue()[:-20])
    with pytest.raises(InputError, match=r"cannot read .*b\.avro as avro for stream s"):
        contents.of_path(tmp_path / "b.avro")
