"""Selections, projections, joins, duplicates, groups, set operations and the changes of a relation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from typing import Literal as OneOf

import pyarrow as pa

from midstream.algebra.expressions import AggregateCall, Column, Expression, Named, conjuncts
from midstream.algebra.over import NamedOver, over_label
from midstream.algebra.physical.base import Binary, Conjunction, OrderedRows, PhysicalNode, Unary
from midstream.algebra.physical.identities import joined_content
from midstream.algebra.plan import JoinKind, Match
from midstream.algebra.windows import ColumnOrder, Hop


@dataclass(frozen=True, slots=True)
class Filter(Unary):
    """Keeps elements for which the predicate is true, then the columns of the schema."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    predicate: Expression

    @property
    def label(self) -> str:
        return f"Filter {self.predicate}"

    @property
    def conjunction(self) -> Conjunction:
        return Conjunction(conditions=conjuncts(self.predicate))


@dataclass(frozen=True, slots=True)
class Compute(Unary):
    """Computes columns."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    columns: tuple[Named, ...]

    @property
    def label(self) -> str:
        return "Compute " + ", ".join(map(str, self.columns))

    @property
    def conjunction(self) -> Conjunction | None:
        only_leaves_out = all(isinstance(c.expression, Column) and c.expression.name == c.name for c in self.columns)
        return Conjunction() if only_leaves_out else None


@dataclass(frozen=True, slots=True)
class Unnest(Unary):
    """One element for each element of lists that are read side by side, then the columns of the schema."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    lists: tuple[Named, ...]

    @property
    def label(self) -> str:
        return "Unnest " + ", ".join(map(str, self.lists))


@dataclass(frozen=True, slots=True)
class Deduplicate(Unary):
    """One copy of each tuple per snapshot."""

    keeps_valid_input: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "Distinct"


@dataclass(frozen=True, slots=True)
class PartialDistinct(Deduplicate):
    """One copy of each tuple among what lies of it in one slot."""

    @property
    def label(self) -> str:
        return "Partial Distinct"

    @property
    def content(self) -> str:
        return Deduplicate(self.schema, self.input).content


@dataclass(frozen=True, slots=True)
class MergedDistinct(Deduplicate):
    """One copy of each tuple, of those that slots have; `whole` is the content of the node that it is."""

    whole: str

    @property
    def label(self) -> str:
        return "Merged Distinct"

    @property
    def content(self) -> str:
        return self.whole


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """An aggregate over plain columns of its input."""

    name: str
    call: AggregateCall
    columns: tuple[str, ...]
    where: str | None


def aggregate_label(node: GroupAggregate) -> str:
    """What an aggregate computes, in one line."""
    by = f" by {', '.join(node.keys)}" if node.keys else ""
    return f"Aggregate {', '.join(str(a.call) for a in node.aggregates)}{by}"


@dataclass(frozen=True, slots=True)
class GroupAggregate(Unary):
    """One tuple per group and piece of time."""

    waits_for_frontier: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    keys: tuple[str, ...]
    aggregates: tuple[AggregateColumn, ...]
    grid: Hop

    @property
    def label(self) -> str:
        return aggregate_label(self)


@dataclass(frozen=True, slots=True)
class PartialAggregate(GroupAggregate):
    """Aggregates of parts of groups: what lies of a group in one slot."""

    @property
    def label(self) -> str:
        return f"Partial {aggregate_label(self)}"


@dataclass(frozen=True, slots=True)
class MergedAggregate(GroupAggregate):
    """Aggregates of groups, merged from those of their parts; `whole` is the content of the aggregate that it is."""

    whole: str

    @property
    def label(self) -> str:
        return f"Merged {aggregate_label(self)}"

    @property
    def content(self) -> str:
        return self.whole


@dataclass(frozen=True, slots=True)
class OverColumn:
    """A function over the rows of a partition, of plain columns of its input."""

    over: NamedOver
    columns: tuple[str, ...]
    where: str | None


@dataclass(frozen=True, slots=True)
class OverPartition(Unary):
    """Every tuple of a piece of time, with functions of its partition; `ties` are columns that order what is equal."""

    waits_for_frontier: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    keys: tuple[str, ...]
    order: tuple[ColumnOrder, ...]
    ties: tuple[str, ...]
    columns: tuple[OverColumn, ...]
    grid: Hop

    @property
    def label(self) -> str:
        return (
            f"{over_label(tuple(c.over for c in self.columns), self.keys, self.order)}; ties by {', '.join(self.ties)}"
        )


