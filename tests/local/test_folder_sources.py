"""Growing folders as streams: whatever a folder is called and holds, each of its rows counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.cluster.local.folders import FolderSource


def source(path: str, format: str = "csv", **options: str) -> FolderSource:
    return FolderSource.opened("A", format, path, "ts BIGINT, k STRING", options, ())


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
@pytest.mark.parametrize("read_as", ["in", "link"])
def test_files_that_spark_has_read_are_known_however_the_folder_is_spelled(tmp_path, monkeypatch, how, read_as):
    for folder in ("in", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "1.csv").write_text("1,a\n")
    monkeypatch.chdir(tmp_path / "other")
    stream = source(spelled(tmp_path)[how])
    assert [file.path for file in stream.present()] == ["1.csv"]
    assert stream.among({str(tmp_path / read_as / "1.csv"), "/elsewhere/1.csv"}) == stream.present()


@pytest.mark.parametrize("path", ["../in", "file:{base}/in", "{base}/other/../in"])
def test_files_that_were_read_here_are_addressed_as_spark_does(tmp_path, monkeypatch, path):
    sources = pytest.importorskip("midstream.cluster.spark.frames.sources")
    for folder in ("in", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "in" / "1.csv").write_text("1,a\n")
    monkeypatch.chdir(tmp_path / "other")
    named = sources.NamedSource("A", "csv", path.format(base=tmp_path), None, {})
    assert named._addresses(["1.csv"]) == [f"{tmp_path}/in/1.csv"]
