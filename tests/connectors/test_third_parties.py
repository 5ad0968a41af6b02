"""Connectors of other packages, as the documentation shows them: found by entry points, and used by job files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.documents import BLOCK, ROOT, examples

from midstream.cluster import sinks
from midstream.connectors import registry
from midstream.errors import JobError
from midstream.interface.cli.run import carry_out
from midstream.interface.jobs.checking import mistakes_of
from midstream.interface.jobs.job_file import read_job


def shown(page: str, heading: str) -> tuple[str, list[str]]:
    """The class in a part of a page, which is the first block of Python there, and its blocks of TOML."""
    part = (ROOT / "docs" / "how-to" / page).read_text().partition(heading)[2]
    return next(examples(part)).text, [text for _, kind, _, text in BLOCK.findall(part) if kind == "toml"]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Installs a package as pip would, with its code and its entry points as pyproject.toml has them."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def installed(code: str, points: str) -> None:
        about = tmp_path / "site" / "your_package-1.dist-info"
        about.mkdir(parents=True)
        (tmp_path / "site" / "your_package.py").write_text(code)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: your_package\nVersion: 1\n")
        (about / "entry_points.txt").write_text(points.replace("project.entry-points.", "").replace('"', ""))

    known = [patch.dict(found.kinds, clear=True) for found in (registry.SINKS, registry.SOURCES)]
    with patch.dict(sys.modules), known[0], known[1]:
        yield installed


def test_the_examples_of_a_source_and_a_sink_are_short_and_work_in_a_job_file(install, tmp_path):
    source, (source_point, job) = shown("read.md", "## A source of your own")
    sink, (sink_point,) = shown("connect.md", "## A sink of your own")
    assert max(len(code.partition("class ")[2].splitlines()) for code in (source, sink)) <= 30
    install(f"{source}\n\n{sink}", f"{source_point}{sink_point}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("all is well\nan error\nanother error\n")
    (tmp_path / "job.toml").write_text(job.replace("folder =", "folders ="))
    with pytest.raises(JobError, match=r"unknown option streams.log.source.folders of the source 'lines'"):
        read_job(tmp_path / "job.toml")
    (tmp_path / "job.toml").write_text(job)
    assert mistakes_of(read_job(tmp_path / "job.toml")) == []
    carry_out(read_job(tmp_path / "job.toml"), available=True, finish=True)
    deliveries = map(json.loads, (tmp_path / "errors.jsonl").read_text().splitlines())
    assert [row["line"] for delivery in deliveries for row in delivery["rows"]] == ["an error", "another error"]


@pytest.mark.parametrize("place", ["your_package:Odd", "nowhere:Odd", "your_package:odd"])
def test_a_package_that_names_no_connector_is_told_so(install, place):
    install("class odd: pass\n", f"[midstream.sinks]\nodd = {place}\n")
    with pytest.raises(JobError, match="the sink 'odd' cannot be used") as refused:
        sinks.connect("odd", path="x")
    assert f"a package names {place} by its entry point" in str(refused.value)
