"""The balancing experiments' instruments: exact whatever adapts, charged by partition, and verdicts that follow."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from midstream.lab.experiments.dcape_falling import report_of as falling_report
from midstream.lab.experiments.dcape_job import windows_on_job
from midstream.lab.experiments.dcape_length import Point as LengthPoint
from midstream.lab.experiments.dcape_length import measure as measure_length
from midstream.lab.experiments.dcape_length import report_of as length_report
from midstream.lab.experiments.dcape_length import setting as length_setting
from midstream.lab.experiments.dcape_meter import PartitionedLoops
from midstream.lab.experiments.dcape_run import (
    Adaptation,
    MoveLength,
    Observed,
    Rates,
    Run,
    Sample,
    Setting,
    skewed_owners,
    streams,
)
from midstream.lab.experiments.dcape_throughput import ADAPTATIONS, NONE, Runs, throughput_report, tuples_report
from midstream.lab.experiments.dcape_window_rate import RATES, WINDOWS, Point, report_of
from midstream.lab.experiments.registry import EXPERIMENTS
from midstream.lab.experiments.virtual_processor import Costs, Counts

SMALL = Setting(
    Rates(20, 2, 6.0),
    window=4,
    end=16,
    keys={"A": 20, "B": 20, "C": 60},
    costs=Costs(1.5, 1.5),
    ready=3,
    look=2,
    groups=12,
    machines=3,
    optimised_at=7,
)


@cache
def observed(adaptation: Adaptation) -> Observed:
    return Run(SMALL, adaptation).run(drain=True)


@pytest.mark.parametrize("adaptation", ADAPTATIONS[1:], ids=lambda adaptation: adaptation.name)
def test_every_adaptation_gives_the_same_results_in_the_end(adaptation):
    usual, adapted = observed(ADAPTATIONS[0]), observed(adaptation)
    assert usual.finished and adapted.finished
    assert usual.answer == adapted.answer != []
    assert bool(adapted.moves) == (adaptation.protocol is not None)


def test_a_run_is_the_same_every_time():
    once, again = (Run(SMALL, Adaptation(True, "mslb")).run() for _ in range(2))
    assert once.samples == again.samples and once.moves == again.moves


def test_names_are_the_papers():
    names = [adaptation.name for adaptation in ADAPTATIONS]
    assert names == ["No-Adapt", "LM-only", "PTLB-only", "MSLB-only", "LM-PTLB", "LM-MSLB"]


def test_one_machine_starts_with_half_the_groups_and_its_share_of_the_rest():
    owners = skewed_owners(100, [f"m{i}" for i in range(7)])
    counts = [owners.count(f"m{i}") for i in range(7)]
    assert counts == [58, 7, 7, 7, 7, 7, 7]


def test_rates_fall_for_two_streams_only():
    tables = streams(replace(SMALL, end=60))
    late = {name: sum(t > 6000 for t in table["ts"].to_pylist()) / 54 for name, table in tables.items()}
    assert late["A"] == pytest.approx(20, rel=0.2)
    assert late["B"] == pytest.approx(2, rel=0.4) and late["C"] == pytest.approx(2, rel=0.4)


def test_loops_are_charged_within_partitions():
    run = Run(replace(SMALL, rates=Rates(20)), Adaptation())
    run.run()
    program, meter = run._program("m1"), PartitionedLoops(Costs(1, 1), SMALL.groups)
    join = program.main.box.operators[0]
    stored = join.states[0].alive(join.frontier)
    assert meter.histogram(join.states[0], join.frontier).sum() == len(stored) > 0
    counts = meter.loops(join, 1, stored.with_columns(stored.columns.rename_columns(join.states[1].schema.names)))
    by_group = meter.histogram(join.states[0], join.frontier)
    assert counts == Counts(int(np.dot(by_group, by_group)), len(stored))
    meter.charge(Counts(3, 2))
    assert meter.taken() == 5 and meter.taken() == 0


def test_ptlb_takes_two_windows_one_by_intervals_and_mslb_next_to_nothing():
    dense = {name: 40 for name in "ABC"}
    small = replace(length_setting(6, rate=20), keys=dense, groups=20, machines=3, tick=0.5, look=0.5)
    point = measure_length(small)
    assert point.ptlb == pytest.approx(12, abs=1.5)
    assert point.by_intervals == pytest.approx(6, abs=1)
    assert point.mslb < 1


def test_on_a_job_moves_last_a_window_unless_state_is_handed_over():
    assert windows_on_job("split_time", window=20, rate=2) == pytest.approx(1, abs=0.15)
    assert windows_on_job("mslb", window=20, rate=2) == 0
    point = LengthPoint(15, 30, 15, 0.5)
    assert length_report([point], {"ptlb": 1.1, "mslb": 0.0}).verdicts[-1].holds
    assert not length_report([point], {"ptlb": 2.0, "mslb": 0.0}).verdicts[-1].holds


def flat(name: str, results: int, rows: int) -> Observed:
    adaptation = next(a for a in ADAPTATIONS if a.name == name)
    return Observed(adaptation, [Sample(float(s), results * s // 80, rows, 0) for s in range(1, 81)])


def test_verdicts_follow_from_the_runs():
    results = dict(zip((a.name for a in ADAPTATIONS), (100, 200, 200, 190, 430, 400), strict=True))
    found = {name: flat(name, count, 10) for name, count in results.items()}
    assert all(v.holds for v in throughput_report(Runs(SMALL, found)).verdicts)
    poor = {**found, "LM-PTLB": flat("LM-PTLB", 210, 10), "LM-MSLB": flat("LM-MSLB", 210, 10)}
    verdicts = {v.claim: v for v in throughput_report(Runs(SMALL, poor)).verdicts}
    assert not verdicts["both together give at least 1.5 times the better single one"].holds
    large = verdicts["both together give about 330 % more than no adaptation"]
    assert verdicts["both together give most"].holds and not large.holds and large.reason
    rows = {name: flat(name, 10, 100 if "LM" not in name else 10) for name in results}
    shown = tuples_report(Runs(SMALL, rows)).verdicts
    assert shown[0].holds and shown[1].holds and not shown[2].holds
    assert NONE == "No-Adapt"


def falling(name: str, at: int) -> Observed:
    adaptation = next(a for a in ADAPTATIONS if a.name == name)
    return Observed(adaptation, [Sample(float(s), s, 10 if s >= at else 100, 0) for s in range(1, 81)])


def test_a_build_up_that_never_goes_down_does_not_go_down_later():
    last = "with load balancing alone the build-up goes down later than with local optimisation"
    for at, holds in ((60, True), (81, False), (20, False)):
        found = {a.name: falling(a.name, at if a.name == "PTLB-only" else 40) for a in ADAPTATIONS}
        verdict = next(v for v in tuples_report(Runs(SMALL, found)).verdicts if v.claim == last)
        assert verdict.holds == holds


def test_a_move_that_has_not_ended_counts_as_a_standstill():
    ptlb, mslb = flat("LM-PTLB", 800, 1), flat("LM-MSLB", 400, 1)
    mslb.unfinished.append(MoveLength(20.0, 80.0, 5, 0))
    verdict = falling_report(SMALL, [flat("No-Adapt", 10, 1), ptlb, mslb]).verdicts[-1]
    assert verdict.holds and "300 of 400" in verdict.measured


def test_verdicts_of_windows_rates_lengths_and_the_fall_follow_too():
    def points(lead: float) -> list[Point]:
        gains = {15.0: 1.0, 30.0: 1.2, 45.0: 1.4, 60.0: 1.6}
        ptlb = {(rate, w): 2.5 - gains[w] / 2 if rate == 50 else gains[w] for rate in RATES for w in WINDOWS}
        return [Point(rate, w, gain, gain * (1 + lead * (w - 15) / 45)) for (rate, w), gain in ptlb.items()]

    assert all(v.holds for v in report_of(points(0.25), SMALL).verdicts)
    assert not report_of(points(-0.25), SMALL).verdicts[-1].holds
    assert all(v.holds for v in length_report([LengthPoint(15, 30, 15, 0.5), LengthPoint(60, 119, 61, 2)]).verdicts)
    assert not length_report([LengthPoint(15, 15, 15, 5)]).verdicts[0].holds
    runs = [flat("No-Adapt", 10, 1), flat("LM-PTLB", 30, 1), flat("LM-MSLB", 20, 1)]
    verdicts = falling_report(SMALL, runs).verdicts
    assert verdicts[0].holds and verdicts[1].holds and not verdicts[2].holds


def test_all_of_them_are_registered():
    assert {"dcape-throughput", "dcape-tuples", "dcape-window-rate", "dcape-length", "dcape-falling"} <= set(
        EXPERIMENTS
    )
