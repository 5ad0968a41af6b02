"""The figures for Prometheus are those of the checkpoint, in a form that Prometheus's own tool accepts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.dashboard.jobs import NEW, batches, shop

import midstream as ms

pytest.importorskip("prometheus_client", reason="needs prometheus-client: pip install 'midstream[dashboard]'")

from prometheus_client.parser import text_string_to_metric_families

from midstream.interface.dashboard.prometheus import exposition


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    job = shop(tmp_path_factory.mktemp("shop"))
    for part in batches()[:11]:
        job.batch(part)
    job.migrate_query("matches", NEW, "genmig")
    job.batch(batches()[11])
    return ms.open(job.folder), exposition(ms.open(job.folder)).decode()


def test_figures_are_those_of_the_checkpoint(told):
    job, text = told
    samples = {
        (s.name, tuple(s.labels.values())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["midstream_last_batch", ()] == 11 and samples["midstream_running", ()] == 0
    for name, stream in job.streams.items():
        assert samples["midstream_stream_rows_total", (name,)] == stream.rows
        assert samples["midstream_stream_register", (name,)] == pytest.approx(stream.register / 1e6)
    assert samples["midstream_stream_late_total", ("payments",)] == 1 == samples["midstream_dead_letters_total", ()]
    assert (
        samples["midstream_query_migrating", ("matches",)] == 1
        and samples["midstream_query_migrating", ("large",)] == 0
    )
    assert samples["midstream_query_results_total", ("matches",)] == job.query("matches").results
    assert samples["midstream_batch_part_seconds", ("kernel",)] > 0


def test_the_board_shows_figures_that_there_are(told):
    board = (Path(__file__).parents[2] / "deploy" / "grafana.json").read_text()
    shown = {target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"]}
    named = {name for text in shown for name in re.findall(r"midstream_\w+", text)}
    assert named and not {name for name in named if f"# TYPE {name} " not in told[1]}


def test_prometheus_accepts_them(told):
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("the package prometheus is missing: apt-get install prometheus")
    done = subprocess.run([tool, "check", "metrics"], input=told[1], text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_label_cannot_leave_its_place(tmp_path):
    job = shop(tmp_path)
    job.batch(batches()[0])
    stored = ms.open(tmp_path)
    hostile = 'a"}\nmidstream_running 7 #'
    object.__setattr__(stored, "streams", {hostile: next(iter(stored.streams.values()))})
    families = list(text_string_to_metric_families(exposition(stored).decode()))
    found = [s for f in families for s in f.samples if s.name == "midstream_running"]
    assert [s.value for s in found] == [0]
    assert hostile in {s.labels.get("stream") for f in families for s in f.samples}
