"""Routed joins on simulated machines: real rows, real windows, messages over links that can lose them.

Each stream's home is a machine that runs a site and a member; one more machine takes the results. Rows, requests for
windows and repairs travel by channels; what two-phase migration says travels bare, because it bears losses itself. A
machine writes its state down after every step, so a crash costs time and nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from midstream.lab.papers.node_operator_sets import member as members
from midstream.lab.papers.node_operator_sets.calls import (
    Granted,
    LineReport,
    MemberEvent,
    MemberMessage,
    NewEpoch,
    Repair,
    Report,
    Request,
    Retired,
    Started,
)
from midstream.lab.papers.node_operator_sets.channel import Acknowledged, Channel, Envelope
from midstream.lab.papers.node_operator_sets.cost import Costs
from midstream.lab.papers.node_operator_sets.membership import Member
from midstream.lab.papers.node_operator_sets.modification import Setting
from midstream.lab.papers.node_operator_sets.probing import Prober
from midstream.lab.papers.node_operator_sets.site import Ask, Copy, Fetch, Parcel, Partial, Plans, Result, Rows, Site
from midstream.lab.papers.node_operator_sets.track import PREPARING, Drained, Full, Tick
from midstream.lab.papers.node_operator_sets.wire import from_json, to_json
from midstream.lab.simulated_cluster.machines import Disk, MachineStep
from midstream.operators.elements import Elements

FINISHED_EVERY = 4
"""After how many finished batches the results' machine tells the others."""

CONTROL_BYTES = 64.0
"""The size of a message without rows."""

SAFE = (Repair, Report, LineReport, Request, Granted, NewEpoch, Started, Retired)
"""Calls that travel by channel: a lost or repeated one could not be made up for."""


@dataclass(frozen=True, slots=True)
class Arrive:
    """The rows of a machine's stream in a batch; no row of this or a later batch of any stream is valid before."""

    batch: int
    rows: Elements
    frontier: int


@dataclass(frozen=True, slots=True)
class Finished:
    """All results of batches up to one are there."""

    batch: int


@dataclass
class Meter:
    """What a run has cost: messages and rows by kind, bytes of rows, seconds of probing and updating, all by moment."""

    messages: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    moments: list[tuple[float, str, float]] = field(default_factory=list)

    def note(self, now: float, kind: str, amount: float) -> None:
        """Adds an amount at a moment."""
        self.moments.append((now, kind, amount))


@dataclass
class Setup:
    """What all machines of a run share."""

    setting: Setting
    prober: Prober
    members: Mapping[str, Member]
    tick: float
    nested_loops: bool = False
    durable: bool = True
    row_bytes: Mapping[str, float] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    @property
    def costs(self) -> Costs:
        """What work and transmissions cost."""
        return self.setting.costs

    def size(self, parcel: Parcel) -> float:
        """The bytes of a message: by the declared sizes of rows, else by what its columns hold."""
        match parcel:
            case Rows(stream=stream, rows=rows):
                return CONTROL_BYTES + self._bytes((stream,), rows)
            case Partial(head=head, met=met, rows=rows):
                return CONTROL_BYTES + self._bytes((head, *met), rows)
            case Copy(stream=stream, rows=rows):
                return CONTROL_BYTES + self._bytes((stream,), rows)
            case Result(rows=rows) if rows is not None:
                return CONTROL_BYTES + self._bytes(self.setting.conditions.streams, rows)
        return CONTROL_BYTES

    def _bytes(self, streams: tuple[str, ...], rows: Elements) -> float:
        if self.row_bytes:
            return len(rows) * sum(self.row_bytes[s] for s in streams)
        return float(rows.columns.nbytes) + 16.0 * len(rows)


ROWS, COPIES, CONTROL = "rows", "copies", "control"


