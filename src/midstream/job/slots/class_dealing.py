"""Dealing the groups of all key classes to slots together, each class by its own table.

What a slot has to do is the sum over all classes, and a group of one class moves without those of others. So all groups
of all classes are dealt as one set of loads: a class whose groups cannot be dealt evenly is evened out by the others. A
class follows the table of what arrives until it is dealt another way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midstream.checkpoint.manifest import Manifest
from midstream.distribution.balancing import EVEN, balanced, skew
from midstream.distribution.fragments import ARRIVAL, Routing, Table, in_words, key_classes
from midstream.errors import JobError, MigrationError
from midstream.job.queries.running_query import RunningQuery
from midstream.job.slots.spreading import SpreadGroups


@dataclass(frozen=True, slots=True)
class ClassLoads:
    """How much the groups of each key class had to do lately: of what arrives first, then of exchanges."""

    by_class: Mapping[str, Sequence[float]]

    @staticmethod
    def of(manifest: Manifest | None) -> ClassLoads:
        """As a manifest has them; nothing before the first batch."""
        if manifest is None or not manifest.slots.loads:
            return ClassLoads({})
        exchanged = manifest.slots.class_loads
        arriving = np.asarray(manifest.slots.loads, float) - sum(np.asarray(loads) for loads in exchanged.values())
        return ClassLoads({ARRIVAL: np.maximum(arriving, 0.0).tolist(), **exchanged})

    def together(self, apart: Collection[str]) -> ClassLoads:
        """The same, where classes that are not dealt `apart` count with what arrives."""
        following = [np.asarray(loads) for name, loads in self.by_class.items() if name not in apart]
        rest = {name: loads for name, loads in self.by_class.items() if name in apart}
        return ClassLoads({ARRIVAL: sum(following).tolist(), **rest}) if following else self  # type: ignore[union-attr]

    def places(self, routing: Routing) -> list[int]:
        """The slots of all groups, class by class."""
        return [slot for name in self.by_class for slot in routing.table(name)]

    @property
    def loads(self) -> list[float]:
        """The loads of all groups, class by class."""
        return [load for loads in self.by_class.values() for load in loads]

    def skew(self, routing: Routing) -> float:
        """How many times the mean the fullest slot has."""
        return skew(self.places(routing), self.loads, routing.slots)

    def part_moved(self, old: Routing, new: Routing) -> float:
        """The part of all loads that changes its slot."""
        pairs = zip(self.loads, self.places(old), self.places(new), strict=True)
        return sum(load for load, here, there in pairs if here != there) / max(sum(self.loads), 1e-9)

    def dealt(self, routing: Routing, places: Sequence[int]) -> Routing:
        """The routing with all groups in other slots, class by class."""
        size = len(routing.groups)
        tables = {name: tuple(places[i * size : (i + 1) * size]) for i, name in enumerate(self.by_class)}
        groups = tables.pop(ARRIVAL, routing.groups)
        return replace(routing, groups=groups, apart=apart_from(groups, tables, routing.apart))


def apart_from(groups: Table, tables: Mapping[str, Table], known: Mapping[str, Table]) -> dict[str, Table]:
    """The tables of classes that are dealt apart: those that were before, and those that differ from `groups`."""
    return {**known, **{name: table for name, table in tables.items() if name in known or table != groups}}


def evened(routing: Routing, loads: ClassLoads, spread: SpreadGroups, only: str | None = None) -> Routing:
    """The groups dealt so that slots have alike to do, those of all classes or of one of them.

    Groups that slots share count where they are shared.
    """
    if not loads.by_class:
        return routing
    shared = [spread.shared_loads(routing, some, name) for name, some in loads.by_class.items()]
    own = [load for some, _, _ in shared for load in some]
    places, more = [slot for _, some, _ in shared for slot in some], [load for _, _, some in shared for load in some]
    size, fixed = len(routing.groups), set(range(len(own), len(own) + len(more)))
    for number, name in enumerate(loads.by_class):
        if only is not None and name != only:
            fixed.update(range(number * size, (number + 1) * size))
    found = balanced([*loads.places(routing), *places], [*own, *more], routing.slots, fixed, EVEN)
    return loads.dealt(routing, found[: len(own)])


def dealt_apart(query: RunningQuery, routing: Routing) -> list[str]:
    """Which key classes of a query are not dealt as rows arrive, in words."""
    found = []
    for name in (name for name in key_classes(query.staged) if name in routing.apart):
        table = routing.table(name)
        each = ", ".join(f"{table.count(slot)} in slot {slot}" for slot in range(routing.slots))
        found.append(f"Groups {in_words(name)} are dealt apart: {each}")
    return found


def class_named(name: str, queries: Iterable[RunningQuery]) -> str:
    """A key class by its name, or by one of its keys; refuses one that no exchange of a job has."""
    known = sorted({own for query in queries for own in key_classes(query.staged)})
    found = [own for own in known if name in own.split(" = ")]
    if name in known or len(found) == 1:
        return name if name in known else found[0]
    listed = "; ".join(found or known)
    raise JobError(
        f"several key classes have {name}" if found else f"nothing is exchanged by {name}",
        detail=f"the key classes of this job are {listed}" if listed else "no query has several stages",
        hint="explain shows by which keys rows are exchanged; rebalance() without a class deals all of them",
    )


def require_naming(protocol: str, name: str, usable: Collection[str]) -> None:
    """Refuses a protocol that sends rows to two slots for groups of a later stage."""
    if protocol not in usable:
        raise MigrationError(
            f"{protocol} cannot move groups by {name}: they are of a later stage",
            detail="rows are sent to two slots where streams arrive, not where stages exchange them",
            hint="use mslb, which names their state in another slot",
        )
