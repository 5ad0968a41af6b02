"""Growing folders as streams: whatever a folder is called and holds, each of its rows counts once."""

from __future__ import annotations

import gzip
import logging
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import midstream as ms
from midstream.checkpoint.file_entries import SourceFile
from midstream.connectors.files.contents import FileContents
from midstream.connectors.files.source import ATTEMPTS, FileSource
from midstream.errors import InputError
from midstream.inputs import NamedSource


def source(path: str, format: str = "csv", **options: str) -> FileSource:
    return FileSource.opened(NamedSource("A", format, path, "ts BIGINT, k STRING", options))


def spelled(base: Path) -> dict[str, str]:
    return {
        "plain": str(base / "in"),
        "up": f"{base}/other/../in",
        "relative": "../in",
        "link": str(base / "link"),
        "address": f"file://{base}/in/",
        "short address": f"file:{base}/in",
    }


@pytest.mark.parametrize("how", ["plain", "up", "relative", "link", "address", "short address"])
def test_files_that_were_read_are_known_however_the_folder_is_spelled(tmp_path, monkeypatch, how):
    for folder in ("in", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "1.csv").write_text("1,a\n")
    monkeypatch.chdir(tmp_path / "other")
    stream = source(spelled(tmp_path)[how])
    assert [file.path for file in stream.present()] == ["1.csv"]
    assert stream.place == os.path.realpath(tmp_path / "in")


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_without_rows_is_no_fault(tmp_path, format, compressed):
    name = f"1.{format}{'.gz' if compressed else ''}"
    (tmp_path / name).write_bytes(gzip.compress(b"") if compressed else b"")
    rows, files = (stream := source(str(tmp_path), format)).read(stream.present())
    assert rows.num_rows == 0
    assert [file.path for file in files] == [name]


def test_a_file_that_is_replaced_before_it_is_read_is_known_as_it_was_read(tmp_path):
    file = tmp_path / "1.csv"
    file.write_text("1,a\n")
    stream = source(str(tmp_path))
    listed = stream.present()
    file.write_text("1,a\n2,b\n")
    rows, files = stream.read(listed)
    assert rows.num_rows == 2
    assert files == stream.present() != listed
    stream.check_unchanged(files)


@pytest.mark.parametrize("times", [1, 5])
def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch, times):
    file = tmp_path / "1.csv"
    file.write_text("1,a\n")
    stream, plain, left = source(str(tmp_path)), FileContents.of_path, [None] * times

    def growing(self: FileContents, path: Path) -> pa.Table:
        table = plain(self, path)
        if left:
            left.pop()
            Path(path).write_text(Path(path).read_text() + "2,b\n")
        return table

    monkeypatch.setattr(FileContents, "of_path", growing)
    if times > ATTEMPTS:
        with pytest.raises(InputError, match="changes while it is read"):
            stream.read(stream.present())
    else:
        rows, files = stream.read(stream.present())
        assert rows.num_rows == 2
        assert files == stream.present()


def test_a_header_that_has_a_column_twice_is_named(tmp_path):
    (tmp_path / "1.csv").write_text("ts,ts,k\n1,2,a\n")
    stream = source(str(tmp_path), header="true")
    with pytest.raises(InputError, match=r"cannot read .*1\.csv"):
        stream.read(stream.present())


def test_files_that_are_known_are_not_looked_at_again(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("1.csv", "2.csv", "sub/3.csv"):
        (tmp_path / name).write_text("1,a\n")
    stream, plain, seen = source(str(tmp_path)), FileSource._seen, list[str]()

    def noted(self: FileSource, path: str) -> SourceFile | None:
        seen.append(path)
        return plain(self, path)

    monkeypatch.setattr(FileSource, "_seen", noted)
    assert [file.path for file in stream.present({"1.csv", "sub/3.csv"})] == seen == ["2.csv"]


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("length", [1, 3_000_000, 40_000_000])
def test_rows_may_be_long(tmp_path, format, length):
    text = "x" * length
    rows = [(1, "a"), (2, text), (3, "b")]
    lines = [f"{ts},{k}" if format == "csv" else f'{{"ts": {ts}, "k": "{k}"}}' for ts, k in rows]
    (tmp_path / f"1.{format}").write_text("\n".join(lines))
    stream = source(str(tmp_path), format)
    found, _ = stream.read(stream.present())
    assert found.column("ts").to_pylist() == [1, 2, 3]
    assert found.column("k").to_pylist() == ["a", text, "b"]


@pytest.mark.parametrize("have", [["ts", "k"], ["k"], ["ts"], ["more"]])
@pytest.mark.parametrize("declared", ["k", "k.k"])
def test_a_column_that_a_parquet_file_lacks_is_null(tmp_path, have, declared):
    names = [declared if name == "k" else name for name in have]
    pq.write_table(
        pa.table({name: ["1", "2"] if name == declared else [1, 2] for name in names}), tmp_path / "1.parquet"
    )
    stream = FileSource.opened(NamedSource("A", "parquet", str(tmp_path), f"ts BIGINT, `{declared}` STRING", {}))
    found, _ = stream.read(stream.present())
    assert found.column("ts").to_pylist() == ([1, 2] if "ts" in names else [None, None])
    assert found.column(declared).to_pylist() == (["1", "2"] if declared in names else [None, None])


def test_names_of_columns_of_parquet_files_may_differ_in_case(tmp_path):
    pq.write_table(pa.table({"K": ["a"], "TS": [1]}), tmp_path / "1.parquet")
    stream = source(str(tmp_path), "parquet")
    found, _ = stream.read(stream.present())
    assert found.to_pylist() == [{"ts": 1, "k": "a"}]
    pq.write_table(pa.table({"ts": [2], "TS": [1]}), tmp_path / "1.parquet")
    found, _ = stream.read(stream.present())
    assert found.to_pylist() == [{"ts": 2, "k": None}]
    pq.write_table(pa.table({"Ts": [2], "TS": [1]}), tmp_path / "1.parquet")
    with pytest.raises(InputError, match="differ in case only"):
        stream.read(stream.present())


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_rows_of_files_without_the_time_column_are_dead_letters(tmp_path, format):
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / f"1.{format}"
    if format == "parquet":
        pq.write_table(pa.table({"k": ["a", "b"]}), file)
    else:
        file.write_text("k\na\nb\n" if format == "csv" else 'null\n{"k": "b"}\n')
    options = {"header": "true"} if format == "csv" else {}
    with ms.Session(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream("A", format, path=str(tmp_path / "in"), schema="ts BIGINT, k STRING", options=options)
        session.query("q", "SELECT k FROM A [RANGE 10]")
        session.process_available(finish=True)
        assert session.queries["q"].table().num_rows == 0
        assert session.dead_letters().column("reason").to_pylist() == ["null time"] * 2


@pytest.mark.parametrize("files", [1, 3])
def test_files_that_were_written_again_in_the_same_size_are_warned_of_once(tmp_path, caplog, files):
    for number in range(files + 1):
        (tmp_path / f"{number}.csv").write_text("1,a\n")
    stream = source(str(tmp_path))
    _, read = stream.read(stream.present())
    with caplog.at_level(logging.WARNING):
        stream.check_unchanged(read)
        assert not caplog.messages
        for number in range(files):
            (tmp_path / f"{number}.csv").write_text("2,b\n")
            os.utime(tmp_path / f"{number}.csv", (1, 1))
        stream.check_unchanged(read)
    (message,) = caplog.messages
    assert f"the file {tmp_path / '0.csv'} of stream A" in message and "not read again" in message
    assert ("and 2 more," in message) == (files == 3)
