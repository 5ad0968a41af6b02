"""Physical plans: what will run, as values. Every choice is made, nothing is alive yet.

Keys are plain columns here (expressions are computed below), columns that nobody reads are gone, and every node can
say what it holds: `content` is the canonical text of the sub-query it computes, equal for plans that compute the same
thing in another order. States are named by the content of the input they keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar
from typing import Literal as OneOf

import pyarrow as pa

from midstream.algebra.expressions import AggregateCall, Expression, Named, conjuncts
from midstream.algebra.partition import Partition
from midstream.algebra.plan import JoinKind, SequenceMode, Stream, TimeOrder
from midstream.algebra.time import TimeDomain
from midstream.algebra.windows import Hop, Range, Unbounded, WindowSpec


@dataclass(frozen=True, slots=True)
class PhysicalNode:
    """A node of a physical plan.

    What others must know of an operator are properties that its node states here: nobody lists the kinds of nodes.
    """

    schema: pa.Schema

    stateful: ClassVar[bool] = True
    """Whether its operator remembers anything between two batches."""
    keeps_intervals: ClassVar[bool] = False
    """Whether it only intersects intervals, so that its results have one form in every plan."""
    waits_for_frontier: ClassVar[bool] = False
    """Whether its answers wait for a frontier."""
    keeps_valid_input: ClassVar[bool] = False
    """Whether it remembers its input for as long as that is valid."""
    outlives_windows: ClassVar[bool] = False
    """Whether it remembers tuples for longer than the windows of their streams say."""

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        """The nodes that feed this one."""
        return ()

    @property
    def label(self) -> str:
        """What the node does, in one line."""
        raise NotImplementedError

    @property
    def stands_for(self) -> PhysicalNode:
        """The node whose output this is: itself, unless it only brings what another gives elsewhere."""
        return self

    @property
    def content(self) -> str:
        """What the node's output is, whatever plan computes it."""
        return f"{self.label}({'; '.join(child.content for child in self.inputs)}){_names(self.schema)}"

    @property
    def longest(self) -> int | None:
        """The longest validity of its elements; None if there is no bound."""
        spans = [child.longest for child in self.inputs]
        return None if None in spans else max((s for s in spans if s is not None), default=1)

    @property
    def domain(self) -> TimeDomain:
        """What its ticks mean."""
        return self.inputs[0].domain

    def __str__(self) -> str:
        return render_physical(self)


@dataclass(frozen=True, slots=True)
class Unary(PhysicalNode):
    """A node with one input."""

    input: PhysicalNode

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Binary(PhysicalNode):
    """A node with two inputs."""

    left: PhysicalNode
    right: PhysicalNode

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Source(PhysicalNode):
    """The columns of a stream that the query needs, valid as its window says; one tick long without a window.

    Time windows belong to the source, not to the box above it: they remember nothing, and what crosses into a box is
    then an element whose whole validity is known.
    """

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    stream: Stream
    window: WindowSpec | None = None
    partition: Partition | None = field(default=None, kw_only=True, compare=False, repr=False)
    """By what its rows are dealt to slots, where states are sorted by partition group."""

    @property
    def label(self) -> str:
        shown = "" if self.stream.alias == self.stream.name else f" AS {self.stream.alias}"
        window = "" if self.window is None else f" {self.window.show(self.domain)}"
        return f"Source {self.stream.name}{window}{shown}"

    @property
    def longest(self) -> int | None:
        return longest_validity(self.window)

    @property
    def domain(self) -> TimeDomain:
        return self.stream.domain


def longest_validity(window: WindowSpec | None) -> int | None:
    """The longest validity a window gives to a tuple; None if there is no bound."""
    match window:
        case Range(size):
            return size + 1
        case Hop(size, slide):
            return size + slide
        case Unbounded():
            return None
    return 1


@dataclass(frozen=True, slots=True)
class AssignWindow(Unary):
    """Sets the validity of the instants of a sub-query."""

    stateful: ClassVar[bool] = False
    outlives_windows: ClassVar[bool] = True

    spec: WindowSpec

    @property
    def label(self) -> str:
        return f"Window {self.spec.show(self.domain)}"

    @property
    def longest(self) -> int | None:
        return longest_validity(self.spec)


