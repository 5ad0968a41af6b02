"""Applies rules to whole plans."""

from __future__ import annotations

from functools import lru_cache

from midstream.algebra.plan import Relation, rewrite_plan
from midstream.errors import InternalError
from midstream.optimizer.rules import NORMALIZING

ROUNDS = 100
"""Rules move things down or take them away, so they come to an end; a plan this deep is refused long before."""


@lru_cache(maxsize=64)
def normalize(plan: Relation) -> Relation:
    """The plan with every normalizing rule applied until nothing changes."""
    for _ in range(ROUNDS):
        changed = rewrite_plan(plan, _all_rules)
        if changed == plan:
            return plan
        plan = changed
    raise InternalError("the rules do not come to an end", detail=str(plan))


def _all_rules(node: Relation) -> Relation:
    for rule in NORMALIZING:
        node = rule(node)
    return node
