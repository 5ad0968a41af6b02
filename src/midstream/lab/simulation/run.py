"""One seed: a job from its first batch to its end, in a world where everything may go wrong, and then the judgement.

Drivers come one after the other, sometimes two at once; people ask for changes through the control folder. What is
seen of every manifest is kept, because later ones must not say otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from midstream.checkpoint.control import ANSWERS, REQUESTS, numbers_in, path_of, send
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import sources_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.process import running_as
from midstream.checkpoint.query_windows import SharingRecord
from midstream.checkpoint.records import StoredRequest
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import InternalError, JobError, MidstreamError
from midstream.job.outputs.delivery import Sink
from midstream.lab.simulated_cluster.cluster import SimulatedBackend
from midstream.lab.simulated_cluster.processes import Actor
from midstream.lab.simulation.edges import Copies, Copy, FlakyFolder, SourceFolders, Sources
from midstream.lab.simulation.workload import BY_ROWS, LATENESS, OTHER_TEXT, STREAMS, Workload
from midstream.lab.simulation.world import Edges, Troubles, World

TURNS = 60
"""How many turns processes have before the world is calm."""

LOOKS = 8
LONG_REST = 20.0
"""How often a driver looks for rows in vain before it rests, and how many seconds: nothing comes in its own turn."""

LONG_CALM = 300
MOST_TURNS = 1000
"""After how many turns whoever runs the job starts it again, and after how many it counts as hanging."""


REST_FIRST = ("it is migrating", "its slots run by different plans")
"""Why a query's text may not change yet."""


class SimulationFailure(AssertionError):
    """A job did something that it must not do."""


class SinkFailure(JobError):
    """A sink that does not take what it is given."""


@dataclass(slots=True)
class Seen:
    """What one manifest says."""

    read: dict[str, frozenset[str]]
    registers: dict[str, int]
    sharing: dict[str, SharingRecord | None]
    queries: dict[str, str]
    requests: list[StoredRequest]
    begun: dict[str, int]
    """The batches in which queries were added that are there."""