class Posting:
    """The sending and receiving side of a machine: a channel per lane, and bare messages.

    Rows, copies of windows and calls have lanes of their own, so that calls do not wait behind rows on a busy link.
    """

    def __init__(self, setup: Setup, disk: Disk) -> None:
        self.setup = setup
        self.channels = {lane: Channel(lane) for lane in (ROWS, COPIES, CONTROL)}
        for lane, stored in disk.get("channels", {}).items():
            self.channels[lane].restore(stored)

    def safely(self, step: MachineStep, to: str, content: Any) -> None:
        """Sends by channel."""
        size, lane = self.setup.size(content), CONTROL
        self.setup.meter.messages[type(content).__name__] += 1
        if isinstance(content, Rows | Partial | Copy):
            lane = COPIES if isinstance(content, Copy) else ROWS
            self.setup.meter.note(step.now, "bytes", size - CONTROL_BYTES)
            self.setup.meter.rows[type(content).__name__] += len(content.rows)
            self.setup.meter.note(step.now, "transmission", self.setup.costs.network.time(step.machine, to, size))
        elif isinstance(content, Result):
            lane = ROWS
        step.send(to, self.channels[lane].envelope(to, content), size, lane=lane)

    def bare(self, step: MachineStep, to: str, content: Any) -> None:
        """Sends once."""
        self.setup.meter.messages[type(content).__name__] += 1
        step.send(to, content, CONTROL_BYTES, lane=CONTROL)

    def again(self, step: MachineStep) -> None:
        """Repeats what may have been lost."""
        for lane, channel in self.channels.items():
            for to, envelope in channel.again():
                step.send(to, envelope, self.setup.size(envelope.content), lane=lane)

    def received(self, step: MachineStep, sender: str, message: Any) -> list[Any]:
        """What a message brings: by channel, when its turn has come; an answer brings nothing."""
        match message:
            case Envelope(lane=lane):
                contents, answer = self.channels[lane].received(sender, message)
                step.send(sender, answer, 0.0, lane=CONTROL)
                return contents
            case Acknowledged(lane=lane):
                self.channels[lane].acknowledged(sender, message)
                return []
        return [message]

    def write(self, step: MachineStep) -> None:
        """Writes the channels down."""
        step.write("channels", {lane: channel.stored() for lane, channel in self.channels.items()})


