"""What tasks have to do in a batch, as values: fragments of plans, from which segments, up to which frontier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import UserFunction
from midstream.algebra.physical import SourceNode
from midstream.algebra.physical.routed import WindowName
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.checkpoint.query_windows import BySlot
from midstream.distribution.fragments import Fragment
from midstream.job.task.exchange import slots_of
from midstream.job.task.ingest import ticks_of
from midstream.job.task.lanes import Lane
from midstream.job.task.shipping import Shipped
from midstream.operators.elements import Elements, rows_without_columns
from midstream.operators.group_hash import group_hash
from midstream.operators.shared_graph import NodeNames
from midstream.operators.stateless import arrived
from midstream.optimizer.plans import Plan


@dataclass(frozen=True, slots=True)
class MigrationWork:
    """A migration of a fragment: what was decided, and whether this batch begins or finishes it."""

    strategy: str
    target: Fragment
    decision: Mapping[str, Any]
    begins: bool
    finishes: bool
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """What a fragment is, batch after batch: part of a query's plan, with the functions it calls."""

    fragment: Fragment
    plan: Plan
    functions: Mapping[str, UserFunction]


@dataclass(frozen=True, slots=True)
class Apart:
    """What a fragment does only where it runs apart from those of other queries.

    It may migrate, or be one of several lanes. Rows that make its expressions fail are set aside if it `sifts`.
    """

    migration: MigrationWork | None = None
    lane: Lane | None = None
    sifts: bool = False
    probed: Mapping[WindowName, BySlot] = field(default_factory=dict)
    """The windows of other fragments that its one-way joins read, as the last batch left them, by slot."""
    arrives: int | None = None
    """The port of the rows that it reads in place, to hand on what it gives within the slot."""

    @property
    def has_marks(self) -> bool:
        """Whether its rows know whether they have come before a move of groups."""
        return self.lane is not None and self.lane.marked

    @property
    def is_plain(self) -> bool:
        """Whether it is a plan's alone: no migration, no part of a query's groups or time, no windows of others."""
        return self.migration is None and self.lane is None and not self.probed


NOT_APART = Apart()


@dataclass(frozen=True, slots=True)
class FragmentWork:
    """What a fragment of a query has to do in a batch, in every slot.

    `restored_to` and `advance_to` are frontiers of this fragment; `segments` are those of each slot; `port` is the one
    its output travels by.
    """

    query: str
    program: Shipped[Program]
    restored_to: int
    advance_to: int
    segments: BySlot
    port: int
    received: Mapping[int, str]
    scheduling: str = "dfs"
    start: int = BEGINNING
    """The instant from which on the query's results are whole, and so given."""
    watched: bool = False
    """Whether what each operator does is to be reported."""
    silent: bool = False
    """Whether another query's fragment, which gives the same, sends it for both."""
    apart: Apart = NOT_APART
    local: Mapping[int, FragmentWork] = field(default_factory=dict)
    """What slots do instead that have a plan of their own."""

    @property
    def fragment(self) -> Fragment:
        """The part of the plan."""
        return self.program.value.fragment

    @property
    def plan(self) -> Plan:
        """The whole plan."""
        return self.program.value.plan

    @property
    def functions(self) -> Mapping[str, UserFunction]:
        """The functions that the plan calls."""
        return self.program.value.functions

    @property
    def name(self) -> tuple[str, int]:
        """What reports call it."""
        return self.query, self.fragment.number

    def counted(self, results: Elements) -> Elements:
        """What of its results counts."""
        if self.fragment.reader is not None:
            return results
        counted = results if self.apart.lane is None else self.apart.lane.counted(results)
        return counted if self.start == BEGINNING else counted.clipped(self.start, INFINITY)


@dataclass(frozen=True, slots=True)
class Member:
    """A fragment in a graph: the names of its nodes, since when its windows are kept, and whether it is new.

    A fragment without names has a graph of its own. Windows of no beginning are being filled: nobody else has them.
    """

    work: FragmentWork
    named: Shipped[NodeNames] | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    fresh: bool = False
    grid: Hop | None = None


@dataclass(frozen=True, slots=True)
class ArrivalFilter:
    """Which rows arrive in a slot: by the hash of columns and the owners of partition groups; without, all in one."""

    key: tuple[str, ...]
    owners: tuple[int, ...]

    def here(self, kept: Elements, slot: int) -> Elements:
        """The rows that arrive in a slot."""
        if not self.key:
            return kept if slot == 0 else kept.slice(0, 0)
        hashes = group_hash([kept.columns.column(name) for name in self.key])
        return kept.where(slots_of(hashes, self.owners) == slot)


@dataclass(frozen=True, slots=True)
class Derived:
    """What a source of a new query starts with: rows that a state of another query, `of`, keeps, in each slot.

    `columns` says where the state has the columns of the source, and `time` where it has the times of rows; without it
    rows begin to be valid at their times, which are then the only column that the state may lack.
    """

    query: str
    alias: str
    of: str
    columns: Mapping[str, str]
    segments: BySlot
    arrival: ArrivalFilter | None = None
    """Which rows of the segments a slot takes, if not all."""
    time: str | None = None

    def shaped(self, kept: Elements, source: SourceNode, slot: int) -> Elements:
        """Rows of the state as the source would have given them in a slot."""
        kept = kept if self.arrival is None else self.arrival.here(kept, slot)
        ticks = kept.valid_from
        if self.time is not None:
            ticks, _ = ticks_of(kept.columns.column(self.time), source.stream.name)
        time = pa.array(ticks).view(source.domain.output_type)
        arrays = [
            kept.columns.column(self.columns[f.name]) if f.name in self.columns else time.cast(f.type)
            for f in source.schema
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=source.schema) if arrays else rows_without_columns(len(kept))
        return arrived(rows, ticks, source.window)


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What a task has to do in a batch: a fragment, or those of several queries that are at the same frontier.

    In later stages the fragments may be behind it, each at its own.
    """

    members: tuple[Member, ...]
    restored_to: int
    advance_to: int
    scheduling: str = "dfs"
    derived: tuple[Derived, ...] = ()
    taken: frozenset[tuple[int, int]] = frozenset()
    """The inputs of new members, by node and port, whose states begin with segments of others."""

    @staticmethod
    def alone(work: FragmentWork) -> TaskWork:
        """The work of a fragment that has a graph of its own."""
        return TaskWork((Member(work),), work.restored_to, work.advance_to, work.scheduling)

    def in_slot(self, slot: int) -> TaskWork:
        """What a slot does, which may have a plan of its own."""
        local = self.first.local
        return TaskWork.alone(local[slot]) if slot in local else self

    @property
    def shares(self) -> bool:
        """Whether its nodes have names that others may have too."""
        return self.members[0].named is not None

    @property
    def first(self) -> FragmentWork:
        """The work of the first member."""
        return self.members[0].work

    @property
    def apart(self) -> Apart:
        """What it does only because it runs apart from other queries."""
        return self.first.apart

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """The fragments that it is of."""
        return tuple(member.work.name for member in self.members)

    @property
    def received(self) -> Mapping[int, str]:
        """What its members read of other fragments, by port."""
        return {port: alias for member in self.members for port, alias in member.work.received.items()}
