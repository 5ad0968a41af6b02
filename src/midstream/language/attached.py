"""Sub-queries as values: each is aggregated by what ties it to the query around it, and joined to that query's tuples.

A scalar sub-query is one value per combination of its correlated columns, EXISTS a count, IN a count of equal values
and one of all. An outer join brings them to every tuple; where there is none, a count is zero and anything else null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    conjuncts,
    substitute,
)
from midstream.algebra.plan import Aggregate, Join, JoinKind, Relation, holds_json
from midstream.algebra.types import BOOLEAN, INTEGER
from midstream.language.aggregates import Aggregates
from midstream.language.binding import Beyond
from midstream.language.dependent import (
    NOTHING,
    Environment,
    Tie,
    brought,
    dependent,
    rename,
    require_near,
    require_own,
)
from midstream.language.items import bind_items
from midstream.language.nested import extreme
from midstream.language.nodes import Node
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.subqueries import ClauseBinder, has_aggregate, has_over, has_unnest, is_plain
from midstream.language.windows import join_of, require_window

STRICT = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "negate"})
"""Functions that are null where an argument is."""

Brought = dict[str, Expression]
"""The values of aggregates that were joined."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A relation to join to the tuples; `columns` are those it brings."""

    relation: Relation
    on: Expression
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Inside:
    """The inside of a sub-query: its tuples, what it gives of each, and what ties it to the query around it."""

    relation: Relation
    outputs: Sequence[Expression]
    calls: list[NamedAggregate]
    ties: list[Tie]


@dataclass
class Attachments:
    """The sub-queries that the values of one clause hold, and the joins that bring them."""

    binder: ClauseBinder
    relation: Relation
    environment: Environment
    waiting: list[Attachment] = field(default_factory=list)
    known: dict[Node, Expression] = field(default_factory=dict)

    def value(self, around: ScalarBinder, node: exp.Subquery) -> Expression:
        """A scalar sub-query: its only value, null if there is none."""
        if node not in self.known:
            self.known[node] = self._value(around, node)
        return self.known[node]

    def _value(self, around: ScalarBinder, node: exp.Subquery) -> Expression:
        if (alone := _alone(node.this, self.binder.binding.catalog)) is not None:
            return around.bind(alone)
        inside = self._inside(around, node.this, aggregated=True)
        calls, output = inside.calls, self._output(inside, node)
        if not calls:
            calls = [NamedAggregate("only", borrow_aggregate("only_value", [output], (), False))]
            output = Column("only", output.type)
        return substitute(output, self._attach(around, inside, calls, node))

    def exists(self, around: ScalarBinder, node: exp.Exists) -> Expression:
        """Whether a sub-query has any tuple."""
        inside = self._inside(around, node.this)
        size = self._attach(around, inside, [_count("size")], node)["size"]
        return Call(">", (size, NOTHING), BOOLEAN)

    def contains(self, around: ScalarBinder, node: exp.In) -> Expression:
        """Whether a value is equal to one of a sub-query's; null if it is not, but could be."""
        inside, needle = self._inside(around, node.args["query"]), around.bind(node.this)
        tied = replace(inside, ties=[*inside.ties, (needle, self._output(inside, node), "=")])
        equal = self._attach(around, tied, [_count("equal")], node)["equal"]
        again = self._inside(around, node.args["query"])
        totals = [_count("size"), _count("known", again.outputs[0])]
        counted = self._attach(around, again, totals, node)
        return _unless(needle, counted, Call(">", (equal, NOTHING), BOOLEAN), False)

    def compares(self, around: ScalarBinder, node: Node, operator: str, every: bool) -> Expression:
        """Whether a comparison holds for any or for all values of a sub-query: for their least or greatest."""
        inside, subject = self._inside(around, node.expression.this.this), around.bind(node.this)
        value = self._output(inside, node)
        extremes = [NamedAggregate(e, extreme(e, value)) for e in ("min", "max")]
        found = self._attach(around, inside, [_count("size"), _count("known", value), *extremes], node)
        least, most = (around.call(operator, [subject, found[e]], [node, node], node) for e in ("min", "max"))
        if operator in ("=", "<>"):
            holds: Expression = Call("and" if every else "or", (least, most), BOOLEAN)
        else:
            holds = most if (operator in (">", ">=")) == every else least
        return _unless(subject, found, Call("not", (holds,), BOOLEAN) if every else holds, every)

    def _output(self, inside: Inside, node: Node) -> Expression:
        if len(inside.outputs) != 1:
            message = f"a sub-query gives {len(inside.outputs)} columns where one value stands"
            raise self.binder.binding.error(message, node, hint="select one column")
        return inside.outputs[0]

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
            on = conjunction([_tied(tie, over, attachment.columns) for tie in conjuncts(attachment.on)])
            relation = join_of(self.binder.binding, "a sub-query", relation, attachment.relation, on, kind)
        self.waiting = []
        return relation

    def put(self, left: Relation, right: Relation, node: Node) -> tuple[Relation, Relation]:
        """Two sides of a join with what its condition holds of sub-queries, each on the side that it names."""
        for attachment in self.waiting:
            named = columns_of(attachment.on) - attachment.columns
            if named <= set(right.schema.names):
                right = Join(right, attachment.relation, attachment.on, "left")
            elif named <= set(left.schema.names):
                left = Join(left, attachment.relation, attachment.on, "left")
            else:
                raise self.binder.binding.error("a sub-query in ON can name one side of the join only", node)
        self.waiting = []
        return left, right

    def _inside(self, around: ScalarBinder, query: Node, aggregated: bool = False) -> Inside:
        """A sub-query that only filters, or only aggregates, and is tied by equalities is joined as it is."""
        try:
            with self.binder.binding.attempt():
                plain = is_plain(query, self.binder.binding.catalog, aggregated)
                if plain and (found := self._plain(around, query.copy())) is not None:
                    return found
        except Beyond:
            pass
        bound = dependent(self.binder, query, around.scope, self.environment, self.relation)
        return Inside(bound.relation, bound.outputs, [], bound.ties)

    def _plain(self, around: ScalarBinder, query: Node) -> Inside | None:
        assert isinstance(query, exp.Select)
        binding, environment = self.binder.binding, self.environment.apart()
        inner, aggregates = Scope(binding, outer=around.scope), Aggregates(binding)
        relation = self.binder.tuples(query, inner, environment)
        relation, correlated = self.binder.where(query, relation, inner, environment, correlate=True)
        within = Attachments(self.binder, relation, environment)
        values = ScalarBinder(binding, inner, "SELECT", aggregates, within)
        outputs = [value for _, value in bind_items(values, query)]
        relation = within.joined(relation, lambda e: e)
        require_near(binding, correlated, relation, self.relation)
        ties = [_tie(condition, relation) for condition in correlated]
        calls = aggregates.calls
        read = [part for one in calls for part in (*one.call.args, one.call.where) if part is not None]
        own = {*relation.schema.names, *(one.name for one in calls)}
        outside = frozenset[str]().union(*map(columns_of, (*read, *outputs))) - own
        for one in calls:
            require_own(binding, one.call, outside, query)
        if None in ties or any(columns_of(value) & outside for value in (read if calls else outputs)):
            return None
        if calls:
            outputs = [aggregates.over_groups(value, values.places, outside) for value in outputs]
        return Inside(relation, outputs, list(calls), [tie for tie in ties if tie is not None])

    def _attach(self, around: ScalarBinder, inside: Inside, calls: list[NamedAggregate], node: Node) -> Brought:
        """Has the aggregates of a sub-query joined; the values of their columns."""
        binding = self.binder.binding
        require_window(binding, "a sub-query", inside.relation)
        alias = binding.alias("query", node)
        keys = [Named(f"key_{i}", inner) for i, (_, inner, _) in enumerate(inside.ties)]
        grouped = Aggregate(inside.relation, tuple(keys), tuple(calls))
        relation = rename(grouped, {name: f"{alias}.{name}" for name in grouped.schema.names})
        on: list[Expression] = []
        for key, (outer, _, word) in zip(keys, inside.ties, strict=True):
            sides = [outer, Column(f"{alias}.{key.name}", key.expression.type)]
            on.append(around.call(word, sides, [node, node], node))
        self.waiting.append(Attachment(relation, conjunction(on), frozenset(relation.schema.names)))
        binding.json |= {name for name in relation.schema.names if holds_json(relation, name)}
        return {call.name: brought(f"{alias}.{call.name}", call.call) for call in calls}


