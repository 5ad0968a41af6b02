"""A simulated cluster in virtual time: machines, links between them, and what can go wrong with both.

A run is a function of its programs and one seed. Nothing reads a clock or shared randomness, so a failure found once is
found again by the same seed. A machine runs one program, one step at a time: a step takes a message or a timer, does
some work, and sends. What a step sends, writes and schedules takes effect together when its work is done; a crash
before that leaves no trace of the step.

    simulation = Simulation(seed=7, link=Link(latency=2, jitter=3, loss=0.1))
    simulation.add("a", lambda disk: Echo(disk), speed=100)
    simulation.add("b", lambda disk: Asking(disk))
    simulation.run(until=1_000)
"""

from midstream.lab.simulated_cluster.kernel import Simulation
from midstream.lab.simulated_cluster.links import SimulatedLink
from midstream.lab.simulated_cluster.machines import Disk, MachineStep, SimulatedMachine, SimulatedProgram

__all__ = ["Disk", "SimulatedLink", "SimulatedMachine", "SimulatedProgram", "Simulation", "MachineStep"]
