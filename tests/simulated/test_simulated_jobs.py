"""Whole jobs on simulated machines: whatever goes wrong, nothing is lost, doubled or carried out twice.

A failure names its seed, and `pytest tests/simulated/test_simulated_jobs.py --seed N` runs it again exactly.
`pytest -m slow --seeds N` runs the first N seeds instead of the first 10,000.
"""

from __future__ import annotations

import pytest

from midstream.checkpoint.lease import Heartbeat
from midstream.checkpoint.process import BelievedTime, this_process
from midstream.checkpoint.request_log import RequestLog
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.sinks import Folder
from midstream.connectors.files.identity import KnownFolder
from midstream.lab.simulated_cluster.storage import SimulatedFiles
from midstream.lab.simulation.run import SimulationFailure
from midstream.lab.simulation.simulate import simulate
from midstream.lab.simulation.world import Edges, Troubles

SEEDS = 6
MANY_SEEDS = 10_000


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", metafunc.config.getoption("--seed") or range(SEEDS))


def test_a_job_survives_whatever_a_seed_has_in_store(seed):
    simulate(seed)


@pytest.mark.slow
def test_a_job_survives_whatever_many_seeds_have_in_store(request):
    failures = []
    for seed in range(request.config.getoption("--seeds") or MANY_SEEDS):
        try:
            simulate(seed)
        except SimulationFailure as failure:
            failures.append(str(failure))
    assert not failures, "\n".join([f"{len(failures)} seeds failed", *failures[:10]])


@pytest.mark.parametrize("number", [11, 20])
def test_a_seed_is_run_again_exactly(number):
    """Whatever was decided: times that were measured are those of the simulated machines."""
    first, second = simulate(number), simulate(number)
    assert first.workload.adaptive != "off"
    assert first.world.log == second.world.log
    assert first.world.disk.operations == second.world.disk.operations
    assert sorted(first.world.disk.seen) == sorted(second.world.disk.seen)


def test_without_troubles_one_driver_does_everything():
    run = simulate(5, Troubles())
    ended = [line for line in run.world.log if " ends: " in line]
    assert all(line.endswith("in order") for line in ended)


def found_out(monkeypatch: pytest.MonkeyPatch, seeds: range, troubles: Troubles) -> int:
    """The first seed that fails as long as something is wrong, and does not fail without that."""
    for seed in seeds:
        try:
            simulate(seed, troubles)
        except SimulationFailure:
            monkeypatch.undo()
            simulate(seed, troubles)
            return seed
    raise AssertionError("no seed fails")


def test_files_that_are_not_synced_are_found_out(monkeypatch):
    """What the tests above rest on: they fail if the job is wrong."""
    sync = SimulatedFiles.sync
    monkeypatch.setattr(SimulatedFiles, "sync", lambda self, dir: None if dir == "state" else sync(self, dir))
    found_out(monkeypatch, range(10), Troubles(power_loss=0.2))


def test_drivers_without_a_fence_are_found_out(monkeypatch):
    monkeypatch.setattr(Heartbeat, "check", lambda self: None)
    monkeypatch.setattr(CheckpointStore, "_refuse_what_is_behind", lambda self, manifest: None)
    found_out(monkeypatch, range(20, 50), Troubles(stop=0.3, second_driver=0.1))


def test_requests_that_are_forgotten_too_early_are_found_out(monkeypatch):
    """A request is kept until a manifest shows its effect."""
    answer = RequestLog.answer

    def forgetful(self, number, reply):
        answer(self, number, reply)
        self.forget(number)

    monkeypatch.setattr(RequestLog, "answer", forgetful)
    found_out(monkeypatch, range(30), Troubles(kill=0.2))


def test_files_that_are_read_again_because_their_folder_was_moved_are_found_out(monkeypatch):
    monkeypatch.setattr(KnownFolder, "seen_from", lambda self, folder, present: [])
    found_out(monkeypatch, range(10), Troubles(edges=Edges(folder_change=0.2)))


def test_results_that_a_folder_has_twice_after_a_restore_are_found_out(monkeypatch):
    monkeypatch.setattr(Folder, "_spans", lambda self, key: [])
    found_out(monkeypatch, range(5, 15), Troubles(kill=0.1, edges=Edges(restore=0.15)))


def test_a_clock_that_is_believed_at_once_is_found_out(monkeypatch):
    monkeypatch.setattr(BelievedTime, "now", lambda self: this_process().now())
    found_out(monkeypatch, range(20), Troubles(edges=Edges(clock_step=0.3)))
