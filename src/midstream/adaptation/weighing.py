"""Whether groups move or plans change first, where both have been decided after the same batch.

A plan that changes in one slot may take away the imbalance for which groups would move, groups that leave a slot may
take away what another plan would save there, and a plan that changes everywhere changes all loads. So what slots would
have to do is predicted with other plans, with moved groups and with both, over the horizon and with all costs, and the
order is taken in which the fullest slot and the average one together have least to do: batches wait for the fullest,
and all slots share the machine. What is put off is decided about again once the other change has shown.

Pure: decisions come in, an order comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from midstream.distribution.plan_texts import slots_text

Order = Literal["plan", "move", "both"]

Places = Sequence[Sequence[tuple[int, float]]]
"""The slots of each group, with the part of its load that each of them has."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A decided change of a query's plan, in one slot or in all (None).

    It leaves `ratio` of the query's load, and costs once what the query does in `price` seconds.
    """

    query: str
    slot: int | None
    ratio: float
    price: float

    def concerns(self, query: str, slot: int) -> bool:
        """Whether it changes what a slot does for a query."""
        return query == self.query and self.slot in (None, slot)

    def __str__(self) -> str:
        return f"query {self.query}" if self.slot is None else f"query {self.query} in {slots_text([self.slot])}"


@dataclass(frozen=True, slots=True)
class SlotChange:
    """A decided move of groups: where they will be, and what moving them costs, in seconds."""

    places: Places
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What decides besides loads.

    Changes are expected to last for `horizon` seconds; the second of two shows after `rest` seconds. Costs count
    `margin` times, as in either decision. `apart` says why both cannot begin at once; if they `exclude` each other, the
    second does not follow the first.
    """

    horizon: float
    rest: float
    margin: float = 1.5
    apart: str = ""
    exclude: bool = False


@dataclass(frozen=True, slots=True)
class Weighed:
    """The order of two changes, and why.

    `seconds` is what the fullest and the average slot are predicted to have to do together, by order, and `fullest`
    what the fullest slot then has to do per second.
    """

    order: Order
    seconds: Mapping[str, float]
    fullest: Mapping[str, float]
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        figures = {"seconds": self.seconds, "fullest": self.fullest}
        return {"order": self.order, **{k: {o: round(v, 6) for o, v in each.items()} for k, each in figures.items()}}


def weigh(
    places: Places,
    loads: Sequence[Mapping[str, float]],
    slots: int,
    plans: Sequence[PlanChange],
    move: SlotChange,
    terms: Terms,
) -> Weighed:
    """Weighs changes of plans against a move of groups that have these places, and loads by query.

    >>> places, loads = [[(0, 1.0)], [(0, 1.0)], [(1, 1.0)]], [{"q": 0.4}, {"q": 0.4}, {"q": 0.2}]
    >>> move = SlotChange([[(0, 1.0)], [(1, 1.0)], [(1, 1.0)]], price=1.0)
    >>> everywhere, here = PlanChange("q", None, 0.5, 1.0), PlanChange("q", 0, 0.25, 1.0)
    >>> weigh(places, loads, 2, [everywhere], move, Terms(100.0, 10.0)).order
    'both'
    >>> weigh(places, loads, 2, [here], move, Terms(100.0, 10.0)).order  # no imbalance is left
    'plan'
    >>> weigh(places, loads, 2, [PlanChange("q", 0, 0.9, 9.0)], move, Terms(100.0, 10.0)).order  # saves too little then
    'move'
    """
    phases = {
        "now": _in_slots(places, loads, slots),
        "plan": _in_slots(places, loads, slots, plans),
        "move": _in_slots(move.places, loads, slots),
        "both": _in_slots(move.places, loads, slots, plans),
    }
    each = {name: _weight(phase) for name, phase in phases.items()}
    moving = terms.margin * move.price * (1 + 1 / slots)
    before, after = (terms.margin * _weight(_paid(where, loads, slots, plans)) for where in (places, move.places))
    later = max(0.0, terms.horizon - terms.rest)
    seconds = {
        "plan": before + terms.horizon * each["plan"],
        "move": moving + terms.horizon * each["move"],
    }
    if not terms.exclude:
        seconds["plan"] = min(seconds["plan"], before + moving + terms.rest * each["plan"] + later * each["both"])
        seconds["move"] = min(seconds["move"], after + moving + terms.rest * each["move"] + later * each["both"])
        if not terms.apart:
            seconds["both"] = before + moving + terms.horizon * each["both"]
    fullest = {name: max(phase) for name, phase in phases.items()}
    order = _least(seconds)
    return Weighed(order, seconds, fullest, _reason(order, seconds, fullest, plans, terms))


def _in_slots(
    places: Places, loads: Sequence[Mapping[str, float]], slots: int, plans: Iterable[PlanChange] = ()
) -> list[float]:
    """What each slot has to do per second."""
    found = [0.0] * slots
    for where, by_query in zip(places, loads, strict=True):
        for slot, part in where:
            for query, load in by_query.items():
                left = next((plan.ratio for plan in plans if plan.concerns(query, slot)), 1.0)
                found[slot] += part * load * left
    return found


def _paid(places: Places, loads: Sequence[Mapping[str, float]], slots: int, plans: Sequence[PlanChange]) -> list[float]:
    """What the changes of plans cost each slot."""
    found = [0.0] * slots
    for where, by_query in zip(places, loads, strict=True):
        for slot, part in where:
            for query, load in by_query.items():
                found[slot] += part * load * sum(plan.price for plan in plans if plan.concerns(query, slot))
    return found


def _weight(loads: Sequence[float]) -> float:
    """What the fullest slot and the average one have to do together."""
    return max(loads) + sum(loads) / len(loads)


def _least(seconds: Mapping[str, float]) -> Order:
    """The order with least to do; of equal ones that which changes less at once."""
    orders: tuple[Order, ...] = ("plan", "move", "both")
    return min((order for order in orders if order in seconds), key=lambda order: seconds[order])


_CONCLUSIONS: dict[Order, str] = {
    "plan": "The plan changes first, and groups wait until that shows.",
    "move": "Groups move first, and the plan waits until that shows.",
    "both": "Both begin at once.",
}


def _reason(
    order: Order,
    seconds: Mapping[str, float],
    fullest: Mapping[str, float],
    plans: Sequence[PlanChange],
    terms: Terms,
) -> str:
    named = ", ".join(map(str, plans))
    totals = ", ".join(f"{_WAYS[name]} {value:.3g} s" for name, value in seconds.items())
    apart = f" They cannot begin at once: {terms.apart}." if terms.apart else ""
    return (
        f"Weighed together, another plan for {named} and the move: the fullest slot works {fullest['now']:.3g} s a "
        f"second, {fullest['plan']:.3g} s with the plan, {fullest['move']:.3g} s with the move and "
        f"{fullest['both']:.3g} s with both. In {terms.horizon:.3g} s, with all costs, it and the "
        f"average slot would have to do: {totals}.{apart} "
        f"{_CONCLUSIONS[order]}"
    )


_WAYS = {"plan": "plan first", "move": "move first", "both": "both at once"}
