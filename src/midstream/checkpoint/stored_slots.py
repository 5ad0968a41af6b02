"""The slots of a stored job: how groups are dealt to them, which move, and how much state each keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import SpreadGroup


@dataclass(frozen=True, slots=True)
class GroupMove:
    """A change of slots: which groups went where, and why; `record` is all that was recorded of it."""

    batch: int
    trigger: str
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MovingGroups:
    """The move under way of groups whose rows go to two slots."""

    protocol: str
    groups: int
    since: int
    trigger: str


@dataclass(frozen=True, slots=True)
class KeyClassSlots:
    """A key class of exchanges: whether it is dealt apart, and its groups and the rows it had lately, by slot."""

    by: str
    apart: bool
    groups: tuple[int, ...]
    rows: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StoredSlots:
    """How partition groups are dealt to slots: `routing` is each group's slot, `loads` how many rows it had lately."""

    count: int
    routing: tuple[int, ...] = ()
    loads: tuple[float, ...] = ()
    bytes: tuple[int, ...] = ()
    """The state that each slot keeps."""
    moves: tuple[GroupMove, ...] = ()
    decisions: tuple[Mapping[str, Any], ...] = ()
    """What was decided about slots and groups, with forecast and reason, oldest first."""
    spread: tuple[SpreadGroup, ...] = ()
    """The groups that several slots share, or are to."""
    moving: MovingGroups | None = None
    key_classes: tuple[KeyClassSlots, ...] = ()
    rows: tuple[float, ...] = ()
    """How many rows each slot had lately: as they arrived, and as stages exchanged them."""


def stored_slots(manifest: Manifest) -> StoredSlots:
    """The slots as of a manifest."""
    known = manifest.slots
    held = [0] * known.count
    for stages in manifest.segments.values():
        for slot, entries in (item for slots in stages.values() for item in slots.items()):
            if slot < known.count:
                held[slot] += sum(entry.bytes for entry in entries)
    return StoredSlots(
        known.count,
        tuple(known.routing),
        tuple(known.loads),
        tuple(held),
        tuple(GroupMove(move["batch"], move["trigger"], dict(move)) for move in known.moves),
        tuple(dict(record) for record in known.decisions),
        tuple(known.spread),
        moving_groups(manifest),
        tuple(_key_classes(manifest)),
        known.rows,
    )


def moving_groups(manifest: Manifest) -> MovingGroups | None:
    """The move under way of groups whose rows go to two slots."""
    move = manifest.slots.doubled
    if move is None:
        return None
    changed = sum(old != new for old, new in zip(manifest.slots.routing, move.target.groups, strict=True))
    return MovingGroups(move.target.protocol, changed, move.begun, move.target.trigger)


def _key_classes(manifest: Manifest) -> Iterator[KeyClassSlots]:
    slots = manifest.slots
    for name in sorted({*slots.apart, *slots.class_loads}):
        table, loads = slots.apart.get(name, tuple(slots.routing)), slots.class_loads.get(name, ())
        rows, groups = [0.0] * slots.count, [0] * slots.count
        for group, slot in enumerate(table):
            groups[slot] += 1
            rows[slot] += loads[group] if loads else 0.0
        yield KeyClassSlots(name, name in slots.apart, tuple(groups), tuple(round(r, 1) for r in rows))
