from __future__ import annotations

import json

import pytest

from midstream.job.task.ingest import reached
from midstream.lab.experiments import mill_registers
from midstream.lab.experiments.mill_arcs import mill_arcs
from midstream.lab.experiments.mill_burstiness import mill_burstiness
from midstream.lab.experiments.mill_latency import mill_latency
from midstream.lab.experiments.registry import EXPERIMENTS, run_experiment

DO_NOT_HOLD = {
    "mill-arcs": [
        "on the graph of the figure the difference is about the published one, within a factor of two",
        "on a simple graph the difference is minimal: at most a fifth of the share on the figure's graph",
    ],
    "mill-registers": ["no part of a snapshot that is not complete yet comes later either"],
}


@pytest.mark.slow
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


def test_one_frontier_per_query_is_never_behind_a_register_per_input(monkeypatch):
    monkeypatch.setattr(mill_registers, "END", 70)
    monkeypatch.setattr(mill_registers, "SILENT", {"B": (15, 30), "C": (35, 60)})
    report = mill_registers.mill_registers()
    assert [v.claim for v in report.verdicts if not v.holds] == DO_NOT_HOLD["mill-registers"]
    assert report.experiment in EXPERIMENTS and "<table" in report.to_html()


def test_results_that_wait_too_long_are_seen(monkeypatch):
    monkeypatch.setattr(mill_registers, "END", 40)
    monkeypatch.setattr(mill_registers, "reached", lambda sources, registers: reached(sources, registers) - 1)
    monkeypatch.setattr(mill_registers.RegisterPerInput, "advance_by", _by_true_registers)
    report = mill_registers.mill_registers()
    assert not any(v.holds for v in report.verdicts[:2])


def _by_true_registers(running, registers):
    """Raises operators by registers that the other way learns an instant later."""
    return mill_registers_advance(running, {name: register + 1 for name, register in registers.items()})


mill_registers_advance = mill_registers.RegisterPerInput.advance_by


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mill-latency", "mill-arcs", "mill-burstiness", "mill-registers"])
def test_the_mill_experiments_hold(name):
    assert [v.claim for v in run_experiment(name).verdicts if not v.holds] == DO_NOT_HOLD.get(name, [])
