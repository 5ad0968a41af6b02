"""What a migration is predicted to cost, in the unit of plans' costs.

Moving state computes what the new plan keeps and the old one does not: from what is there, the rows are probed once and
the results stored once. What both keep changes hands; if it is sorted by another key, it is stored again. Windows that
are kept at other sites pay for the links between.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.adaptation.window_moves import moving_seconds
from midstream.algebra.expressions import columns_of
from midstream.algebra.plan import Aggregate, Distinct, Join, MultiJoin, Relation, RowFunctions, aliases, walk_plan
from midstream.optimizer.estimates import Estimator

RESORTING = 0.3
"""What it costs to sort a kept row by another key, relative to storing it."""

Kept = tuple[frozenset[str], bool, bool]
"""What a state holds: of which streams, and whether duplicates are gone or groups are formed."""


def kept_by(plan: Relation) -> dict[Kept, tuple[Relation, frozenset[str]]]:
    """What a plan's operators keep, and by which columns they look it up."""
    found: dict[Kept, tuple[Relation, frozenset[str]]] = {}
    for node in walk_plan(plan):
        if isinstance(node, Join | MultiJoin | Distinct | Aggregate | RowFunctions):
            read = columns_of(node.on) if isinstance(node, Join | MultiJoin) else frozenset()
            for child in node.inputs:
                found.setdefault(_name(child), (child, read & frozenset(child.schema.names)))
    return found


def _name(relation: Relation) -> Kept:
    nodes = list(walk_plan(relation))
    distinct = any(isinstance(n, Distinct) for n in nodes)
    grouped = any(isinstance(n, Aggregate) for n in nodes)
    return aliases(relation), distinct, grouped


def migration_cost(old: Relation, new: Relation, estimator: Estimator) -> float:
    """The predicted cost of going from one plan to the other."""
    there = kept_by(old)
    constants = estimator.constants
    total = 0.0
    for name, (relation, key) in kept_by(new).items():
        held = estimator.flow(relation).population
        if name in there:
            total += 0.0 if there[name][1] == key else RESORTING * constants.insert * held
        else:
            read = sum(estimator.flow(child).population for child in _sources(relation))
            total += constants.probe * read + (constants.insert + constants.match) * held
    return total + constants.second * moving_seconds(old, new, estimator)


def _sources(relation: Relation) -> Iterator[Relation]:
    """What a result is computed from."""
    if isinstance(relation, Join | MultiJoin):
        yield from relation.inputs
    elif relation.inputs:
        yield from _sources(relation.inputs[0])
    else:
        yield relation
