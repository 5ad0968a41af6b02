"""Verdicts over several seeds and settings: what is run, what is counted, and how it is said."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from midstream.errors import JobError
from midstream.interface.cli import app
from midstream.lab.experiments.gallery import section
from midstream.lab.experiments.registry import EXPERIMENTS, MAPS, _axes, _function, repeat_experiment, run_experiment
from midstream.lab.experiments.report import Report, Verdict, counted
from midstream.lab.experiments.stability import defaults, judged, parsed, run_trials, trials

RUN: list[tuple[int, int]] = []


def drawn(seed: int = 3, window: int = 30, rates: tuple[float, ...] = (1.0, 2.0), own: bool = True) -> Report:
    """An experiment whose claim holds with even seeds and small windows."""
    RUN.append((seed, window))
    report = Report("cape-drawn", "Drawn", {})
    report.verdict("even", "even", f"seed {seed}", seed % 2 == 0 and window < 40, "odd", value=float(seed))
    report.verdict("always", "", "", True, kind="own")
    if own:
        report.verdict("ours", "", "", True, kind="own", value=1.0)
    return report


def test_a_verdict_has_the_share_of_seeds_and_settings_in_which_it_holds():
    RUN.clear()
    chosen = trials(drawn, {}, 4, {"window": (30, 60)})
    report = judged(chosen, run_trials(chosen, 1))
    even, always, _ = report.verdicts
    # Seeds 3 to 6 in the plain setting, which the map has too, and with the other window.
    assert [(seed, window) for window in (30, 60) for seed in (3, 4, 5, 6)] == RUN
    assert str(even.stable) == "2 of 4 seeds (3 to 6), 2 of 8 runs of the map"
    assert even.outcome == "in part" and not even.to_json()["holds"]
    assert even.to_json()["stable"]["share"] == pytest.approx(4 / 12, abs=1e-4)
    assert always.outcome == "yes" and always.to_json()["holds"]
    assert [(row.setting, row.found["even"].seeds_held) for row in report.map] == [
        ({"window": 30}, 2),
        ({"window": 60}, 0),
    ]
    assert "| 30 | 4.50 (2/4) |" in section(report) and "**in part**" in section(report)


def test_a_claim_that_is_not_judged_in_a_setting_is_not_of_its_map():
    chosen = trials(drawn, {}, 2, {"window": (30, 60), "own": (False,)})
    report = judged(chosen, run_trials(chosen, 1))
    assert [set(row["claims"]) for row in report.data()["map"]] == [{"even", "always"}] * 2
    assert report.verdicts[2].stable is not None and report.verdicts[2].stable.settings == 0
    assert "ours" not in report.map_table()[0] and section(report) and report.to_html()


def test_claims_are_counted_by_kind():
    verdicts = [
        Verdict("a", "", "", True),
        Verdict("b", "", "", False),
        Verdict("c", "", "", True, kind="own"),
        Verdict("d", "", "", True, kind="check"),
    ]
    assert counted(verdicts) == "1 of 2 published claims hold; 1 of 1 claims of our own; 1 of 1 checks"


def test_a_reason_that_no_run_has_shown_is_a_conjecture():
    assert Verdict("a", "", "m", False, "why", conjecture=True).to_json()["measured"] == "m (conjecture: why)"


def test_settings_are_read_as_the_type_of_their_default():
    assert parsed(drawn, ["window=45", "rates=3,4.5", "own=false"]) == {
        "window": 45,
        "rates": (3.0, 4.5),
        "own": False,
    }
    for wrong in ("width=4", "window", "window=wide"):
        with pytest.raises(JobError, match=r"window|width"):
            parsed(drawn, [wrong])


def test_every_experiment_can_be_set_and_every_map_varies_its_arguments():
    for name in EXPERIMENTS:
        known = defaults(_function(name, "simulated"))
        assert all(type(value) in (int, float, bool, tuple) for value in known.values()), name
    for name in MAPS:
        assert set(_axes(name)) <= set(defaults(_function(name, "simulated"))) and len(_axes(name)) >= 2


def test_the_command_line_sets_seeds_and_settings():
    arguments = ["experiment", "nos-plans", "--set", "sizes=3", "--set", "cases=4", "--seeds", "2", "--seed", "9"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    greedy = json.loads(done.stdout)["verdicts"][0]
    assert greedy["kind"] == "own" and greedy["stable"]["seeds"][1] == 2
    each = [
        run_experiment("nos-plans", "simulated", ["sizes=3", "cases=4"], seed).verdicts[0].value for seed in (9, 10)
    ]
    assert greedy["stable"]["values"] == each and each[0] != each[1]
    refused = CliRunner().invoke(app, ["experiment", "nos-plans", "--set", "case=4"])
    assert refused.exit_code != 0 and "cases=60" in refused.output


def test_runs_in_processes_say_what_runs_in_this_one_say():
    plain, apart = (repeat_experiment("nos-plans", 2, settings=["sizes=3", "cases=4"], processes=n) for n in (1, 2))
    assert plain.to_json() == apart.to_json()
