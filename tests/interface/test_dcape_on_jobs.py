"""D-CAPE's adaptations on a job: results are the same, the busiest slot's work says what they gain."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.interface.test_balancing_experiments import SMALL

from midstream.errors import JobError
from midstream.lab.experiments import dcape_on_jobs
from midstream.lab.experiments.dcape_on_jobs import (
    MAP,
    JobRun,
    even,
    run_on_job,
    scaled,
    skewed,
    throughput_report,
    tuples_report,
    written,
)
from midstream.lab.experiments.dcape_run import FIRST, SECOND, Adaptation, Rates
from midstream.lab.experiments.dcape_throughput import ADAPTATIONS
from midstream.lab.experiments.registry import ON_JOBS, repeat_experiment, run_experiment

SETTING = replace(SMALL, rates=Rates(30, 3, 16.0), window=12, end=32, ready=6, optimised_at=14)
RUN = (Adaptation(), Adaptation(True, "ptlb"), Adaptation(True, "mslb"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dcape")
    streams = written(SETTING, folder / "streams")
    return {a.name: run_on_job(SETTING, a, streams, folder / a.name) for a in RUN}


def test_one_slot_starts_with_half_the_groups_and_its_share_of_the_rest():
    assert [skewed().count(slot) for slot in range(4)] == [160, 32, 32, 32]
    assert [even().count(slot) for slot in range(4)] == [64] * 4
    assert all(old == 0 for old, new in zip(skewed(), even(), strict=True) if old != new)


def test_whatever_adapts_the_results_are_the_same(runs):
    assert len({run.answer for run in runs.values()}) == 1 and sum(runs["No-Adapt"].results) > 1000
    assert [run.migrations for run in runs.values()] == [[], [SECOND], [SECOND]]
    (skewing, move) = runs["LM-PTLB"].moves
    assert (skewing["groups"], move["groups"], move["protocol"]) == (160, 96, "ptlb")
    # The plan changes at 16 s, while groups move.
    assert move["start_batch"] == 2 and move["batch"] > 4
    assert FIRST != SECOND


def test_the_busiest_slot_has_less_to_do_once_groups_have_moved(runs):
    usual, both, slow = (runs[name].busiest for name in ("No-Adapt", "LM-MSLB", "LM-PTLB"))
    assert usual[:2] == both[:2] == slow[:2]
    assert 1.5 * both[3] < usual[3] == slow[3]
    assert all(sum(run.work) > sum(run.busiest) for run in runs.values())


@cache
def made_up(gain: int) -> dict[str, JobRun]:
    """Runs of which both together give so many times the better single one, in per cent."""
    work = {"No-Adapt": 400, "LM-only": 200, "PTLB-only": 220, "MSLB-only": 210, "LM-PTLB": 150}
    found = {}
    for adaptation in ADAPTATIONS:
        busiest = work.get(adaptation.name, 20_000 // gain)
        found[adaptation.name] = JobRun(
            adaptation, [busiest], [busiest / 100], [busiest / 50], [900], [10], [40], answer=7
        )
    return found


@pytest.mark.parametrize(("gain", "holds"), [(149, False), (160, True)])
def test_the_bar_is_taken_from_the_better_single_adaptation(gain, holds):
    report = throughput_report("local", scaled(1), made_up(gain))
    bars = [verdict for verdict in report.verdicts if verdict.claim.startswith("both together")]
    single, none = bars[:3], bars[3:]
    assert [verdict.holds for verdict in single] == [holds] * 3 and [verdict.holds for verdict in none] == [True]
    assert [verdict.clocked for verdict in bars] == [False, True, True, True]
    assert report.verdicts[0].holds and report.to_json()["experiment"] == "dcape-throughput"


def test_other_answers_are_found_out():
    runs = dict(made_up(160))
    runs["LM-MSLB"] = replace(runs["LM-MSLB"], answer=8)
    assert not throughput_report("local", scaled(1), runs).verdicts[0].holds


def test_rows_in_states_say_what_builds_up():
    runs = {name: replace(run, stored=[40, 10 if run.adaptation.local else 40]) for name, run in made_up(160).items()}
    assert all(verdict.holds for verdict in tuples_report("spark", scaled(1), runs).verdicts)


def test_settings_and_seeds_of_runs_on_jobs_are_those_of_every_experiment(monkeypatch):
    seen = list[tuple[object, ...]]()

    def noted(*arguments):
        seen.append(arguments)
        return made_up(160)

    monkeypatch.setattr(dcape_on_jobs, "runs", noted)
    report = repeat_experiment("dcape-throughput", 2, "local", ["slots=2"], seed=5)
    assert seen == [("local", seed, scale, 2) for scale in MAP["scale"] for seed in (5, 6)]
    assert {row.setting["scale"] for row in report.map} == set(MAP["scale"])
    assert report.verdicts[0].stable is not None and report.verdicts[0].stable.seeds == 2


def test_only_some_experiments_run_on_jobs():
    with pytest.raises(JobError, match="genmig-rates is not run on jobs") as refused:
        run_experiment("genmig-rates", "local")
    assert refused.value.hint == f"those that are: {', '.join(ON_JOBS)}"
    with pytest.raises(JobError, match="do not run on 'mars'"):
        run_experiment("dcape-tuples", "mars")
