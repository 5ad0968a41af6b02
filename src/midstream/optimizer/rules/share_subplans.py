"""Queries that compute the same thing can share it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from midstream.algebra.plan import Relation, Stream, Window, aliases, render, walk_plan


def share_subplans(plans: Sequence[Relation]) -> dict[str, tuple[tuple[int, Relation], ...]]:
    """The largest sub-plans that occur in several queries, or several times in one, up to the names of aliases.

    >>> from midstream.optimizer.rules.examples import example
    >>> first = example("SELECT DISTINCT k FROM A [RANGE 5] WHERE v > 3")
    >>> second = example("SELECT count(*) AS n FROM (SELECT DISTINCT x.k FROM A [RANGE 5] AS x WHERE x.v > 3) AS y")
    >>> for text, places in share_subplans([first, second]).items():
    ...     print(text, [number for number, _ in places], sep="\\n")
    Distinct
    └─ Project #1.k AS k
       └─ Select #1.v > 3
          └─ Window [RANGE 5]
             └─ Stream A AS #1
    [0, 1]
    """
    found: dict[str, list[tuple[int, Relation]]] = {}
    for number, plan in enumerate(plans):
        for node in walk_plan(plan):
            if not isinstance(node, Stream | Window):
                found.setdefault(anonymous(node), []).append((number, node))
    shared = {text: places for text, places in found.items() if len(places) > 1}
    return {text: tuple(places) for text, places in shared.items() if not _covered(text, places, shared)}


def anonymous(plan: Relation) -> str:
    """A plan's text with its aliases numbered in order of appearance."""
    text = re.sub(r"Stream (\w+)$", r"Stream \1 AS \1", render(plan), flags=re.M)
    for number, alias in enumerate(sorted(aliases(plan), key=text.find), start=1):
        text = re.sub(rf"(?<![\w.#]){re.escape(alias)}(?=\.)", f"#{number}", text)
        text = re.sub(rf"AS {re.escape(alias)}$", f"AS #{number}", text, flags=re.M)
    return text


def _covered(text: str, places: list[tuple[int, Relation]], shared: dict[str, list[tuple[int, Relation]]]) -> bool:
    """Whether every place lies within a larger shared sub-plan."""
    mine = {id(node) for _, node in places}
    for other, others in shared.items():
        if other != text:
            inside = {id(node) for _, whole in others for node in walk_plan(whole)}
            if mine <= inside:
                return True
    return False