@dataclass(frozen=True, slots=True)
class OverStream(OrderedRows):
    """Every tuple of a stream with functions of those of its partition up to it.

    If it is `running`, the values of a row follow from those of the row before, which stand for all rows before.
    """

    order: tuple[ColumnOrder, ...]
    ties: tuple[str, ...]
    columns: tuple[OverColumn, ...]
    running: bool

    @property
    def label(self) -> str:
        over = over_label(tuple(c.over for c in self.columns), self.partition_by, self.order)
        return f"{over} of a stream; ties by {', '.join(self.ties)}"

    @property
    def longest(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class MatchRows(OrderedRows):
    """The matches of a pattern."""

    match: Match

    @property
    def label(self) -> str:
        return self.match.label

    @property
    def longest(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class Concatenate(PhysicalNode):
    """All elements of all inputs."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    united: tuple[PhysicalNode, ...]

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return self.united

    @property
    def label(self) -> str:
        return "Union"


@dataclass(frozen=True, slots=True)
class SetOperation(Binary):
    """EXCEPT ALL or INTERSECT ALL."""

    waits_for_frontier: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    kind: OneOf["difference", "intersect"]
    grid: Hop

    @property
    def label(self) -> str:
        return self.kind.title()


@dataclass(frozen=True, slots=True)
class Changes(Unary):
    """ISTREAM or DSTREAM; or KEEP, which gives nothing and keeps its input for queries to come."""

    waits_for_frontier: ClassVar[bool] = True

    kind: OneOf["istream", "dstream", "keep"]

    @property
    def label(self) -> str:
        return self.kind.upper()

    @property
    def longest(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class HashJoin(Binary):
    """A symmetric inner join by equal keys and a residual condition."""

    keeps_intervals: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    nulls_equal: bool
    residual: Expression | None

    @property
    def label(self) -> str:
        return f"Join{condition_label(self.left_key, self.right_key, self.residual)}"

    @property
    def conjunction(self) -> Conjunction:
        keys = tuple(zip(self.left_key, self.right_key, strict=True))
        rest = conjuncts(self.residual)
        return Conjunction((), keys, rest) if self.nulls_equal else Conjunction(keys, (), rest)

    @property
    def content(self) -> str:
        return joined_content(self)

    @property
    def longest(self) -> int | None:
        spans = [s for s in (self.left.longest, self.right.longest) if s is not None]
        return min(spans, default=None)


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One probe on a route: the input met, the key on both sides, what to check, and the columns kept."""

    target: int
    key: tuple[str, ...]
    target_key: tuple[str, ...]
    nulls_equal: bool
    residual: Expression | None
    gathered: pa.Schema


@dataclass(frozen=True, slots=True)
class MultiwayJoin(PhysicalNode):
    """An inner join of many inputs by probe routes, without intermediate state."""

    keeps_intervals: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    joined: tuple[PhysicalNode, ...]
    routes: tuple[tuple[ProbeStep, ...], ...]
    condition: Expression

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return self.joined

    @property
    def label(self) -> str:
        def show(i: int) -> str:
            return f"{i}: {' '.join(str(step.target) for step in self.routes[i])}"

        return f"MultiwayJoin on {self.condition} probing {', '.join(map(show, range(len(self.routes))))}"

    @property
    def conjunction(self) -> Conjunction:
        return Conjunction(conditions=conjuncts(self.condition))

    @property
    def content(self) -> str:
        return joined_content(self)

    @property
    def longest(self) -> int | None:
        spans = [s for s in (child.longest for child in self.joined) if s is not None]
        return min(spans, default=None)


@dataclass(frozen=True, slots=True)
class OuterJoin(Binary):
    """A join that looks at absence: outer, anti, or semi with more than equal keys."""

    waits_for_frontier: ClassVar[bool] = True
    keeps_valid_input: ClassVar[bool] = True

    kind: JoinKind
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    nulls_equal: bool
    residual: Expression | None
    grid: Hop

    @property
    def label(self) -> str:
        nulls = " with nulls" if self.nulls_equal else ""
        return f"{self.kind.title()}Join{condition_label(self.left_key, self.right_key, self.residual)}{nulls}"


def condition_label(left: tuple[str, ...], right: tuple[str, ...], residual: Expression | None) -> str:
    """What joined elements must fulfil, as a label says it."""
    parts = [f"{a} = {b}" for a, b in zip(left, right, strict=True)]
    if residual is not None:
        parts.append(str(residual))
    return f" on {' and '.join(parts)}" if parts else " (cross)"
