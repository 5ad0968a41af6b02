"""The ports by which fragments send what they give to others: queries whose fragments give the same use one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from midstream.distribution.fragments import Fragment
from midstream.job.queries.sharing_plan import SharingPlan

Place = tuple[str, int]
"""A fragment of a plan at work: the plan's name in this batch, and the fragment's number."""


@dataclass(slots=True)
class Ports:
    """The port of each fragment that is read by another, and those for which another's fragment sends."""

    numbers: dict[Place, int] = field(default_factory=dict)
    silent: set[Place] = field(default_factory=set)

    @staticmethod
    def of(fragments: Sequence[tuple[str, Fragment]], sharing: SharingPlan) -> Ports:
        """The ports of the plans at work; what was there before sends, so that a new query has nothing to add."""
        ports, known, used = Ports(), dict[object, int](), set[object]()
        by_plan = {name: sharing.exchanged(name) for name, _ in fragments}
        for name, fragment in sorted(fragments, key=lambda pair: sharing.is_fresh(pair[0])):
            if fragment.reader is None:
                continue
            place = (name, fragment.number)
            key = by_plan[name].get(fragment.number, place)
            if (name, key) in used:  # a plan that has the same twice reads it by two ports
                key = place
            used.add((name, key))
            if key in known:
                ports.silent.add(place)
            ports.numbers[place] = known.setdefault(key, len(known))
        return ports
