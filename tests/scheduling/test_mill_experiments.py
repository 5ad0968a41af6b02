from __future__ import annotations

import json

import pytest

from midstream.lab.experiments.mill_arcs import mill_arcs
from midstream.lab.experiments.mill_burstiness import mill_burstiness
from midstream.lab.experiments.mill_latency import mill_latency
from midstream.lab.experiments.registry import EXPERIMENTS, run_experiment

DO_NOT_HOLD = {
    "mill-arcs": [
        "on the graph of the figure the difference is about the published one, within a factor of two",
    ]
}


def test_the_mill_experiments_hold_over_a_short_time():
    reports = [
        mill_latency(seconds=3.0, bursts=(1, 10, 40)),
        mill_arcs(seconds=1.0),
        mill_burstiness(seconds=1.5, slides=(0.02, 0.1, 0.2)),
    ]
    for report in reports:
        said = json.loads(json.dumps(report.to_json()))
        assert [v["claim"] for v in said["verdicts"] if not v["holds"]] == DO_NOT_HOLD.get(report.experiment, [])
        assert report.experiment in EXPERIMENTS
        assert "<svg" in report.to_html()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mill-latency", "mill-arcs", "mill-burstiness"])
def test_the_mill_experiments_hold(name):
    assert [v.claim for v in run_experiment(name).verdicts if not v.holds] == DO_NOT_HOLD.get(name, [])
