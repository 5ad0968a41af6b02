"""Sub-queries as values: each is aggregated by what ties it to the query around it, and joined to that query's tuples.

A scalar sub-query is one value per combination of its correlated columns, EXISTS a count, IN a count of equal values
and one of all. An outer join brings them to every tuple; where there is none, a count is zero and anything else null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from midstream.algebra.borrowed_aggregates import borrow_aggregate
from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Literal,
    Named,
    NamedAggregate,
    columns_of,
    conjunction,
    substitute,
    walk,
)
from midstream.algebra.over import OrderKey
from midstream.algebra.plan import Aggregate, Join, JoinKind, Project, Relation
from midstream.algebra.types import BOOLEAN, INTEGER
from midstream.language.aggregates import Aggregates
from midstream.language.limits import wanted_of
from midstream.language.nested import distinct
from midstream.language.nodes import Node
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.sources import Environment, rename
from midstream.language.subqueries import QueryBinder, has_aggregate, has_over, has_unnest, is_plain
from midstream.language.windows import require_window

STRICT = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "negate"})
"""Functions that are null where an argument is."""

NOTHING = Literal(0, INTEGER)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A relation to join to the tuples; `columns` are those it brings."""

    relation: Relation
    on: tuple[Expression, ...]
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Inside:
    """The inside of a sub-query: its tuples, what it gives of each, equalities with the query around it, other ties."""

    relation: Relation
    scope: Scope | None
    outputs: list[Expression]
    aggregates: Aggregates
    ties: list[tuple[Expression, Expression]]
    others: list[Expression]
    first: tuple[OrderKey, ...] | None = None
    """The order whose first row is meant, if only one is."""


