"""Inner joins and selections of windows: what they hold, and how much less another of them holds.

Such a node holds the rows that windows have, joined under conditions. One over the same streams whose windows are as
much shorter each, and whose conditions are at least as strong, holds some of these rows, each for so much less time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.algebra.expressions import Call, Column, Expression, Literal, columns_of, walk
from midstream.algebra.implication import implies
from midstream.algebra.physical.base import Conjunction, PhysicalNode
from midstream.algebra.physical.identities import equal_classes
from midstream.algebra.physical.relational import Compute
from midstream.algebra.physical.sources import SourceNode
from midstream.algebra.windows import Range, Unbounded

TESTS = frozenset({"=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "in", "is_null", "is_not_distinct_from"})
"""What conditions consist of that fail for no row."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Windows by alias, which columns of them are equal, all other conditions, and columns that are constant."""

    windows: Mapping[str, SourceNode]
    equal: frozenset[str]
    conditions: tuple[Expression, ...]
    constants: Mapping[str, str]

    @staticmethod
    def of(node: PhysicalNode) -> Selection | None:
        """What a node holds; None if it is something else."""
        windows: dict[str, SourceNode] = {}
        pairs: list[tuple[str, str]] = []
        alike: set[str] = set()
        conditions: list[Expression] = []
        constants: dict[str, str] = {}
        stack = [node]
        while stack:
            top = stack.pop().stands_for
            if type(top) is SourceNode:
                windows[top.stream.alias] = top
            elif (joined := _conjunction(top, constants)) is None:
                return None
            else:
                both = [pair for condition in joined.conditions if (pair := _compared(condition))]
                pairs += [*joined.equal, *both]
                alike |= {" IS ".join(sorted(pair)) for pair in joined.alike}
                conditions += [condition for condition in joined.conditions if not _compared(condition)]
                stack += top.inputs
        return Selection(windows, frozenset([*equal_classes(pairs), *alike]), tuple(conditions), constants)

    @property
    def tests(self) -> tuple[Expression, ...]:
        """Those of its conditions that can be asked of rows that nobody has asked for them before."""
        return tuple(condition for condition in self.conditions if all(map(_is_test, walk(condition))))

    def sooner_than(self, other: Selection, names: frozenset[str]) -> int | None:
        """By how many ticks rows end sooner than those of another selection, which has columns of some `names`.

        None if its rows are not among the other's, or cannot be told from them.
        """
        if self.equal != other.equal or self.constants != other.constants:
            return None
        if not all(implies(self.conditions, its) for its in other.conditions):
            return None
        tests = self.tests
        # Of what was narrowed for the other one nobody has asked its tests: these will be asked in their place.
        if not all(implies(tests, its) for its in other.tests):
            return None
        asked = [condition for condition in self.conditions if not implies(other.conditions, condition)]
        if any(condition not in tests or not columns_of(condition) <= names for condition in asked):
            return None
        return self._shortened(other.windows)

    def _shortened(self, others: Mapping[str, SourceNode]) -> int | None:
        """By how many ticks all windows with an end are shorter, if they are so by the same number."""
        if self.windows.keys() != others.keys():
            return None
        found: set[int | None] = set()
        for alias, mine in self.windows.items():
            its = others[alias]
            if mine.stream.name != its.stream.name:
                return None
            if mine.window != its.window:
                ranges = isinstance(mine.window, Range) and isinstance(its.window, Range)
                found.add((its.longest or 0) - (mine.longest or 0) if ranges else None)
            elif not isinstance(mine.window, Unbounded):
                found.add(0)
        sooner = found.pop() if found else 0
        return None if found or sooner is None or sooner < 0 else sooner


def _conjunction(node: PhysicalNode, constants: dict[str, str]) -> Conjunction | None:
    """The conditions of a node; one that only adds columns of constants has none, and they are added to those known."""
    if node.conjunction is not None or not isinstance(node, Compute):
        return node.conjunction
    added = {c.name: str(c.expression) for c in node.columns if isinstance(c.expression, Literal)}
    constants |= added
    read = [(c.name, c.expression) for c in node.columns if c.name not in added]
    as_it_is = all(isinstance(value, Column) and value.name == name for name, value in read)
    return Conjunction() if as_it_is else None


def _compared(condition: Expression) -> tuple[str, str] | None:
    """The columns of two windows that are equal by a condition: joins may ask for it by their keys or beside them."""
    if not isinstance(condition, Call) or condition.function != "=":
        return None
    names = [part.name for part in condition.arguments if isinstance(part, Column)]
    if len(names) < 2 or names[0].partition(".")[0] == names[1].partition(".")[0]:
        return None
    return names[0], names[1]


def _is_test(part: Expression) -> bool:
    return isinstance(part, Column | Literal) or (isinstance(part, Call) and part.function in TESTS)