@dataclass(frozen=True, slots=True)
class RowWindow(Unary):
    """Sets validity by successors."""

    waits_for_frontier: ClassVar[bool] = True
    outlives_windows: ClassVar[bool] = True

    count: int
    partition_by: tuple[str, ...]
    grid: Hop

    @property
    def label(self) -> str:
        by = f"PARTITION BY {', '.join(self.partition_by)} " if self.partition_by else ""
        return f"RowWindow [{by}ROWS {self.count}] every {self.grid.slide}"

    @property
    def longest(self) -> int | None:
        return self.grid.slide


@dataclass(frozen=True, slots=True)
class Instants(Unary):
    """One element per instant of its input; at a hop's boundaries only, if there is one."""

    waits_for_frontier: ClassVar[bool] = True

    boundaries: Hop | None

    @property
    def label(self) -> str:
        return "Instants" if self.boundaries is None else f"Instants every {self.boundaries.slide}"

    @property
    def longest(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class Filter(Unary):
    """Keeps elements for which the predicate is true, then the columns of the schema."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    predicate: Expression

    @property
    def label(self) -> str:
        return f"Filter {self.predicate}"


@dataclass(frozen=True, slots=True)
class Compute(Unary):
    """Computes columns."""

    stateful: ClassVar[bool] = False
    keeps_intervals: ClassVar[bool] = True

    columns: tuple[Named, ...]

    @property
    def label(self) -> str:
        return "Compute " + ", ".join(map(str, self.columns))


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
        return f"Join{_condition(self.left_key, self.right_key, self.residual)}"

    @property
    def content(self) -> str:
        return _joined_content(self)

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
    def content(self) -> str:
        return _joined_content(self)

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
        return f"{self.kind.title()}Join{_condition(self.left_key, self.right_key, self.residual)}"


@dataclass(frozen=True, slots=True)
class Deduplicate(Unary):
    """One copy of each tuple per snapshot."""

    keeps_valid_input: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "Distinct"


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """An aggregate over plain columns of its input."""

    name: str
    call: AggregateCall
    columns: tuple[str, ...]
    where: str | None


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
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"Aggregate {', '.join(str(a.call) for a in self.aggregates)}{by}"


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
    """ISTREAM or DSTREAM."""

    waits_for_frontier: ClassVar[bool] = True

    kind: OneOf["istream", "dstream"]

    @property
    def label(self) -> str:
        return self.kind.upper()

    @property
    def longest(self) -> int | None:
        return 1


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns that say at which row of a stream an element happens.

    They are the number of the stream (null: no row that matters), the stream's own columns, and `copy`: which of
    several equal rows it is, or null where nobody has counted yet. `branch` tells several readers of a stream apart.
    """

    prefix: str
    width: int

    @property
    def branch(self) -> str:
        """The number of the reader of the stream."""
        return f"{self.prefix} branch"

    @property
    def copy(self) -> str:
        """The number among equal rows."""
        return f"{self.prefix} copy"

    @property
    def values(self) -> tuple[str, ...]:
        """The number of the stream and the values of its row."""
        return (f"{self.prefix} stream", *(f"{self.prefix} {i}" for i in range(self.width)))

    @property
    def of_branch(self) -> tuple[str, ...]:
        """What equal rows of a branch have in common."""
        return (*self.values, self.branch)

    @property
    def of_row(self) -> tuple[str, ...]:
        """What only one row of a stream has."""
        return (*self.values, self.copy)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order in which they break ties."""
        return (self.branch, *self.values, self.copy)


@dataclass(frozen=True, slots=True)
class FollowedBy(Binary):
    """A sequence: each right element with left ones at or before it, or with the next one after it.

    `identity` names the columns by which the two sides know their rows, if a stream is on both; `numbers` those by
    which other sequences know the rows at which this one's results happen.
    """

    waits_for_frontier: ClassVar[bool] = True
    outlives_windows: ClassVar[bool] = True

    mode: SequenceMode
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    within: int | None
    condition: Expression | None
    outer: bool
    order: TimeOrder = "<="
    identity: tuple[RowColumns, RowColumns] | None = None
    numbers: tuple[RowColumns, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether right elements wait for later left ones."""
        return self.order in (">=", ">")

    @property
    def label(self) -> str:
        reach = "" if self.within is None else f" within {self.within}"
        order = "" if self.order == "<=" else f" first {self.order} second"
        return f"Sequence {self.mode}{order}{_condition(self.left_key, self.right_key, self.condition)}{reach}"

    @property
    def longest(self) -> int | None:
        return 1


def walk_physical(plan: PhysicalNode) -> Iterator[PhysicalNode]:
    """The node and everything below it, parents first."""
    yield plan
    for child in plan.inputs:
        yield from walk_physical(child)


def render_physical(plan: PhysicalNode, annotate: Callable[[PhysicalNode], str] = lambda _: "") -> str:
    """The plan as an indented tree."""
    lines: list[str] = []

    def draw(node: PhysicalNode, lead: str, below: str) -> None:
        note = annotate(node)
        lines.append(lead + node.label + (f"  {note}" if note else ""))
        for i, child in enumerate(node.inputs):
            last = i == len(node.inputs) - 1
            draw(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    draw(plan, "", "")
    return "\n".join(lines)


def _joined_content(node: PhysicalNode) -> str:
    """Inner joins of the same inputs under the same conditions hold the same, in whatever order they join."""
    leaves: list[str] = []
    equal: list[tuple[str, str]] = []
    others: set[str] = set()
    stack: list[PhysicalNode] = [node]
    while stack:
        top = stack.pop().stands_for
        match top:
            case HashJoin(nulls_equal=False):
                stack += [top.left, top.right]
                equal += zip(top.left_key, top.right_key, strict=True)
                _sort_out(conjuncts(top.residual), equal, others)
            case HashJoin():
                stack += [top.left, top.right]
                others |= {_alike(a, b) for a, b in zip(top.left_key, top.right_key, strict=True)}
                _sort_out(conjuncts(top.residual), equal, others)
            case MultiwayJoin():
                stack += top.joined
                _sort_out(conjuncts(top.condition), equal, others)
            case _:
                leaves.append(top.content)
    conditions = sorted([*_equal_classes(equal), *others])
    return f"join({'; '.join(sorted(leaves))} | {' and '.join(conditions)}){_names(node.schema)}"


def condition_texts(
    equal: Iterable[tuple[str, str]], alike: Iterable[tuple[str, str]], conditions: Iterable[Expression]
) -> list[str]:
    """Conditions as sorted texts that do not depend on which of equal columns are compared.

    `equal` are pairs of columns whose values must be equal, `alike` those of which both may also be null.
    """
    pairs, others = list(equal), {_alike(a, b) for a, b in alike}
    _sort_out(tuple(conditions), pairs, others)
    return sorted([*_equal_classes(pairs), *others])


def _sort_out(conditions: tuple[Expression, ...], equal: list[tuple[str, str]], others: set[str]) -> None:
    for condition in conditions:
        arguments = [str(a) for a in condition.arguments]
        match getattr(condition, "function", None):
            case "=":
                equal.append((arguments[0], arguments[1]))
            case "is_not_distinct_from":
                others.add(_alike(arguments[0], arguments[1]))
            case _:
                others.add(str(condition))


def _alike(a: str, b: str) -> str:
    return " IS ".join(sorted((a.removeprefix("#"), b.removeprefix("#"))))


def _equal_classes(pairs: list[tuple[str, str]]) -> list[str]:
    """Which terms are all equal: plans may compare different pairs of them and yet hold the same."""
    classes: list[set[str]] = []
    for pair in pairs:
        both = {term.removeprefix("#") for term in pair}
        touching = [c for c in classes if c & both]
        classes = [c for c in classes if not c & both]
        classes.append(both.union(*touching))
    return [" = ".join(sorted(c)) for c in classes]


def _condition(left: tuple[str, ...], right: tuple[str, ...], residual: Expression | None) -> str:
    parts = [f"{a} = {b}" for a, b in zip(left, right, strict=True)]
    if residual is not None:
        parts.append(str(residual))
    return f" on {' and '.join(parts)}" if parts else " (cross)"


def _names(schema: pa.Schema) -> str:
    return "[" + ", ".join(sorted(schema.names)) + "]"