@dataclass
class Attachments:
    """The sub-queries that the values of one clause hold, and the joins that bring them."""

    binder: QueryBinder
    select: exp.Select
    environment: Environment
    waiting: list[Attachment] = field(default_factory=list)

    def value(self, around: ScalarBinder, node: exp.Subquery) -> Expression:
        """A scalar sub-query: its only value, null if there is none."""
        if (alone := _alone(node.this, self.binder.binding.catalog)) is not None:
            return around.bind(alone)
        inside = self._inside(around, node.this, aggregated=True)
        if len(inside.outputs) != 1:
            raise self.binder.binding.error(
                f"a sub-query gives {len(inside.outputs)} columns where one value stands",
                node,
                hint="select one column",
            )
        calls, output = list(inside.aggregates.calls), inside.outputs[0]
        if not calls:
            name = "only_value" if inside.first is None else "first"
            calls = [NamedAggregate("only", borrow_aggregate(name, [output], inside.first or (), False))]
            output = Column("only", output.type)
        return substitute(output, self._attach(around, inside, calls, inside.ties, node))

    def exists(self, around: ScalarBinder, node: exp.Exists) -> Expression:
        """Whether a sub-query has any tuple."""
        inside = self._inside(around, node.this)
        size = self._attach(around, inside, [_count("size")], inside.ties, node)["size"]
        return Call(">", (size, NOTHING), BOOLEAN)

    def contains(self, around: ScalarBinder, node: exp.In) -> Expression:
        """Whether a value is equal to one of a sub-query's; null if it is not, but could be."""
        inside, needle = self._inside(around, node.args["query"]), around.bind(node.this)
        if len(inside.outputs) != 1:
            raise self.binder.binding.error(f"the sub-query of IN gives {len(inside.outputs)} columns", node)
        element = inside.outputs[0]
        equal = self._attach(around, inside, [_count("equal")], [*inside.ties, (needle, element)], node)["equal"]
        again = self._inside(around, node.args["query"])
        totals = [_count("size"), _count("known", again.outputs[0])]
        counted = self._attach(around, again, totals, again.ties, node)
        unknown = Call("or", (_is_null(needle), Call(">", (counted["size"], counted["known"]), BOOLEAN)), BOOLEAN)
        none = Call("=", (counted["size"], NOTHING), BOOLEAN)
        branches = (
            (Call(">", (equal, NOTHING), BOOLEAN), Literal(True, BOOLEAN)),
            (none, Literal(False, BOOLEAN)),
            (unknown, Literal(None, BOOLEAN)),
        )
        return Case(branches, Literal(False, BOOLEAN))

    def compares(self, around: ScalarBinder, node: Node, operator: str, every: bool) -> Expression:
        """Whether a comparison holds for any or for all values of a sub-query: for their least or greatest."""
        inside, subject = self._inside(around, node.expression.this.this), around.bind(node.this)
        if len(inside.outputs) != 1:
            raise self.binder.binding.error(
                f"the sub-query gives {len(inside.outputs)} columns", node, hint="select one"
            )
        value = inside.outputs[0]
        extremes = [NamedAggregate(e, AggregateCall(e, (value,), value.type)) for e in ("min", "max")]
        brought = self._attach(around, inside, [_count("size"), _count("known", value), *extremes], inside.ties, node)
        least, most = (around.call(operator, [subject, brought[e]], [node, node], node) for e in ("min", "max"))
        if operator in ("=", "<>"):
            holds: Expression = Call("and" if every else "or", (least, most), BOOLEAN)
        else:
            holds = most if (operator in (">", ">=")) == every else least
        decided = Call("not", (holds,), BOOLEAN) if every else holds
        unknown = Call("or", (_is_null(subject), Call(">", (brought["size"], brought["known"]), BOOLEAN)), BOOLEAN)
        branches = (
            (Call("=", (brought["size"], NOTHING), BOOLEAN), Literal(every, BOOLEAN)),
            (decided, Literal(not every, BOOLEAN)),
            (unknown, Literal(None, BOOLEAN)),
        )
        return Case(branches, Literal(every, BOOLEAN))

    def columns(self) -> frozenset[str]:
        """The columns that will be brought."""
        return frozenset(name for attachment in self.waiting for name in attachment.columns)

    def joined(self, relation: Relation, over: Callable[[Expression], Expression], *conditions: Expression) -> Relation:
        """The relation with what its clause holds of sub-queries; `over` says what the clause's columns are there.

        A condition that cannot be true of a null needs no outer join.
        """
        for attachment in self.waiting:
            needed = any(_rejects_null(condition, attachment.columns) for condition in conditions)
            kind: JoinKind = "inner" if needed else "left"
            on = conjunction([_tied(tie, over, attachment.columns) for tie in attachment.on])
            require_window(self.binder.binding, relation, "a sub-query")
            relation = Join(relation, attachment.relation, on, kind)
        self.waiting = []
        return relation

    def _inside(self, around: ScalarBinder, query: Node, aggregated: bool = False) -> Inside:
        binding, catalog = self.binder.binding, self.binder.binding.catalog
        scope = around.scope if around.scope.outer is None else replace(around.scope, outer=None)
        aggregates = Aggregates(binding)
        first = aggregated and _is_first(query)
        if first:
            query = query.copy()
            query.set("limit", None)
        if not is_plain(query, catalog, aggregated):
            with binding.inside(scope):
                bound = self.binder.query(query, self.environment)
            alias = binding.alias("query", query)
            bound = rename(bound, {name: f"{alias}.{name}" for name in bound.schema.names})
            return Inside(bound, None, [Column(f.name, f.type) for f in bound.schema], aggregates, [], [])
        assert isinstance(query, exp.Select)
        inner = Scope(binding, outer=scope)
        with binding.inside(scope):
            relation = self.binder.tuples(query, inner, self.environment)
            relation, correlated = self.binder.where(query, relation, inner, self.environment, correlate=True)
            within = Attachments(self.binder, query, self.environment)
            values = ScalarBinder(binding, inner, "SELECT", aggregates, within)
            items = self.binder.items(query, values)
            wanted = wanted_of(query, values, items, {})
            relation = within.joined(relation, lambda e: e)
        outputs = [value for _, value in items]
        if aggregates.calls:
            outputs = [aggregates.over_groups(value, values.places) for value in outputs]
        ties = [_tie(condition, relation) for condition in correlated]
        others = [c for c, tie in zip(correlated, ties, strict=True) if tie is None]
        order = wanted.order if first and not aggregates.calls else None
        return Inside(relation, inner, outputs, aggregates, [tie for tie in ties if tie is not None], others, order)

    def _attach(
        self,
        around: ScalarBinder,
        inside: Inside,
        calls: list[NamedAggregate],
        ties: list[tuple[Expression, Expression]],
        node: Node,
    ) -> dict[str, Expression]:
        """Has the aggregates of a sub-query joined; the values of their columns."""
        binding = self.binder.binding
        require_window(binding, inside.relation, "a sub-query")
        alias = binding.alias("query", node)
        read = [part for named in calls for part in (*named.call.args, named.call.where) if part is not None]
        relation, met = self._met(around, inside, [*read, *(inner for _, inner in ties)], alias, node)
        there: dict[str, Expression] = {column.name: to for column, to in met.items()}
        calls = [NamedAggregate(one.name, _substituted(one.call, there)) for one in calls]
        keys = [Named(f"key_{i}", substitute(inner, there)) for i, (_, inner) in enumerate(ties)]
        keys += [Named(f"met_{i}", column) for i, column in enumerate(met.values())]
        grouped = Aggregate(relation, tuple(keys), tuple(calls))
        relation = rename(grouped, {name: f"{alias}.{name}" for name in grouped.schema.names})
        on = []
        outsides = [*((outer, "=") for outer, _ in ties), *((column, "is_not_distinct_from") for column in met)]
        for key, (outer, word) in zip(keys, outsides, strict=True):
            sides = [outer, Column(f"{alias}.{key.name}", key.expression.type)]
            on.append(around.call(word, sides, [node, node], node))
        self.waiting.append(Attachment(relation, tuple(on), frozenset(relation.schema.names)))
        return {call.name: _brought(f"{alias}.{call.name}", call.call) for call in calls}

    def _met(
        self, around: ScalarBinder, inside: Inside, read: list[Expression], alias: str, node: Node
    ) -> tuple[Relation, dict[Column, Column]]:
        """The tuples of a sub-query with the values around it that they meet, where more than equalities tie them.

        The values are those of the columns that the sub-query names, each combination once; which column is where.
        """
        inner = set(inside.relation.schema.names)
        parts = (part for one in (*inside.others, *read) for part in walk(one))
        named = {part.name: part for part in parts if isinstance(part, Column) and part.name not in inner}
        if not named:
            return inside.relation, {}
        binding, again = self.binder.binding, Scope(self.binder.binding)
        outside = self.binder.tuples(self.select.copy(), again, self.environment)
        pairs = zip(around.scope.sources, again.sources, strict=False)
        columns = [zip(one.columns.values(), two.columns.values(), strict=True) for one, two in pairs]
        same = {here.name: there for both in columns for here, there in both}
        if not named.keys() <= same.keys():
            raise binding.error("a sub-query that is a value can only name columns of the query around it", node)
        require_window(binding, outside, "a sub-query")
        found = {c: Column(f"{alias}#met_{i}", c.type) for i, c in enumerate(named.values())}
        values = distinct(Project(outside, tuple(Named(to.name, same[c.name]) for c, to in found.items())))
        moved: dict[str, Expression] = {c.name: to for c, to in found.items()}
        on = conjunction([substitute(condition, moved) for condition in inside.others])
        return Join(values, inside.relation, on), found