@dataclass
class SimulatedRun:
    """A run under a seed."""

    seed: int
    troubles: Troubles | None = None
    seen: dict[int, Seen] = field(default_factory=dict)
    delivered: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    without_sinks: set[int] = field(default_factory=set)
    """The processes that run the job without sinks, by number."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Requests, and what was answered, by number."""
    finished: bool = False
    copies: Copies = field(default_factory=Copies)

    def __post_init__(self) -> None:
        self.world = World(self.seed, self.troubles)
        self.random = Random(f"{self.seed} run")
        self.workload = Workload.drawn(self.random)
        if self.edges.restore:
            self.workload.expect_restores()
        at_once = self.workload.at_once
        self.sources = SourceFolders(at_once, self.seed) if self.workload.source_folders else Sources(at_once)
        self.texts = dict(self.workload.queries)
        self.hidden = {name: list(files.items()) for name, files in self.workload.files.items()}

    @property
    def files(self) -> Files:
        """The files of the checkpoint."""
        return CheckpointStore(self.world.uri).files

    @property
    def edges(self) -> Edges:
        """How often what goes wrong around the job."""
        return self.world.troubles.edges

    def run(self) -> None:
        """Runs the job to its end; raises a `SimulationFailure` if it goes wrong."""
        for turn in range(MOST_TURNS):
            if self.finished:
                break
            if turn == TURNS:
                self.world.settle_down()
            elif turn == LONG_CALM:
                # A driver that has lost its lease and has nothing to commit does not end by itself.
                self.world.kill_all()
            elif turn < TURNS:
                self.world.disturb()
                self._disturb_edges()
                self._ask()
            self._feed(turn)
            self._read_answers()
            self._proceed()
        else:
            raise self.failure("the job does not come to its end")
        self._read_answers()
        self.world.kill_all()

    def failure(self, why: str) -> SimulationFailure:
        """What is raised, with what led to it."""
        log = "\n  ".join(self.world.log[-40:])
        return SimulationFailure(f"seed {self.seed}: {why}\n  {self.world.troubles}\n  {self.texts}\n  {log}")

    def _feed(self, turn: int) -> None:
        """Lets the next files be there."""
        for name, waiting in self.hidden.items():
            while waiting and (turn >= TURNS or self.random.random() < 0.15):
                path, rows = waiting.pop(0)
                self.sources.put(name, path, rows)
            if turn >= TURNS or self._chance(0.3):
                self.sources.show(name)
        replaced = self.workload.replaced
        if replaced is not None and turn == TURNS // 2 and replaced in self.texts:
            self.texts[replaced] = OTHER_TEXT

    def _disturb_edges(self) -> None:
        """Has something happen to where rows come from, or to the checkpoint, perhaps."""
        troubles, name = self.edges, self.random.choice(STREAMS)
        if self._chance(troubles.folder_change):
            self.world.kill_all()
            self.world.note(f"the folder of {name} is {self.sources.change(name, self.random)}")
        if self._chance(troubles.folder_away):
            self.world.note(f"the folder of {name} is {self.sources.hide(name)}")
        if self.seen and self._chance(troubles.clock_step):  # the first batch has no other time to go by
            self.world.step_clock()
        if self._chance(troubles.restore):
            self.world.kill_all()
            if self.copies.newest is None or self._chance(0.3):
                self._copy()
            else:
                self._restore(self.copies.newest)

    def _copy(self) -> None:
        disk = self.world.disk
        with running_as(self.world.user):
            newest = max(CheckpointStore(self.world.uri).batch_ids(), default=None)
        if newest is None:
            return  # a copy of nothing continues nothing
        self.world.note(f"the checkpoint is copied with batch {newest}")
        self.copies.newest = Copy(dict(disk.seen), newest, dict(self.answers))

    def _restore(self, copy: Copy) -> None:
        """Puts a copy into the place of the checkpoint; what was done since is forgotten by all but sinks."""
        disk = self.world.disk
        for worker in self.world.workers:
            self.world.crash_worker(worker)
        self.world.note(f"the checkpoint is restored with batch {copy.batch}")
        disk.seen, disk.safe = dict(copy.content), dict(copy.content)
        disk.copies += self.random.choice([0, 1])
        self.seen, self.answers = {n: seen for n, seen in self.seen.items() if n <= copy.batch}, dict(copy.answers)
        self.copies.restored = True

    def _read_answers(self) -> None:
        """Takes the answers that have come."""
        with running_as(self.world.user):
            for number in self.asked.keys() - self.answers.keys():
                if self.files.exists(path_of(ANSWERS, number)):
                    self.answers[number] = json.loads(self.files.read(path_of(ANSWERS, number)))

    def _ask(self) -> None:
        if self.random.random() > 0.15:
            return
        known = set(self.seen[max(self.seen)].queries) if self.seen else set(self.texts)
        request = self.workload.draw_request(self.random, len(self.asked), known)
        with running_as(self.world.user):
            number = send(self.files, request)
        self.asked[number] = request
        self.world.note(f"asked: {request if 'routing' not in request else 'rebalance'}")

    def _proceed(self) -> None:
        """Gives some process the turn; starts one if there is none."""
        world = self.world
        for actor in world.actors:
            if actor.stopped_until is not None and actor.stopped_until <= world.simulation.now:
                world.go_on(actor)
        awake = [actor for actor in world.actors if actor.stopped_until is None]
        wanted = not awake or (not world.calm and len(world.actors) < 3 and self._chance(world.troubles.second_driver))
        if wanted:
            awake.append(world.spawn(self._program))
        actor = self.random.choice(awake)
        actor.proceed(self.random.choice([1, 3, 10, 30, 100, 300, 1000]))
        if actor.ended:
            self._note_end(actor)

    def _chance(self, chance: float) -> bool:
        return self.random.random() < chance

    def _note_end(self, actor: Actor) -> None:
        self.world.note(f"{actor.name} ends: {actor.failure or 'in order'}")
        self.world._forget(actor)
        failure = actor.failure
        if failure is None:
            return
        if not isinstance(failure, MidstreamError) or isinstance(failure, InternalError):
            raise self.failure(f"{type(failure).__name__}: {failure}") from failure
        # A driver that finds another one at work, or that was taken for dead, ends with an error.
        foreign = ("another driver", "is lost", "has been finished")
        born_calm = self.world.calm and actor.number > self.last_before_calm
        if born_calm and not any(words in str(failure) for words in foreign):
            raise self.failure(f"without any trouble: {failure}") from failure

    @property
    def last_before_calm(self) -> int:
        """The last driver that was started while things went wrong."""
        numbers = [int(line.split()[1].rpartition("-")[2]) for line in self._starts_before_calm()]
        return max(numbers, default=0)

    def _starts_before_calm(self) -> Iterator[str]:
        for line in self.world.log:
            if line.endswith(" calm"):
                return
            if " starts on " in line:
                yield line

    def _program(self, actor: Actor) -> None:
        """What a driver process runs."""
        session = self.opened(actor)
        session.start()
        self._observe()
        looks = 0
        while True:
            actor.keep_up()
            if self._backend(session).take(session._job):
                looks = 0
                self._observe()
                if not self.world.calm and actor.random.random() < 0.05:
                    break
            elif self._nothing_left():
                if actor.number in self.without_sinks:
                    break  # another program is to end the job, with its sinks
                session.finish()
                self._observe()
                self.finished = True
                break
            else:
                looks += 1
                self._idle(actor, looks)
        session.stop()

    @staticmethod
    def _idle(actor: Actor, looks: int) -> None:
        """Waits for rows, which others bring when it is their turn."""
        if looks % LOOKS:
            actor.sleep(1.0)
        else:
            actor.sleep(LONG_REST)
            actor.end_turn()

    def opened(self, actor: Actor) -> CheckpointSession:
        """A session as its program declares it."""
        backend: Callable[[Files], SimulatedBackend] = lambda files: SimulatedBackend(  # noqa: E731
            files, actor, self.world.workers, actor.random
        )
        session = CheckpointSession(
            checkpoint=self.world.uri,
            on=backend,
            slots=self.workload.slots if actor.random.random() < 0.3 or not self.seen else None,
            retained=self.workload.retained,
            retention=self.workload.retention or None,
        )
        for name in STREAMS:
            self.sources.declare(session, name, LATENESS)
        absent = bool(self.seen) and not self.world.calm and self._chance(self.edges.sinks_absent)
        if absent:
            self.without_sinks.add(actor.number)
        for name, cql in self.texts.items():
            if not session.was_dropped(name, self.workload.queries[name]) and not session.was_dropped(name, cql):
                self._declare(session, name, cql)
                if not absent:
                    session.sink(name, self._sink(name))
        return session

    def _declare(self, session: CheckpointSession, name: str, cql: str) -> None:
        old = self.workload.queries[name]
        try:
            session.query(name, cql, replace=cql != old, adaptive=self.workload.adaptive)
        except JobError as error:
            if not any(reason in str(error) for reason in REST_FIRST):
                raise
            session.query(name, old, adaptive=self.workload.adaptive)

    @staticmethod
    def _backend(session: CheckpointSession) -> SimulatedBackend:
        assert isinstance(session._backend, SimulatedBackend)
        return session._backend

    def _nothing_left(self) -> bool:
        if not self.world.calm or any(self.hidden.values()):
            return False
        with running_as(self.world.user):
            # One that was given up is answered, and stays until a batch can tell of it.
            return self.answers.keys() >= set(numbers_in(self.files, REQUESTS))

    def _sink(self, name: str) -> Sink:
        def fails() -> bool:
            return not self.world.calm and self._chance(self.edges.sink_failure)

        def write(results: pa.Table, batch_id: int) -> None:
            if fails():
                raise SinkFailure("the sink is away")
            self.delivered.setdefault((name, batch_id), []).append(results)

        if self.in_folder(name):
            return FlakyFolder(self.world.results_uri, fails, lambda: SinkFailure("the folder is away"))
        return write

    def in_folder(self, name: str) -> bool:
        """Whether a query's results go into a folder.

        If the checkpoint may be restored, only of those that are the same rows when their input comes again.
        """
        return self.workload.sink_folder and (not self.edges.restore or name in BY_ROWS)

    def _observe(self) -> None:
        """Keeps what the newest manifest says; of a batch that was seen before it must be the same."""
        with running_as(self.world.user):
            store = CheckpointStore(self.world.uri)
            manifest = store.latest()
            if manifest is None:
                return
            seen = seen_in(store.files, manifest)
        known = self.seen.setdefault(manifest.batch_id, seen)
        if known != seen:
            raise InternalError(f"there were two manifests of batch {manifest.batch_id}")


def seen_in(files: Files, manifest: Manifest) -> Seen:
    """What a manifest says."""
    return Seen(
        {
            name: frozenset(os.path.basename(file.path) for file in sources_of(files, manifest, name))
            for name in STREAMS
        },
        dict(manifest.streams.registers),
        {name: account.sharing for name, account in manifest.accounts.items()},
        {name: entry.cql for name, entry in manifest.queries.items()},
        list(manifest.asked.requests),
        {
            name: record["start_batch"]
            for name, account in manifest.accounts.items()
            for record in account.history
            if record.get("event") == "started"
        },
    )