class RoutedNode:
    """The machine of one stream."""

    def __init__(self, name: str, setup: Setup, disk: Disk) -> None:
        self.setup, self.posting = setup, Posting(setup, disk)
        self.member: Member = setup.members[name]
        self.frontiers: dict[int, int] = {}
        self.started = 0
        self._written: Member | None = None
        stored = disk.get("member")
        if stored is not None:
            self.member = from_json(json.loads(stored))
        self.site = Site(name, self.member.stream, setup.prober, setup.costs.network, self._plans())
        if stored is None:
            self.site.begin()
        else:
            self.site.restore(disk["site"])
            self.frontiers, self.started = dict(disk["frontiers"]), disk["started"]

    def start(self, step: MachineStep) -> None:
        """Wakes up regularly from now on."""
        step.set_timer("tick", self.setup.tick)

    def wake(self, step: MachineStep, timer: str) -> None:
        """Time passes for the protocols; what may have been lost is sent again."""
        step.set_timer("tick", self.setup.tick)
        self.posting.again(step)
        self._control(step, Tick(step.now))
        self._write(step)

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes a message from a channel, a bare one, or one from outside."""
        for content in self.posting.received(step, sender, message):
            self._take(step, content)
        self._write(step)

    def _take(self, step: MachineStep, message: Any) -> None:
        match message:
            case Arrive(batch, rows, frontier):
                self.frontiers[batch] = frontier
                epoch = self.member.track.epoch
                if epoch > self.started:
                    self.started = epoch
                    self._control(step, Started(self.member.leader, self.member.stream, epoch, batch))
                self._send(step, self.site.arrive(batch, rows, epoch))
            case Finished(batch):
                known = [b for b in self.frontiers if b <= batch + 1]
                if known:
                    self.site.expire(self.frontiers[max(known)])
                self.frontiers = {b: f for b, f in self.frontiers.items() if b > batch}
            case Rows() | Partial() | Copy() | Ask() | Fetch():
                self._send(step, self.site.receive(message))
            case _:
                self._control(step, message)
        self._filled(step)

    def _control(self, step: MachineStep, event: MemberEvent) -> None:
        before = self.member.track
        if isinstance(event, Started) and event.to != self.member.node:
            self._post(step, (event,))
            return
        self.member, sent = members.step(self.member, event, self.setup.setting)
        self._post(step, sent)
        self.site.plans = self._plans()
        for change in set(self.member.track.ended) - set(before.ended):
            self.site.stop_feeding(change)
        if isinstance(event, Drained):
            move = self.member.track.move
            self.site.feeds = frozenset(f for f in self.site.feeds if move is not None and f[0] == move.change)
        self._filled(step)

    def _plans(self) -> Plans:
        track = self.member.track
        keepers = {epoch: share.keepers for epoch, share in track.shares.items()}
        return Plans(track.sets, keepers, self.member.retired, track.epoch)

    def _filled(self, step: MachineStep) -> None:
        """Asks for missing windows while a migration is prepared, and says when all are full."""
        move = self.member.track.move
        if move is None or move.phase != PREPARING:
            return
        self._send(step, self.site.ask(move.change, move.epoch))
        if self.site.full:
            self._control(step, Full(move.change))

    def _post(self, step: MachineStep, messages: tuple[MemberMessage, ...]) -> None:
        for message in messages:
            if isinstance(message, SAFE):
                self.posting.safely(step, message.to, message)
            else:
                self.posting.bare(step, message.to, message)

    def _send(self, step: MachineStep, parcels: list[Parcel]) -> None:
        for parcel in parcels:
            self.posting.safely(step, parcel.to, parcel)
        costs, work = self.setup.costs, self.site.work
        compared = work.pairs if self.setup.nested_loops else work.compared
        spent = compared * costs.probe + work.stored * costs.update
        if spent:
            self.setup.meter.note(step.now, "processing", spent)
            step.work(spent)
        work.clear()

    def _write(self, step: MachineStep) -> None:
        if not self.setup.durable:
            return
        track = self.member.track
        known = replace(self.member, track=replace(track, now=0.0))
        if known != self._written:
            # The clock alone is not worth writing down: the next tick brings it back.
            self._written = known
            step.write("member", json.dumps(to_json(self.member)))
        step.write("site", self.site.stored())
        self.posting.write(step)
        step.write("frontiers", dict(self.frontiers))
        step.write("started", self.started)


class ResultsNode:
    """The machine that asked the query: collects results, and sees when batches and old plans are finished."""

    def __init__(self, setup: Setup, disk: Disk) -> None:
        self.setup, self.posting = setup, Posting(setup, disk)
        streams = setup.setting.conditions.streams
        self.epochs: dict[str, dict[int, int]] = disk.get("epochs", {s: {} for s in streams})
        self.through: dict[str, int] = disk.get("through", dict.fromkeys(streams, -1))
        self.reported: tuple[int, int] = disk.get("told", (-1, 0))
        self.found: tuple[tuple[float, Elements], ...] = disk.get("found", ())

    def start(self, step: MachineStep) -> None:
        """Wakes up regularly from now on."""
        step.set_timer("tick", self.setup.tick)

    def wake(self, step: MachineStep, timer: str) -> None:
        """Repeats what may have been lost."""
        step.set_timer("tick", self.setup.tick)
        self.posting.again(step)
        self._write(step)

    def receive(self, step: MachineStep, sender: str, message: Any) -> None:
        """Takes results."""
        for content in self.posting.received(step, sender, message):
            self._take(step, content)
        self._write(step)

    def _take(self, step: MachineStep, result: Result) -> None:
        if result.rows is not None:
            self.found = (*self.found, (step.now, result.rows))
        epochs = self.epochs[result.head] = {**self.epochs[result.head], result.batch: result.epoch}
        while self.through[result.head] + 1 in epochs:
            self.through = {**self.through, result.head: self.through[result.head] + 1}
        finished = min(self.through.values())
        if finished < 0:
            return
        oldest = min(self.epochs[head][batch] for head, batch in self.through.items())
        batch, epoch = self.reported
        if finished >= batch + FINISHED_EVERY:
            batch = finished
            self._tell(step, Finished(finished))
        if oldest > epoch:
            epoch = oldest
            self._tell(step, Drained(oldest))
        self.reported = batch, epoch

    def _tell(self, step: MachineStep, content: Finished | Drained) -> None:
        for node in self.setup.costs.network.nodes:
            self.posting.safely(step, node, content)

    def _write(self, step: MachineStep) -> None:
        step.write("epochs", {head: dict(epochs) for head, epochs in self.epochs.items()})
        step.write("through", dict(self.through))
        step.write("told", self.reported)
        step.write("found", self.found)
        self.posting.write(step)
