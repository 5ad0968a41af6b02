"""The simulation kernel: order, work, links and crashes, all of them a function of the seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import InternalError
from midstream.lab.simulated_cluster import MachineStep, SimulatedLink, Simulation


@dataclass
class Recorder:
    """Notes what it gets and when; works and answers as messages say."""

    disk: dict[str, Any]
    log: list[tuple[float, str, Any]] = field(default_factory=list)

    def start(self, step: MachineStep) -> None:
        self.log.append((step.now, "start", self.disk.get("count", 0)))

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        self.log.append((step.now, sender, message))
        match message:
            case ("work", units):
                step.work(units)
                step.write("count", self.disk.get("count", 0) + 1)
            case ("send", to, what, size):
                step.send(to, what, size)
            case ("burst", to, count):
                for i in range(count):
                    step.send(to, i)
            case ("timer", name, delay):
                step.set_timer(name, delay)
            case ("cancel", name):
                step.cancel_timer(name)
            case ("hold", memory):
                step.hold(memory)

    def wake(self, step: MachineStep, timer: str) -> None:
        self.log.append((step.now, "timer", timer))


def two_machines(seed: int = 0, link: SimulatedLink | None = None, **features: float) -> Simulation:
    simulation = Simulation(seed, link)
    for name in "ab":
        simulation.add(name, Recorder, **features)
    return simulation


def log(simulation: Simulation, name: str) -> list[tuple[float, str, Any]]:
    program = simulation.machines[name].program
    assert isinstance(program, Recorder)
    return program.log


def heard(simulation: Simulation, name: str) -> list[Any]:
    return [message for _, sender, message in log(simulation, name) if sender in ("a", "b")]


def test_a_message_arrives_after_its_size_over_the_bandwidth_and_the_latency():
    simulation = two_machines(link=SimulatedLink(latency=3, bandwidth=10))
    simulation.post("a", ("send", "b", "first", 50), at=1)
    simulation.post("a", ("send", "b", "second", 20), at=1)
    assert simulation.run()
    assert log(simulation, "b")[1:] == [(9, "a", "first"), (11, "a", "second")]


def test_work_takes_time_by_speed_and_what_arrives_meanwhile_waits():
    simulation = two_machines(speed=4)
    for _ in range(2):
        simulation.post("a", ("work", 20), at=1)
    simulation.post("a", "after", at=2)
    simulation.run()
    assert [moment for moment, *_ in log(simulation, "a")[1:]] == [1, 6, 11]
    assert simulation.machines["a"].used.busy == 10
    assert simulation.machines["a"].disk == {"count": 2}


def test_a_crash_during_a_step_leaves_no_trace_of_it_and_a_restart_begins_from_the_disk():
    simulation = two_machines()
    simulation.post("a", ("work", 5), at=0)
    simulation.post("a", ("work", 5), at=6)
    simulation.post("a", "lost in the inbox", at=7)
    simulation.at(8, lambda: simulation.crash("a"))
    simulation.post("a", "lost while down", at=9)
    simulation.at(10, lambda: simulation.restart("a"))
    simulation.run()
    assert log(simulation, "a") == [(10, "start", 1)]
    assert simulation.machines["a"].disk == {"count": 1}


def test_timers_wake_once_can_be_replaced_and_die_with_their_machine():
    simulation = two_machines()
    simulation.post("a", ("timer", "t", 5), at=0)
    simulation.post("a", ("timer", "t", 5), at=2)
    simulation.post("a", ("timer", "gone", 5), at=2)
    simulation.post("a", ("cancel", "gone"), at=3)
    simulation.post("b", ("timer", "t", 5), at=2)
    simulation.at(4, lambda: simulation.crash("b"))
    simulation.at(5, lambda: simulation.restart("b"))
    simulation.run()
    assert [entry for entry in log(simulation, "a") if entry[1] == "timer"] == [(7, "timer", "t")]
    assert log(simulation, "b") == [(5, "start", 0)]


def test_urgent_messages_are_taken_before_others_but_after_the_step_under_way():
    simulation = two_machines()
    simulation.post("a", ("work", 5), at=0)
    simulation.post("a", "waits", at=1)
    simulation.post("a", "urgent", at=2, urgent=True)
    simulation.run()
    assert [entry[2] for entry in log(simulation, "a")[2:]] == ["urgent", "waits"]


def test_a_machine_that_holds_more_than_its_memory_crashes():
    simulation = two_machines(memory=100)
    simulation.post("a", ("hold", 90))
    simulation.post("b", ("hold", 101))
    simulation.run()
    assert simulation.machines["a"].up and simulation.machines["a"].used.peak == 90
    assert not simulation.machines["b"].up and simulation.machines["b"].used.overflowed


@given(st.integers(0, 10_000), st.floats(0, 50), st.floats(0, 20))
def test_links_keep_order_unless_they_reorder(seed, latency, jitter):
    simulation = two_machines(seed, SimulatedLink(latency=latency, jitter=jitter, loss=0.2, duplication=0.2))
    simulation.post("a", ("burst", "b", 30))
    simulation.run()
    found = heard(simulation, "b")
    assert found == sorted(found)
    wire = simulation.wire("a", "b")
    assert wire.sent == 30 and len(found) == 30 - wire.lost + wire.duplicated


def test_links_lose_double_and_reorder_by_their_chances():
    simulation = two_machines(3, SimulatedLink(jitter=10, loss=0.1, duplication=0.3, reordering=1.0))
    simulation.post("a", ("burst", "b", 2000))
    simulation.run()
    found, wire = heard(simulation, "b"), simulation.wire("a", "b")
    assert wire.lost == pytest.approx(200, abs=50)
    assert wire.duplicated == pytest.approx(540, abs=80)
    assert found != sorted(found) and set(found) <= set(range(2000))


@given(st.integers(0, 10_000))
def test_a_run_is_a_function_of_its_seed_however_it_is_cut(seed):
    def run(cuts: list[float]) -> list[tuple[float, str, Any]]:
        simulation = two_machines(seed, SimulatedLink(latency=1, jitter=9, loss=0.1, duplication=0.1, reordering=0.5))
        for i in range(20):
            simulation.post("a", ("send", "b", i, 0), at=i / 2)
        for cut in cuts:
            simulation.run(until=cut)
            assert simulation.now == cut
        assert simulation.run()
        return log(simulation, "b")

    assert run([]) == run([1.5, 4.0, 30.0])


def test_a_link_can_be_cut_and_mended_and_others_draw_as_before():
    def run(cut: bool) -> list[Any]:
        simulation = two_machines(1, SimulatedLink(loss=0.3))
        simulation.add("c", Recorder)
        if cut:
            simulation.connect("a", "c", SimulatedLink(loss=1.0))
        simulation.post("a", ("burst", "c", 5))
        simulation.post("a", ("burst", "b", 50))
        simulation.run()
        assert bool([m for _, sender, m in log(simulation, "c") if sender == "a"]) != cut
        return heard(simulation, "b")

    assert run(cut=True) == run(cut=False)


def test_what_cannot_be_is_refused():
    for impossible in ({"latency": -1.0}, {"loss": 1.5}, {"bandwidth": 0.0}):
        with pytest.raises(InternalError):
            SimulatedLink(**impossible)
    with pytest.raises(InternalError):
        two_machines(speed=0.0)
    simulation = two_machines()
    with pytest.raises(InternalError):
        simulation.add("a", Recorder)