def _tie(condition: Expression, inside: Relation) -> Tie | None:
    """An equality of something around a sub-query with something in it, if it is one."""
    names = set(inside.schema.names)
    if isinstance(condition, Call) and condition.function == "=":
        for outer, inner in (condition.args, condition.args[::-1]):
            if columns_of(inner) <= names and not columns_of(outer) & names:
                return outer, inner, "="
    return None


def _alone(query: Node, catalog: Catalog) -> Node | None:
    """The value of `(SELECT value)`, which is that of the query around it."""
    clauses = ("from_", "where", "group", "having", "qualify", "distinct", "limit", "offset", "with_")
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in clauses) or len(query.expressions) > 1:
        return None
    item: Node = query.expressions[0]
    if isinstance(item, exp.Star) or has_unnest(item) or has_over(item) or has_aggregate(item, catalog):
        return None
    return item.this if isinstance(item, exp.Alias) else item


def _count(name: str, *arguments: Expression) -> NamedAggregate:
    return NamedAggregate(name, AggregateCall("count", arguments, INTEGER))


def _unless(subject: Expression, counted: Brought, exception: Expression, usually: bool) -> Expression:
    """What usually holds of a value and those of a sub-query: null if no exception is known, but one could be."""
    size, is_null = counted["size"], Call("is_null", (subject,), BOOLEAN)
    unknown = Call("or", (is_null, Call(">", (size, counted["known"]), BOOLEAN)), BOOLEAN)
    branches = (
        (Call("=", (size, NOTHING), BOOLEAN), Literal(usually, BOOLEAN)),
        (exception, Literal(not usually, BOOLEAN)),
        (unknown, Literal(None, BOOLEAN)),
    )
    return Case(branches, Literal(usually, BOOLEAN))


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
