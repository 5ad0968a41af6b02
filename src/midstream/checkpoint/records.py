"""The parts of a job's state, as manifests have them: each a record of its own.

Every field has the value that a job begins with.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from midstream.checkpoint.file_entries import (
    DeadLetterFile,
    FileLog,
    MetricsFile,
    ResultFile,
    SourceFile,
    Superseded,
)
from midstream.checkpoint.query_windows import SharingRecord
from midstream.codec import RecordRow
from midstream.distribution.balancing import MEMORY
from midstream.distribution.fragments import Routing, SpreadGroup
from midstream.migration.history import Account

Name = TypeVar("Name", bound=Hashable)
Count = TypeVar("Count", int, float)
Value = TypeVar("Value")

History = Sequence[Mapping[str, Any]]
"""Events in the order in which they happened."""


def happened(what: str, batch: int, trigger: str) -> dict[str, Any]:
    """What a query's history says of something that came with a batch and changed no plan."""
    told = {"event": what, "status": what, "trigger": trigger, "start_batch": batch, "end_batch": batch}
    return {**told, "old_plan": "", "new_plan": "", "strategy": ""}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job is and how it runs.

    `declared` are the streams as they were declared, `arrival` the keys by which their rows go to slots, `homes` the
    slots of those that live at sites. A `finished` job takes in nothing
    more. `functions` are the fingerprints of users' functions, `retention` the limits of what is kept. `declared_links`
    are those between sites as the job's program declares them, `links` those that were changed while it ran: the two
    sites, the latency in seconds and the rate in bytes per second. `declared_slots` is the number of slots that the
    program declares; the job may have been asked for another one since. `costs` are by what trials have corrected the
    constants that plans are weighed by.
    """

    job: str | None = None
    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    arrival: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    scheduling: str = "dfs"
    finished: bool = False
    functions: Mapping[str, str] = field(default_factory=dict)
    retention: Mapping[str, str] = field(default_factory=dict)
    homes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    links: Sequence[Sequence[Any]] = field(default_factory=list)
    declared_links: Sequence[Sequence[Any]] = field(default_factory=list)
    declared_slots: int | None = None
    costs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamWait:
    """The stream that a query waits for: it is `behind` the query's other streams by so many ticks.

    None: it has had no rows at all. `batches` is for how many batches with rows of others it has had none.
    """

    stream: str
    behind: int | None
    batches: int


@dataclass(frozen=True, slots=True)
class Streams:
    """How far streams are, and what has come from them.

    `source_batch` is the number of the source's last batch, None if it is the manifest's own; `own_batches` came after
    it without rows. `registers`, `latest`, `rows`, `late` and `unusable` are by stream. `silent` says for how many
    batches streams have had no rows while others had, `waits` which stream each query waits for, `doubted` whose last
    rows lay beyond reach, `nulls` in which columns some row had no value, of those that were read. `files` were read of
    each folder that is a stream; `folders` are the ones that their paths start from,
    wherever links lead, or the names of sources that are no folders; how far these were read are their `positions`, by
    stream and partition, and how many rows waited there when they were last asked are the `lags`. `order` is the one in
    which Spark has the streams.
    """

    source_batch: int | None = None
    own_batches: int = 0
    registers: Mapping[str, int] = field(default_factory=dict)
    latest: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    unusable: Mapping[str, int] = field(default_factory=dict)
    silent: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, StreamWait] = field(default_factory=dict)
    doubted: Sequence[str] = ()
    nulls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, FileLog[SourceFile]] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)
    order: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class DoubledMove:
    """A move of partition groups whose rows go to two slots meanwhile: how they are dealt then, and since which batch.

    Answers go over to the new slots at `split_at`, or, without one, as marked rows end. `queries` are those that move
    in this way, with whether only their moving groups run twice or all of them. A move that is `over` ends before the
    next batch; one that was `cancelled`, for that reason, leaves the groups where they were.
    """

    target: Routing
    begun: int
    split_at: int | None = None
    queries: Mapping[str, str] = field(default_factory=dict)
    over: bool = False
    cancelled: str = ""


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots: the one of each partition group, how many there are, the groups' loads, the moves, the decisions.

    `deciding` is what those who decide about slots remember. `spread` are the groups that several slots are to share,
    `shared` those whose state lies in several slots, `merging` the key classes for which queries are cut so that slots
    can share the rows of a key. `doubled` is the move of groups whose rows go to two slots. Of classes of exchanges,
    `apart` are the routings of those that are not dealt as rows arrive, and `class_loads` the part of the groups' loads
    that each carries.
    """

    routing: Sequence[int] = ()
    count: int = 1
    loads: Sequence[float] = ()
    wanted: Routing | None = None
    moves: History = ()
    decisions: History = ()
    deciding: Mapping[str, Any] = field(default_factory=dict)
    spread: Sequence[SpreadGroup] = ()
    shared: Sequence[SpreadGroup] = ()
    merging: Mapping[str, Sequence[str]] = field(default_factory=dict)
    doubled: DoubledMove | None = None
    apart: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    class_loads: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[float, ...]:
        """How many rows each slot had lately: as they arrived, and as stages exchanged them.

        >>> Slots((0, 1), 2, loads=(3.0, 4.0), apart={"B.y": (1, 0)}, class_loads={"B.y": (1.0, 2.0)}).rows
        (4.0, 3.0)
        """
        found = [0.0] * self.count
        exchanged = [(self.apart.get(name, self.routing), loads) for name, loads in self.class_loads.items()]
        for group, load in enumerate(self.loads):
            found[self.routing[group]] += load - sum(loads[group] for _, loads in exchanged)
            for table, loads in exchanged:
                found[table[group]] += loads[group]
        return tuple(round(rows, 1) for rows in found)


