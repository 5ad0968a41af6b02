"""What GROUP BY groups by: one list of keys, or several, whose results are united."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations, product
from typing import NoReturn

from sqlglot import exp

from midstream.language.nodes import Node

MOST_SETS = 64

Fail = Callable[[str], NoReturn]


def keys_of(node: Node) -> list[Node]:
    """The keys of one element: several if it is a list in parentheses."""
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def rollup(parts: Sequence[list[Node]]) -> list[list[Node]]:
    """All beginnings of a list, the whole first."""
    return [list(chain(*parts[:end])) for end in range(len(parts), -1, -1)]


def cube(parts: Sequence[list[Node]], fail: Fail) -> list[list[Node]]:
    """All selections of a list, the whole first."""
    if 2 ** len(parts) > MOST_SETS:
        fail(f"CUBE of {len(parts)} columns is more than {MOST_SETS} groupings")
    sizes = range(len(parts), -1, -1)
    return [list(chain(*chosen)) for size in sizes for chosen in combinations(parts, size)]


def grouping_sets(elements: Sequence[list[list[Node]]], fail: Fail) -> exp.Group:
    """The clause: its keys, and the sets of them if there are several."""
    if len(elements) == 1 or all(len(sets) == 1 for sets in elements):
        combined = elements[0] if len(elements) == 1 else [list(chain(*(sets[0] for sets in elements)))]
    else:
        combined = [list(chain(*chosen)) for chosen in product(*elements)]
    if len(combined) > MOST_SETS:
        fail(f"GROUP BY has more than {MOST_SETS} groupings")
    if len(combined) == 1:
        return exp.Group(expressions=combined[0])
    return exp.Group(expressions=[], sets=[exp.Tuple(expressions=[key.copy() for key in keys]) for keys in combined])
