"""A job as a value: the last manifest, the queries as they run, and what was asked for since.

Nothing here knows of files, clocks, threads or clusters. Only events (`events.py`) change it, each a copy of it: one
that is refused changes nothing. Whatever has happened, the next manifest restores the state that it was made from.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeVar

from midstream.adaptation.policy import Mode, Policy, mode_of, policy_of
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import is_rehearsal, lane_name
from midstream.checkpoint.packs import entries_in
from midstream.checkpoint.records import Settings
from midstream.distribution.fragments import ARRIVAL, Route, Routing
from midstream.distribution.move_legality import AUTO, DOUBLED, MSLB
from midstream.job.actions import Action
from midstream.job.batch import Batch
from midstream.job.circumstances import current_routing
from midstream.job.lanes import TO_OWN_PLAN
from midstream.job.migrations.verifying import Consequence, Verifications
from midstream.job.queries.declared import arrivals, require_same_job
from midstream.job.queries.faults import Faults
from midstream.job.queries.running_query import Cutting, RunningQuery
from midstream.job.slots.class_dealing import ClassLoads, class_named, evened, require_naming
from midstream.job.slots.doubled_moves import cancelled_move, require_protocol, require_rest
from midstream.job.slots.measuring import spread_hot
from midstream.job.slots.protocol_choice import cheapest_protocol
from midstream.job.slots.relocation import (
    ANOTHER_NUMBER,
    groups_moved,
    require_going_to,
    require_slots,
    rerouted,
)
from midstream.job.slots.sites import require_no_homes
from midstream.job.slots.spreading import SpreadGroups
from midstream.job.task.exchange import GROUP_BITS, bits_of, chosen_bits, default_routing, require_bits
from midstream.migration.corrections import corrections
from midstream.migration.protocol import Situation
from midstream.optimizer.plans import Plan

log = logging.getLogger(__name__)

Record = TypeVar("Record")

REPLACED_BY_REQUEST = (
    "query %s goes on with the text that it was given while the job ran, not with the one that is declared "
    "(midstream run --replace, or session.query(..., replace=True), puts that in its place)"
)

KEEPS_SLOTS = (
    "the job keeps %d slots, as it was asked to while it ran; slots = %d is what it began with "
    "(midstream rescale changes the number, and so does another one that is declared)"
)


@dataclass(slots=True)
class JobState:
    """A job between two batches.

    `routes` are the keys by which streams arrive. `group_bits` of a key's hash are its partition group, `wanted` the
    slots that groups are moved to before the next batch that can. Queries that were `added` by request are remembered
    with what they were, `texts` says what has become of declared ones, `modes` are the adaptivity that was asked for
    while the job ran. Queries that are `retiring` run with the next batch for the last time, because others take their
    places; `cancelled` migrations never began, and no manifest tells of them yet. `verifications` are of queries of
    which a copy migrates. Several slots are to share the groups that are `spread`.
    """

    slots: int
    manifest: Manifest | None = None
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)
    group_bits: int = GROUP_BITS
    wanted: Routing | None = None
    settings: Settings = field(default_factory=Settings)
    added: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    texts: dict[str, Sequence[str | None]] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)
    retiring: set[str] = field(default_factory=set)
    cancelled: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    verifications: Verifications = field(default_factory=Verifications)
    spread: SpreadGroups = field(default_factory=SpreadGroups)

    def after(self, event: Event) -> tuple[JobState, Actions]:
        """The state after an event, and what the job is to do; raises an error if the event is refused."""
        state = copied(self)
        return state, event.happen(state) or ()

    def is_calm(self, before: Manifest | None) -> bool:
        """Whether a batch goes on from a manifest as the last one ended: nothing begins, moves, is filled or idle."""
        return (
            before is not None
            and self.wanted is None
            and before.slots.doubled is None
            and not (self.spread.groups or before.slots.shared or self.faults.stopped or self.cancelled)
            and self.queries.keys() <= before.queries.keys()
            and not any(query.merging or not query.has_one_plan for query in self.queries.values())
            and not any(map(before.fills, self.queries))
        )

    def open(self, manifest: Manifest | None, uri: str, slots: int | None = None, bits: int | None = None) -> None:
        """Goes on from a manifest; another number of slots comes with a batch.

        The number that is declared is what a job begins with. What it was asked for since stays until another number is
        declared. `bits` of partition groups are chosen when a checkpoint is made, and ignored on an existing one.
        """
        self.manifest = manifest
        if manifest is None:
            self.group_bits = self.group_bits if bits is None else chosen_bits(bits)
            require_slots(self.slots, 2**self.group_bits)
            self.settings = replace(self.settings, declared_slots=slots)
            return
        now = current_routing(manifest, self.slots)
        self.slots, self.group_bits = now.slots, bits_of(len(now.groups))
        require_bits(bits, self.group_bits, uri)
        self.wanted = manifest.slots.wanted
        if slots is not None and slots == manifest.settings.declared_slots != self.wanted_slots:
            log.warning(KEEPS_SLOTS, self.wanted_slots, slots)
        elif slots is not None and slots != self.wanted_slots:
            require_slots(slots, 2**self.group_bits)
            living = {name: _route(None, home) for name, home in manifest.settings.homes.items()}
            require_no_homes(living, "go over to another number of slots")
            self.wanted = self._dealt_evenly(slots, ANOTHER_NUMBER)
        require_same_job(manifest, self.settings.job, uri)
        named = manifest.settings.job or self.settings.job
        self.settings = replace(manifest.settings, job=named, declared_slots=slots)
        homes = manifest.settings.homes
        self.routes = {name: _route(key, homes.get(name, ())) for name, key in manifest.settings.arrival.items()}
        known = manifest.accounts.items()
        self.modes = {name: mode_of(account.mode) for name, account in known if account.mode is not None}
        self.follow_requests(manifest)
        self.faults.follow(manifest)
        self._follow_spread(manifest)
        self.verifications.follow(manifest)

    def follow_requests(self, manifest: Manifest) -> None:
        """Knows the queries that were added and dropped as a manifest has them."""
        known = manifest.accounts.items()
        self.added = {name: account.added for name, account in known if account.added is not None}
        self.texts = dict(manifest.asked.texts)

    def current_text(self, name: str, declared: str) -> str | None:
        """What a text that is declared has become by request: another one, or None if the query was dropped."""
        was, now = self.texts.get(name, (None, None))
        return now if was == declared else declared

    def text_to_go_on_with(self, name: str, declared: str) -> str:
        """The text by which a query that is declared runs; says so if that is another one by request."""
        now = self.current_text(name, declared) or declared
        if now != declared:
            log.warning(REPLACED_BY_REQUEST, name)
        return now

    def leave_out(self, manifest: Manifest) -> None:
        """Goes on from the same manifest without some queries; what was asked for since stays."""
        gone = set() if self.manifest is None else self.manifest.queries.keys() - manifest.queries.keys()
        self.manifest = manifest
        self.added = {name: settings for name, settings in self.added.items() if name not in gone}
        self.texts |= {name: texts for name, texts in manifest.asked.texts.items() if name in gone}

    def forget_queries(self) -> None:
        """Forgets the queries that were planned, to plan them anew."""
        self.queries.clear()
        self.retiring.clear()
        self.routes = {name: route for name, route in self.routes.items() if route.slots}

    def drop(self, name: str) -> None:
        """Forgets a query."""
        self.verifications.forget(name, self.queries)
        del self.queries[name]
        self.added.pop(name, None)
        self.texts.pop(name, None)
        self.modes.pop(name, None)
        self.faults.forget(name)

    def replace_query(self, name: str, aside: str, manifest: Manifest, old: RunningQuery | None) -> None:
        """Makes way for another text: the query that ran retires under the name that the manifest has it by."""
        self.faults.rename(name, aside)
        self.manifest = manifest
        self.texts.pop(name, None)
        self.queries.pop(name, None)
        if old is not None:
            self.queries[aside] = old.called(aside)
            self.retiring.add(aside)

    def committed(self, manifest: Manifest, batch: Batch, verified: Mapping[str, Consequence]) -> None:
        """Goes on from the manifest of a batch, and forgets what that tells of."""
        self.manifest, self.settings = manifest, manifest.settings
        self._follow_migrations(manifest)
        self._retire(batch)
        self.slots, self.routes = batch.slots.count, dict(batch.incoming.routes)
        self.spread.traffic = [report.traffic for report in batch.reports]
        self.queries.update({name: query for name, query in batch.changes.recut.items() if name in self.queries})
        self.queries.update(
            {name: batch.queries[name].after_batch for name in batch.changes.arrived if name in self.queries}
        )
        if self.verifications.by_query:
            self.verifications.committed(manifest, self.queries, verified)
        for copy in [name for name in self.faults.stopped if is_rehearsal(name) and name not in self.queries]:
            self.faults.forget(copy)
        self.cancelled.clear()
        if self.wanted is not None and self.wanted.deals_as(self.routing):
            self.wanted = None
        self._follow_spread(manifest)
        self.faults.news.clear()
        self.faults.resuming.clear()

    def _follow_spread(self, manifest: Manifest) -> None:
        self.spread.groups = {group.name: group for group in manifest.slots.spread}

    def _retire(self, batch: Batch) -> None:
        """Forgets the queries that ran for the last time."""
        for name in self.retiring & (batch.queries.keys() | self.faults.stopped.keys()):
            self.queries.pop(name, None)
            self.faults.forget(name)
            self.retiring.discard(name)

    def _follow_migrations(self, manifest: Manifest) -> None:
        for name, query in self.queries.items():
            known, idle = manifest.account(name).plans, name in self.faults.stopped
            self.queries[name] = query.followed(known, manifest.slots.count, idle)

    def with_requested(self, manifest: Manifest) -> Manifest:
        """A manifest that remembers the queries that were added, and the adaptivity that was asked for."""
        if not (self.added or self.modes):
            return manifest
        known = manifest.accounts.items()
        accounts = {n: replace(a, added=self.added.get(n), mode=self.modes.get(n)) for n, a in known}
        return replace(manifest, accounts=accounts)

    def rebalance(
        self, routing: Sequence[int] | None, trigger: str, protocol: str = "mslb", key_class: str = ""
    ) -> None:
        """Deals groups to slots anew, of one key class or of all, beginning with the next batch that can."""
        require_no_homes(self.routes, "deal partition groups anew")
        if self.wanted is not None and self.wanted.slots != self.slots:
            require_going_to(self.wanted, self.slots)
        require_rest(self.manifest)
        if key_class:
            key_class = class_named(key_class, self.queries.values())
            require_naming(protocol, key_class, (AUTO, MSLB))
        elif routing is None:
            spread_hot(self.spread, self.routing, ClassLoads.of(self.manifest), self.queries, trigger)
        wanted = self._dealt(routing, protocol, key_class)
        if not wanted.deals_as(self.routing):
            protocol, reason = self._protocol(protocol, wanted, key_class)
            self.wanted = replace(wanted, trigger=trigger, protocol=protocol, reason=reason)

    def _dealt(self, routing: Sequence[int] | None, protocol: str, key_class: str) -> Routing:
        """Groups dealt as is asked for; those of other key classes stay as they are, or as they are to be."""
        now = self.routing if not key_class or self.wanted is None else self.wanted
        if routing is not None:
            return rerouted(now, routing, key_class)
        loads = ClassLoads.of(self.manifest)
        if protocol in DOUBLED:
            return evened(now, loads.together(now.apart), self.spread, only=ARRIVAL)
        return evened(now, loads, self.spread, only=key_class or None)

    def _protocol(self, protocol: str, wanted: Routing, key_class: str) -> tuple[str, str]:
        """The protocol that is asked for, or the cheapest, and why; groups of later stages move by MSLB alone."""
        if key_class and self.wanted is not None:
            return self.wanted.protocol, self.wanted.reason
        if protocol == AUTO and any(groups_moved(self.routing, wanted)):
            return MSLB, ""
        if protocol == AUTO:
            return cheapest_protocol(self.manifest, self.queries, self.routing, wanted)
        require_protocol(protocol, self.queries)
        return protocol, ""

    def cancel_move(self, trigger: str) -> None:
        """Leaves groups that move to two slots, or wait for other slots, where they were."""
        moving = self.manifest is not None and self.manifest.slots.doubled is not None
        waiting = self.wanted is not None and self.wanted.slots == self.slots
        if moving or not waiting:
            self.manifest = cancelled_move(self.manifest, self.queries, trigger)
        self.wanted = None if waiting else self.wanted

    def rescale(self, slots: int, trigger: str) -> None:
        """Deals groups to another number of slots, beginning with the next batch that can."""
        require_slots(slots, 2**self.group_bits)
        if self.wanted is not None and self.wanted.slots != self.slots:
            require_going_to(self.wanted, slots)
        elif slots != self.slots:
            require_no_homes(self.routes, "go over to another number of slots")
            self.wanted = self._dealt_evenly(slots, trigger)

    @property
    def wanted_slots(self) -> int:
        """The number of slots to which the job goes over, or which it has."""
        return self.slots if self.wanted is None else self.wanted.slots

    def _dealt_evenly(self, slots: int, trigger: str) -> Routing:
        return Routing(tuple(default_routing(slots, 2**self.group_bits)), slots, trigger)

    @property
    def routing(self) -> Routing:
        """How groups are dealt to slots now."""
        return current_routing(self.manifest, self.slots, self.group_bits)

    @property
    def loads(self) -> list[float]:
        """How much each group had to do lately; nothing before the first batch."""
        return [] if self.manifest is None else list(self.manifest.slots.loads)

    def policy_for(self, name: str, policy: Policy | None) -> Policy | None:
        """How a query adapts: as its program says, unless another mode was asked for while the job ran."""
        mode = self.modes.get(name)
        return policy if mode is None else policy_of(replace(policy or Policy(), mode=mode))

    def target(self, query: RunningQuery, plan: Plan) -> RunningQuery:
        """A query by another plan; streams arrive as they do."""
        cutting = Cutting(self.routes, True, self.group_bits, query.merging)
        target = RunningQuery.of(query.name, query.cql, plan, query.functions, cutting, query.emit_every)
        target.share = query.share
        return target

    def situation(self, query: RunningQuery) -> Situation:
        """Where a query stands, as migration strategies ask for it."""
        if self.manifest is None:
            return Situation(query.sources)
        latest, registers = self.manifest.streams.latest, self.manifest.streams.registers
        aliases = {source.stream.alias: source.stream.name for source in query.sources}
        lanes = (self.manifest.segments.get(lane_name(query.name, number), {}) for number in TO_OWN_PLAN)
        ends: dict[str, int] = {}
        for entry in (entry for stored in lanes for entry in entries_in(stored)):
            ends[entry.state] = max(ends.get(entry.state, BEGINNING), entry.latest_to)
        return Situation(
            query.sources,
            self.manifest.advanced_to.get(query.name, BEGINNING),
            {alias: latest[name] for alias, name in aliases.items() if name in latest},
            {alias: registers.get(name, BEGINNING) for alias, name in aliases.items()},
            max(ends.values(), default=BEGINNING),
            statistics=arrivals(self.manifest.outputs.recent, aliases),
            ends=ends,
            corrections=corrections(r for account in self.manifest.accounts.values() for r in account.history),
        )


Actions = tuple[Action, ...]


class Event(ABC):
    """Something that happens to a job; `events` has all that can."""

    __slots__ = ()

    @abstractmethod
    def happen(self, state: JobState) -> Actions | None:
        """Changes a state of its own, and gives what the job is to do; raises an error if it is refused."""


def copied(record: Record) -> Record:
    """A state, or a part of one, to be changed apart: its dictionaries and sets hold values, which are replaced."""
    kind: Any = type(record)
    parts: dict[str, Any] = {name: getattr(record, name) for name in _names(kind)}
    for name, part in parts.items():
        if isinstance(part, _CHANGED):
            parts[name] = part.copy()
        elif isinstance(part, _PARTS):
            parts[name] = copied(part)
    copy: Record = kind(**parts)
    return copy


_CHANGED, _PARTS = (dict, set), (Faults, Verifications, SpreadGroups)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _route(key: Any, home: Sequence[int] = ()) -> Route:
    return Route(None if key is None else tuple(key), slots=tuple(home))