def summed(counts: Iterable[tuple[Name, Count]]) -> dict[Name, Count]:
    """Counts by name, those of one name together.

    >>> summed([("A", 1), ("B", 2), ("A", 3)])
    {'A': 4, 'B': 2}
    """
    total: dict[Name, Count] = {}
    for name, count in counts:
        total[name] = total[name] + count if name in total else count
    return total


def grouped(pairs: Iterable[tuple[Name, Value]]) -> dict[Name, list[Value]]:
    """Values by name, in their order.

    >>> grouped([("A", 1), ("B", 2), ("A", 3)])
    {'A': [1, 3], 'B': [2]}
    """
    found: dict[Name, list[Value]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def remembered(loads: Sequence[float], now: Sequence[int] | npt.NDArray[np.int64]) -> list[float]:
    """The load of each group after one more batch: new rows count more than old ones.

    >>> remembered([10, 0], [0, 5])
    [8.0, 5.0]
    """
    before = np.asarray(loads or np.zeros(len(now)))
    return np.round(MEMORY * before + now, 1).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a query is in quarantine, and since which batch."""

    batch: int
    reason: str
    detail: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class SetAside:
    """How many rows were left out for a query because its expressions failed, and the batch of the last ones."""

    batch: int
    rows: int


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """A migration to a plan: what was decided, and how far it is.

    Both plans run in one box, or `apart`, each in slots of its own. `begun` is the batch that began it, None before;
    `done` says that every slot could finish.
    """

    plan: str
    strategy: str
    decision: Mapping[str, Any]
    trigger: str = "asked for"
    apart: bool = False
    begun: int | None = None
    done: bool = False
    account: Account | None = None

    @property
    def chosen(self) -> str:
        """The strategy that was decided for, if one was to be chosen."""
        return str(self.decision.get("strategy", self.strategy))

    @property
    def moves(self) -> bool:
        """Whether the state is moved between slots, before the batch that begins and ends the migration."""
        return self.apart and self.strategy == "moving_state"

    @property
    def replays(self) -> bool:
        """Whether what the old plan has kept goes through the new one, some of it before each batch."""
        return self.apart and self.strategy == "moving_state_paced"

    @property
    def splits(self) -> bool:
        """Whether both plans answer, the old one before an instant and the new one from it on."""
        return self.apart and not self.moves and not self.replays

    @property
    def split_at(self) -> int:
        """The instant from which on the new plan answers, where both run side by side."""
        return int(self.decision["split_after"]) + 1

    def record(
        self, old_plan: str, end_batch: int | None, status: str, account: Account | None = None
    ) -> dict[str, Any]:
        """What a query's history says of it; an account makes it complete."""
        return {
            **({} if account is None else account.record(self.decision, self.chosen)),
            "trigger": self.trigger,
            "old_plan": old_plan,
            "new_plan": self.plan,
            "strategy": self.chosen,
            "part": self.decision.get("part"),
            "start_batch": self.begun,
            "end_batch": end_batch,
            "status": status,
            **({"verified": self.decision["verified"]} if "verified" in self.decision else {}),
        }


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The plan that a slot runs by, and its migration to another."""

    plan: str
    migration: MigrationProgress | None = None


@dataclass(frozen=True, slots=True)
class PlansAtWork:
    """By which plans a query runs besides its own: the one that all slots go over to, or those of slots, by slot."""

    migration: MigrationProgress | None = None
    local: Mapping[int, SlotPlan] = field(default_factory=dict)

    @property
    def of_slots(self) -> dict[int, str]:
        """The plans of slots that run by another than the query's."""
        return {slot: own.plan for slot, own in self.local.items()}


@dataclass(frozen=True, slots=True)
class QueryAccount:
    """What a job remembers of a query.

    `identity` tells it from others that had its name, or have it in another checkpoint. `results` counts those
    that are released, `waiting` those that are computed and not released yet. `graph`
    is its plan for display, `sharing` what it shares with others, `knowledge` what its adaptivity has learnt, `mode`
    the adaptivity that was asked for while it ran. `added` is what it was added with, if it was added while the job
    ran. `plans` are those that it goes over to, and those of its slots. `verifying` is how far a copy of it is compared
    that has gone over to another plan. `removed` is what has gone of its results by retention: how many rows, and
    before which instant.
    """

    identity: str | None = None
    results: int = 0
    waiting: int = 0
    history: History = ()
    graph: Mapping[str, Any] | None = None
    sharing: SharingRecord | None = None
    knowledge: Mapping[str, Any] | None = None
    mode: str | None = None
    added: Mapping[str, Any] | None = None
    on_error: str | None = None
    fault: Fault | None = None
    set_aside: SetAside | None = None
    plans: PlansAtWork = PlansAtWork()
    verifying: Mapping[str, Any] | None = None
    removed: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files of results and dead letters, and the metrics table.

    `results` are by query, `superseded` the files whose
    content lies in larger ones by now, `given_up` those that were lost and are not waited for. `recent` are the newest
    rows of the metrics table, `metrics` the files with the others. `removed_dead_letters` are those that retention has
    removed.
    """

    results: Mapping[str, FileLog[ResultFile]] = field(default_factory=dict)
    dead_letters: FileLog[DeadLetterFile] = FileLog()
    superseded: Sequence[Superseded] = ()
    given_up: History = ()
    metrics: Sequence[MetricsFile] = ()
    recent: History = ()
    removed_dead_letters: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class StoredRequest(RecordRow):
    """What somebody asked of the job. A `batch` shows its effect, or says why it was `refused`.

    `about` are its fields that name something. One that the job has not accepted yet is known by its `id` alone.
    """

    id: str
    command: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    batch: int | None = None
    refused: str | None = None

    @property
    def status(self) -> str:
        """Whether it was only sent, waits for a batch, is done, or was refused."""
        if self.refused is not None:
            return "refused"
        return "done" if self.batch is not None else "waiting" if self.command else "sent"

    @property
    def text(self) -> str:
        """The command and what it is about, in one line."""
        return " ".join([self.command, *self.about.values()])


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of the running job: the last requests, and what has become of the texts that programs declare.

    `texts` has, by query, the declared text and the one that took its place, or None if the query was dropped.
    """

    requests: Sequence[StoredRequest] = ()
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