def _substituted(call: AggregateCall, by_name: dict[str, Expression]) -> AggregateCall:
    where = None if call.where is None else substitute(call.where, by_name)
    return replace(call, args=tuple(substitute(a, by_name) for a in call.args), where=where)


def _tie(condition: Expression, inside: Relation) -> tuple[Expression, Expression] | None:
    """An equality of something around a sub-query with something in it, if it is one."""
    names = set(inside.schema.names)
    if isinstance(condition, Call) and condition.function == "=":
        for outer, inner in (condition.args, condition.args[::-1]):
            if columns_of(inner) <= names and not columns_of(outer) & names:
                return outer, inner
    return None


def _is_first(query: Node) -> bool:
    """Whether a sub-query gives the first row of an order."""
    limit = query.args.get("limit")
    written = isinstance(limit, exp.Literal) and limit.this == "1"
    return written and query.args.get("offset") is None and not query.args.get("ties")


def _alone(query: Node, catalog: Catalog) -> Node | None:
    """The value of `(SELECT value)`, which is that of the query around it."""
    clauses = ("from_", "where", "group", "having", "qualify", "distinct", "limit", "offset", "with_")
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in clauses) or len(query.expressions) > 1:
        return None
    item: Node = query.expressions[0]
    if isinstance(item, exp.Star) or has_unnest(item) or has_over(item) or has_aggregate(item, catalog):
        return None
    return item.this if isinstance(item, exp.Alias) else item


def _brought(name: str, call: AggregateCall) -> Expression:
    """An aggregate behind an outer join: of nothing, a count is zero."""
    column = Column(name, call.type)
    return Call("coalesce", (column, NOTHING), INTEGER) if call.function == "count" else column


def _count(name: str, *arguments: Expression) -> NamedAggregate:
    return NamedAggregate(name, AggregateCall("count", arguments, INTEGER))


def _is_null(value: Expression) -> Expression:
    return Call("is_null", (value,), BOOLEAN)


def _tied(tie: Expression, over: Callable[[Expression], Expression], brought: frozenset[str]) -> Expression:
    """An equality between the tuples and what is joined, with the tuples' part as it is where they are joined."""

    def change(part: Expression) -> Expression:
        return part if columns_of(part) <= brought and columns_of(part) else over(part)

    assert isinstance(tie, Call)
    return tie.with_arguments(tuple(change(part) for part in tie.args))


def _rejects_null(condition: Expression, columns: frozenset[str]) -> bool:
    """Whether a condition is never true where one of the columns is null."""
    if not (columns_of(condition) & columns):
        return False
    match condition:
        case Column(name):
            return name in columns
        case Cast(inner):
            return _rejects_null(inner, columns)
        case Call(function, args) if function in STRICT:
            return any(_rejects_null(a, columns) for a in args)
    return False
