"""A world in which a job runs: machines, links, a shared disk, processes, and what goes wrong with them.

Everything is drawn from one seed, and each seed has its own mixture of troubles: rare ones show only where others do
not hide them. After some time the world is calm: nothing goes wrong any more, and a job must then come to its end.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from midstream.checkpoint.process import this_process
from midstream.lab.simulated_cluster import SimulatedLink, Simulation
from midstream.lab.simulated_cluster.processes import Actor, Host, SimulatedProcess
from midstream.lab.simulated_cluster.storage import SCHEME, VolatileDisk, at_random, insert
from midstream.lab.simulated_cluster.tasks import TaskKilled, Worker


@dataclass(frozen=True, slots=True)
class Edges:
    """How often what goes wrong around a job.

    `sinks_absent` is how often a program runs the job without sinks. `clock_step` sets a clock by more than a year, for
    a moment. `folder_change` and `folder_away` are of folders that rows come from; `restore` of the checkpoint.
    """

    sink_failure: float = 0.0
    sinks_absent: float = 0.0
    clock_step: float = 0.0
    folder_change: float = 0.0
    folder_away: float = 0.0
    restore: float = 0.0

    @staticmethod
    def drawn(random: Random) -> Edges:
        """A mixture: each trouble is there or not."""
        return Edges(*(random.choice([0.0, most, most / 4]) for most in (0.1, 0.3, 0.05, 0.04, 0.03, 0.06)))


@dataclass(frozen=True, slots=True)
class Troubles:
    """How often what goes wrong: the first ones per turn, the others per operation or message.

    `edges` are those of what surrounds the job.
    """

    kill: float = 0.0
    stop: float = 0.0
    second_driver: float = 0.0
    power_loss: float = 0.0
    worker_crash: float = 0.0
    clock_jump: float = 0.0
    disk_full: float = 0.0
    disk_failure: float = 0.0
    lying_rename: float = 0.0
    task_killed: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    edges: Edges = Edges()

    @staticmethod
    def drawn(random: Random) -> Troubles:
        """A mixture: each trouble is there or not."""
        highest = {
            "kill": 0.15,
            "stop": 0.1,
            "second_driver": 0.05,
            "power_loss": 0.04,
            "worker_crash": 0.1,
            "clock_jump": 0.05,
            "disk_full": 0.03,
            "disk_failure": 0.004,
            "lying_rename": 0.01,
            "task_killed": 0.01,
            "loss": 0.1,
            "duplication": 0.15,
            "reordering": 0.3,
        }
        drawn = {name: random.choice([0.0, most, most / 4]) for name, most in highest.items()}
        return Troubles(**drawn, edges=Edges.drawn(random))


class World:
    """Machines, a disk and processes."""

    def __init__(self, seed: int, troubles: Troubles | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.troubles = troubles if troubles is not None else Troubles.drawn(self.random)
        jitter = self.random.choice([0.0, 1.0, 20.0])
        link = SimulatedLink(
            latency=0.1,
            bandwidth=self.random.choice([50.0, 5000.0]),
            jitter=jitter,
            loss=self.troubles.loss,
            duplication=self.troubles.duplication,
            reordering=self.troubles.reordering,
        )
        self.simulation = Simulation(seed, link)
        self.disk, self.results_disk = VolatileDisk(), VolatileDisk()
        for disk in (self.disk, self.results_disk):
            disk.before = lambda number: self._operate(changing=True)
            disk.looking = lambda path: self._operate(changing=False)
            disk.renamed = self._after_rename
        self.uri = insert(f"world-{seed}", self.disk)
        insert(f"results-{seed}", self.results_disk)
        self.hosts = [Host(name, ahead=self.random.choice([0.0, -3600.0, 86400.0])) for name in ("north", "south")]
        self.actors: list[Actor] = []
        self.started = 0
        self.full_until = -1.0
        self.calm = False
        self.log: list[str] = []
        self.workers = [f"worker-{i}" for i in range(self.random.randint(1, 3))]
        for name in self.workers:
            self._add_worker(name)
        self.user = SimulatedProcess("user-0", Host("user"), self.simulation, Random(seed + 1))

    @property
    def results_uri(self) -> str:
        """Where results may go."""
        return f"{SCHEME}://results-{self.seed}"

    def note(self, what: str) -> None:
        """Remembers what happened, for whoever looks into a failure."""
        self.log.append(f"{self.simulation.now:.1f} {what}")

    def _add_worker(self, name: str) -> None:
        random = Random(f"{self.seed} {name}")
        process = SimulatedProcess(name, Host(name), self.simulation, random)
        crash: Callable[[str], None] = lambda name: self.simulation.at(  # noqa: E731
            self.simulation.now, lambda: self.crash_worker(name)
        )
        self.simulation.add(
            name, lambda disk: Worker(name, process, random, crash), speed=random.choice([20.0, 100.0, 1000.0])
        )

    def crash_worker(self, name: str) -> None:
        """Loses a worker, which is there again some time later."""
        self.note(f"{name} crashes")
        self.simulation.crash(name)
        self.simulation.at(self.simulation.now + self.random.uniform(1, 30), lambda: self.simulation.restart(name))

    def _operate(self, changing: bool) -> None:
        """What may happen at an operation of the disk."""
        process = this_process()
        if process is self.user or not isinstance(process, SimulatedProcess):
            return
        process.operate()
        if self.calm:
            return
        if changing and self.simulation.now < self.full_until:
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.random.random() < self.troubles.disk_failure:
            self.note(f"{process.name} meets a failing disk")
            raise OSError(errno.EIO, "Input/output error")
        if not isinstance(process, Actor) and self.random.random() < self.troubles.task_killed:
            raise TaskKilled(process.name)

    def _after_rename(self, path: str) -> None:
        process = this_process()
        lies = not self.calm and isinstance(process, SimulatedProcess) and process is not self.user
        if lies and self.random.random() < self.troubles.lying_rename:
            self.note(f"the disk lies about {path}")
            raise OSError(errno.EIO, "Input/output error")

    def spawn(self, program: Callable[[Actor], None]) -> Actor:
        """Starts a driver process on some machine."""
        self.started += 1
        host = self.random.choice(self.hosts)
        actor = Actor(f"driver-{self.started}", host, self.simulation, Random(f"{self.seed} {self.started}"), program)
        actor.alive_here = partial(self._alive, host)
        self.actors.append(actor)
        self.note(f"{actor.name} starts on {host.name}")
        return actor

    def _alive(self, host: Host, number: int) -> bool:
        return any(a.number == number and a.at is host and not a.ended for a in self.actors)

    def kill(self, actor: Actor) -> None:
        """Ends a driver process where it is."""
        self.note(f"{actor.name} is killed")
        actor.kill()
        self._forget(actor)

    def _forget(self, actor: Actor) -> None:
        self.actors.remove(actor)
        if actor.name in self.simulation.machines:
            self.simulation.crash(actor.name)

    def kill_all(self) -> None:
        """Ends all driver processes."""
        for actor in list(self.actors):
            self.kill(actor)

    def step_clock(self) -> None:
        """Sets a clock by more than a year, and back before anybody can take it for right."""
        host = self.random.choice(self.hosts)
        step, seconds = self.random.choice([-1.0, 1.0]) * 400 * 86400.0, self.random.uniform(1.0, 200.0)
        self.note(f"the clock of {host.name} steps by {step:.0f} for {seconds:.0f}")
        host.ahead += step

        def back() -> None:
            host.ahead -= step

        self.simulation.at(self.simulation.now + seconds, back)

    def stop(self, actor: Actor, seconds: float) -> None:
        """Stops a process for some time, as a signal or a long pause does."""
        self.note(f"{actor.name} stops for {seconds:.0f}")
        actor.stopped_until = self.simulation.now + seconds
        self.simulation.at(actor.stopped_until, lambda: None)
        if actor.name in self.simulation.machines:
            self.simulation.suspend(actor.name)

    def go_on(self, actor: Actor) -> None:
        """Lets a stopped process go on."""
        self.note(f"{actor.name} goes on")
        actor.stopped_until = None
        if actor.name in self.simulation.machines:
            self.simulation.resume(actor.name)

    def lose_power(self) -> None:
        """All processes and workers are gone, and what was not synced may be."""
        self.note("power is lost")
        for actor in list(self.actors):
            actor.kill()
            self._forget(actor)
        for disk in (self.disk, self.results_disk):
            left = disk.after_power_loss(at_random(self.random.getrandbits(32)))
            disk.seen, disk.safe = left.seen, left.safe
        for name in self.workers:
            self.crash_worker(name)
        for host in self.hosts:
            host.boot, host.booted = host.boot + 1, self.simulation.now

    def disturb(self) -> None:
        """Lets something go wrong, perhaps."""
        random, troubles = self.random, self.troubles
        awake = [actor for actor in self.actors if actor.stopped_until is None]
        if awake and random.random() < troubles.kill:
            self.kill(random.choice(awake))
            return
        if awake and random.random() < troubles.stop:
            self.stop(random.choice(awake), random.choice([5.0, 70.0, 300.0]))
        if random.random() < troubles.power_loss:
            self.lose_power()
        if random.random() < troubles.worker_crash:
            self.crash_worker(random.choice(self.workers))
        if random.random() < troubles.clock_jump:
            random.choice(self.hosts).ahead += random.choice([-7200.0, 3.0, 7200.0])
        if random.random() < troubles.disk_full:
            self.note("the disk is full")
            self.full_until = self.simulation.now + random.uniform(1, 60)

    def settle_down(self) -> None:
        """Nothing goes wrong from now on; those that were stopped go on."""
        self.note("calm")
        self.calm = True
        self.simulation.default_link = SimulatedLink(latency=0.1)
        for actor in self.actors:
            if actor.stopped_until is not None:
                self.go_on(actor)
