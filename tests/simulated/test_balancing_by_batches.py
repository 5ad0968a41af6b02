"""The same machines driven by batches: one commit per batch for manager, split operators and slots together.

A batch is a function of the last commit. It may be run several times before it is committed, each time from the same
states, as a job does that fails between a step and its commit.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulated.balanced_runs import MANAGER, SINK, Balanced
from tests.simulated.test_balancing_protocols import JOIN, KINDS, streams

from midstream.lab.papers.partitioned_load_balancing.protocols.manager import MoveRequest
from midstream.lab.simulated_cluster import MachineStep

Disks = dict[str, dict[str, Any]]


class Batches:
    """Runs a query's machines in lock step, with what they send as part of the commit."""

    def __init__(self, run: Balanced) -> None:
        self.run = run
        self.machines = run.simulation.machines
        self.committed: Disks = {name: {} for name in self.machines}
        self.mail: list[tuple[str, str, Any]] = []
        self.number = 0

    def batch(self, attempts: int, posted: tuple[Any, ...] = ()) -> None:
        """One batch: rows of a tick, then messages until nothing is left that this batch can do."""
        for _ in range(attempts):
            disks, mail = self._attempt(posted)
        self.committed, self.mail = disks, mail
        self.number += 1

    def _attempt(self, posted: tuple[Any, ...]) -> tuple[Disks, list[tuple[str, str, Any]]]:
        disks = {name: dict(disk) for name, disk in self.committed.items()}
        programs = {name: machine.program_of(disks[name]) for name, machine in self.machines.items()}
        sent: list[tuple[str, str, Any]] = []

        def end(name: str, step: MachineStep) -> None:
            disks[name].update(step.writes)
            sent.extend((name, to, message) for to, message, *_ in step.sends)

        for message in posted:
            step = MachineStep(MANAGER, float(self.number))
            programs[MANAGER].receive(step, "driver", message)
            end(MANAGER, step)
        for sender, to, message in self.mail:
            step = MachineStep(to, float(self.number))
            programs[to].receive(step, sender, message)
            end(to, step)
        for name in self.run.split_names:
            step = MachineStep(name, 1e9)
            programs[name].wake(step, "tick")
            end(name, step)
        return disks, sent

    @property
    def quiet(self) -> bool:
        """Whether nothing is left to be read or delivered."""
        return not self.mail and self.number > 2 + len(self.run._ticks(0))

    def finish(self, attempts: int) -> None:
        """Runs until everything has ended, then shows the result where the run looks for it."""
        while not self.quiet:
            self.batch(attempts)
            assert self.number < 500
        for name, machine in self.machines.items():
            machine.disk = self.committed[name]
            machine.program = machine.program_of(machine.disk)


@pytest.mark.parametrize("protocol", ["ptlb", "mslb", "split_time_balancing"])
def test_moves_driven_by_batches_are_exact(protocol):
    run = Balanced(JOIN, streams(3), ["((A B) C)", "(A (B C))"], splits=1, step=5)
    batches = Batches(run)
    for _ in range(6):
        batches.batch(1)
    batches.batch(2, (MoveRequest(protocol, "p0", "p1", groups=(0, 2)),))
    batches.finish(attempts=2)
    assert run.manager.owners == ("p1", "p1", "p1", "p1", "p0", "p1") and not run.manager.moves
    assert run.check_result().num_rows > 20
    assert SINK in batches.committed


@settings(max_examples=15)
@given(st.data())
def test_a_batch_may_be_run_again_before_it_is_committed(data):
    kind = data.draw(st.sampled_from(["join", "aggregate", "difference", "sequence"]))
    query, shapes = KINDS[kind]
    protocol = data.draw(st.sampled_from(["mslb", "split_time_balancing"]))
    run = Balanced(query, streams(data.draw(st.integers(0, 99))), [shapes[0], shapes[-1]], splits=1, step=8)
    batches = Batches(run)
    for number in range(data.draw(st.integers(1, 8))):
        move = MoveRequest(protocol, "p0", "p1", groups=(data.draw(st.integers(0, 5)),))
        batches.batch(data.draw(st.integers(1, 3)), (move,) if number % 3 == 0 else ())
    batches.finish(data.draw(st.integers(1, 2)))
    assert not run.manager.moves
    run.check_result()
