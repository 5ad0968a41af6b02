"""The experiments of node operator sets, at small size; the figures that must be exact are."""

from __future__ import annotations

import json

import pytest

import midstream as ms
from midstream.lab.experiments.nos_adaptive import MODES, joined, nos_adaptive, run_of
from midstream.lab.experiments.nos_messages import TABLE, nos_messages
from midstream.lab.experiments.nos_overhead import nos_overhead
from midstream.lab.experiments.nos_plans import nos_plans
from midstream.lab.experiments.nos_protocol import change
from midstream.lab.experiments.registry import EXPERIMENTS, run_experiment


def said(report):
    assert report.experiment in EXPERIMENTS
    assert "<svg" in report.to_html()
    return json.loads(json.dumps(report.to_json()))


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("up", [True, False])
def test_centralized_changes_take_the_published_messages(count, up):
    tally, published = change(count, "centralized", up).tally, TABLE[count, "centralized", up]
    assert tally.modification == published.modification == count
    assert tally.synchronisation == published.synchronisation == 2 * count * (count - 1)
    if up:
        assert tally.migration == published.migration


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("up", [True, False])
def test_both_ways_end_in_the_same_sets(count, up):
    central, spread = change(count, "centralized", up).members(), change(count, "distributed", up).members()
    assert {m.track.epoch for m in [*central.values(), *spread.values()]} == {1}
    for node, member in central.items():
        assert member.track.shares[1] == spread[node].track.shares[1]


def test_messages_are_within_their_complexity():
    for count in (3, 5, 9, 12):
        assert change(count, "centralized", True).tally.modification <= count + 1
        assert change(count, "distributed", True).tally.modification <= count**3


def test_the_reports_say_what_holds_and_why_the_rest_does_not():
    for report in (nos_messages(sizes=(4, 8)), nos_overhead()):
        verdicts = said(report)["verdicts"]
        assert all(
            verdict["holds"] for verdict in verdicts if verdict["claim"].startswith("centralized, 4 nodes, rate i")
        )
        assert all(verdict.holds or verdict.reason for verdict in report.verdicts)


def test_plans_are_compared_with_the_best():
    report = nos_plans(sizes=(3, 4), cases=8)
    assert len(said(report)["verdicts"]) == 4
    assert all(v.holds for v in report.verdicts if "know what heads share" in v.claim)


def test_adapting_pays_over_a_short_time():
    report = nos_adaptive(sizes=(4,), changes=2)
    broken = [verdict["claim"] for verdict in said(report)["verdicts"] if not verdict["holds"]]
    assert all("the spike is higher" in claim for claim in broken)


def test_the_rows_of_the_experiment_give_the_right_results():
    query, inputs = joined(4, 1, 2.5)
    run = run_of(4, MODES[1], 1, 2.5)
    assert run.finished and max(m.track.epoch for m in run.members().values()) == 1
    names = sorted(inputs)
    expected = ms.run(_text(names), inputs, time="ts")
    assert ms.snapshot_equal(run.table(), expected) and run.table().num_rows == expected.num_rows
    assert query.streams == tuple(names)


def _text(names):
    conditions = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(names, names[1:], strict=False))
    return f"SELECT S1.k AS k FROM {', '.join(f'{n} [RANGE 499]' for n in names)} WHERE {conditions}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nos-adaptive", "nos-overhead", "nos-messages", "nos-plans"])
def test_the_whole_experiments_run(name):
    report = run_experiment(name)
    assert all(verdict.holds or verdict.reason for verdict in report.verdicts)
