"""Cost constants corrected by what rows took.

The cost model says how many rows an operator handles in which way, and the constants what each of them costs. Rows are
counted and operators are timed, so the constants can be held against a run, whatever the model had expected of it.

What operators took altogether is how many probes a second is worth. What each took beside the others says how the
other constants stand to each other. Those are fitted from what they are, by multiplication (Richardson 1972, Lucy
1974): each by the mean, over the rows that it is the price of, of how many times longer their operators took than was
said. So none becomes negative, and one whose rows did not come stays as it is. What was known counts as much as what
came: few plans tell all constants apart. Several trials count alike: what holds is the geometric mean of what they
found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from midstream.algebra.time import amount, plural
from midstream.errors import InputError

if TYPE_CHECKING:
    from midstream.optimizer.cost import Constants

TERMS = {"probe": "probed", "insert": "inserted", "match": "matched", "give": "given", "row": "rows"}
"""The constants that are fitted, each with the rows that it is the price of."""

LEAST_ROWS = 20_000
"""How many rows must have been handled: of fewer, what operators took is mostly what it takes to call them."""

ROUNDS, FARTHEST = 50, 10.0
"""How often constants are multiplied, and by which factor a trial changes one at most."""

Factors = Mapping[str, float]


def factors_of(wanted: Mapping[str, Any]) -> dict[str, float]:
    """The factors of constants by their names; refuses what is none."""
    for name, factor in wanted.items():
        if name not in (*TERMS, "second"):
            raise InputError(f"unknown cost {name!r:.80}", hint=f"the costs are {', '.join(TERMS)} and second")
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0.001 <= factor <= 1000:
            raise InputError(
                f"the cost of {name} cannot be {factor!r:.80} times what it was", hint="from 0.001 to 1000"
            )
    return {name: float(factor) for name, factor in wanted.items()}


@dataclass(frozen=True, slots=True)
class HandledRows:
    """How many rows an operator handled in which way, and the seconds that it took."""

    seconds: float
    probed: float = 0
    inserted: float = 0
    matched: float = 0
    given: float = 0
    rows: float = 0

    def units(self, prices: Factors) -> float:
        """What the rows cost by the prices of terms."""
        return sum(price * float(getattr(self, TERMS[name])) for name, price in prices.items())


def fitted(seen: Sequence[HandledRows], constants: Constants) -> dict[str, float] | None:
    """By what constants are to be multiplied so that they say what operators took; None if too little was seen.

    >>> from midstream.optimizer.cost import Constants
    >>> looks = [HandledRows(3.0, probed=10**6, inserted=10**6), HandledRows(9.0, inserted=9 * 10**6)]
    >>> {name: round(factor, 2) for name, factor in fitted(looks, Constants(second=1e6)).items()}
    {'probe': 1.16, 'insert': 0.96, 'match': 1.0, 'give': 1.0, 'row': 1.0, 'second': 0.92}
    """
    seen = [each for each in seen if each.seconds > 0]
    first = {name: getattr(constants, name) for name in TERMS}
    units, seconds = sum(each.units(first) for each in seen), sum(each.seconds for each in seen)
    if sum(each.probed + each.inserted + each.rows for each in seen) < LEAST_ROWS or not units:
        return None
    prices, second = dict(first), units / seconds
    share = units / len(TERMS)
    seen += [HandledRows(share / second, **{rows: share / first[name]}) for name, rows in TERMS.items()]
    for _ in range(ROUNDS):
        longer = [each.seconds * second / max(each.units(prices), 1e-12) for each in seen]
        for name, rows in TERMS.items():
            counts = [getattr(each, rows) for each in seen]
            if sum(counts):
                mean = sum(count * times for count, times in zip(counts, longer, strict=True)) / sum(counts)
                prices[name] *= mean
    found = {name: prices[name] / first[name] for name in TERMS} | {"second": second / constants.second}
    return {name: min(FARTHEST, max(1 / FARTHEST, factor)) for name, factor in found.items()}


def with_trial(known: Mapping[str, Any], found: Factors) -> dict[str, Any]:
    """What is known of a job's constants after one more trial, which was held against those that were known before.

    A trial without factors makes all of it forgotten.

    >>> with_trial(with_trial({}, {"probe": 2.0}), {"probe": 4.0})
    {'factors': {'probe': 4.0}, 'trials': 2}
    """
    if not found:
        return {}
    trials, before = known.get("trials", 0), known.get("factors", {})
    share = 1 / (trials + 1)
    return {
        "factors": {name: before.get(name, 1.0) * factor**share for name, factor in found.items()},
        "trials": trials + 1,
    }


def costs_text(known: Mapping[str, Any]) -> str:
    """In one line by what constants were corrected.

    >>> costs_text(with_trial({}, {"probe": 1.25, "second": 0.5}))
    'Cost constants, corrected by 1 trial: probe 1.25 times, second 0.5 times'
    """
    if not known:
        return "Cost constants: those of the cluster"
    factors = ", ".join(f"{name} {amount(factor)} times" for name, factor in known["factors"].items())
    return f"Cost constants, corrected by {plural(known['trials'], 'trial')}: {factors}"


def corrected(constants: Constants, known: Mapping[str, Any]) -> Constants:
    """The constants of a cluster as a job's trials have corrected them."""
    factors = known.get("factors", {})
    return replace(constants, **{name: getattr(constants, name) * factor for name, factor in factors.items()})
