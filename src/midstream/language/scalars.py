"""Values: a syntax tree becomes a typed expression, every implicit cast written out.

A binder belongs to one clause of one SELECT: it knows what names mean there, and whether aggregates may occur.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.borrowed import BORROWED, HOLD_JSON, borrow, json_type
from midstream.algebra.borrowed_functions import OVERLOADS
from midstream.algebra.declarations import ARRIVAL
from midstream.algebra.expressions import Call, Case, Expression, Literal, columns_of
from midstream.algebra.functions import CALCULATED, COMPARED, READS_LITERALS, ROW_COMPARISONS, SCALAR, require_condition
from midstream.algebra.plan import Relation
from midstream.algebra.types import BOOLEAN, is_instant, is_nested, is_number, mixed_type, plain, show_type
from midstream.errors import QueryError
from midstream.language import literals
from midstream.language.aggregates import Aggregates
from midstream.language.binding import Beyond, Binding, nearest
from midstream.language.calls import bind_call
from midstream.language.casting import bind_cast
from midstream.language.comparisons import fields_of, list_compared, nested_compared, rows_compared
from midstream.language.grammar import DEEPEST
from midstream.language.lambdas import bind_lambda, is_lambda
from midstream.language.literals import coerce
from midstream.language.nodes import Node, all_of, bounds_of, column_named, counting, flatten, is_known, place
from midstream.language.operator_tables import OPERATORS
from midstream.language.over import Overs
from midstream.language.scope import Scope
from midstream.language.unnesting import Unnests


class SubqueryValues(Protocol):
    """Makes values of sub-queries, for clauses that can hold any."""

    def value(self, around: ScalarBinder, node: exp.Subquery) -> Expression:
        """The value of a scalar sub-query."""

    def exists(self, around: ScalarBinder, node: exp.Exists) -> Expression:
        """The truth of EXISTS."""

    def contains(self, around: ScalarBinder, node: exp.In) -> Expression:
        """The truth of IN."""

    def compares(self, around: ScalarBinder, node: Node, operator: str, every: bool) -> Expression:
        """The truth of a comparison with any or all values."""

    def put(self, left: Relation, right: Relation, node: Node) -> tuple[Relation, Relation]:
        """The two sides of a join with the values that its condition holds."""


@dataclass(eq=False)
class ScalarBinder:
    """Binds the values of one clause."""

    binding: Binding
    scope: Scope
    clause: str
    aggregates: Aggregates | None = None
    subqueries: SubqueryValues | None = None
    overs: Overs | None = None
    unnests: Unnests | None = None
    below: SubqueryValues | None = None
    shorthands: dict[str, Node] = field(default_factory=dict)
    given: dict[str, Expression] = field(default_factory=dict)
    places: dict[str, int | None] = field(default_factory=dict)
    _depth: int = 0

    def bind(self, node: Node) -> Expression:
        """The meaning of a value."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.binding.error(f"the expression nests deeper than {DEEPEST} levels", node)
        bound = self._bind(node)
        self._depth -= 1
        return bound

    def condition(self, node: Node, clause: str = "") -> Expression:
        """The meaning of a condition."""
        bound = self.bind(node)
        with self.binding.at(node):
            require_condition(bound.type, clause or self.clause)
        return coerce(bound, BOOLEAN)

    def call(self, function: str, arguments: list[Expression], nodes: list[Node], node: Node) -> Call:
        """A built-in function, its arguments cast to what it takes."""
        if function == "-" and json_type(self.binding.marked(arguments[0])):
            function = "json_without"
        if function in BORROWED:
            return self.borrowed(function, arguments, node)
        if function in COMPARED and any(is_nested(a.type) for a in arguments):
            return nested_compared(self, function, arguments, node)
        if function in READS_LITERALS:
            arguments = self._read_literals(function, arguments, nodes)
        with self.binding.at(node):
            try:
                signature = SCALAR[function](tuple(a.type for a in arguments))
            except QueryError:
                with suppress(QueryError):
                    return self.borrowed(OVERLOADS.get(function, function), arguments, node)
                raise
        cast = tuple(coerce(a, t) for a, t in zip(arguments, signature.arguments, strict=True))
        return Call(function, cast, signature.result)

    def borrowed(self, function: str, arguments: list[Expression], node: Node) -> Call:
        """A function that another engine computes, which casts its arguments itself."""
        marked = map(self.binding.marked, arguments) if function in HOLD_JSON else arguments
        given = tuple(coerce(a, plain(a.type)) for a in marked)
        named = given[1] if function == "field" and len(given) > 1 else None
        if isinstance(named, Literal) and not kind.is_string(of := given[0].type):
            name, known = str(named.value), [field.name for field in of] if kind.is_struct(of) else []
            if name.casefold() not in map(str.casefold, known):
                hint = nearest(name, known, "fields") if known else None
                raise self.binding.error(f"{show_type(of)} has no field {name}", node, hint=hint)
        with self.binding.at(node):
            return Call(function, given, borrow(function, given).type)

    def _bind(self, node: Node) -> Expression:
        if isinstance(node, exp.Add | exp.Sub) and (moved := self._moved(node)) is not None:
            return moved
        if isinstance(node, exp.Mul) and (amount := literals.multiple(node)) and amount[1] is None:
            return self.bind(amount[0])
        operator = OPERATORS.get(type(node))
        if operator in ROW_COMPARISONS and isinstance(node.this, Node) and isinstance(node.expression, Node):
            left, right = fields_of(self, node.this, node.expression), fields_of(self, node.expression, node.this)
            if left is not None and right is not None:
                return rows_compared(self, operator, left, right, node)
        if isinstance(node.expression, exp.Any | exp.All):
            if not isinstance(node.expression.this, exp.Subquery):
                return list_compared(self, operator or "", node)
            every = isinstance(node.expression, exp.All)
            return self._queries("ANY (SELECT …)", node).compares(self, node, operator or "", every)
        arrow = operator == "json_extract" and isinstance(node.expression, exp.Column)
        if arrow and kind.is_struct(self.bind(node.this).type):
            return self._apply("field", [node.this, exp.Literal.string(node.expression.name)], node)
        if operator is not None:
            return self._apply(operator, [node.this, node.expression], node)
        method = BINDERS.get(type(node))
        if method is None:
            raise self.binding.error("this is not a value", node, hint="write a column or an expression")
        with self.binding.at(node):
            return method(self, node)

    def _moved(self, node: exp.Add | exp.Sub) -> Call | None:
        """An instant and an INTERVAL of months, which are not all as long, or a computed multiple of one."""
        sides = ((node.this, node.expression), (node.expression, node.this))
        for instant, written in sides[: 2 if isinstance(node, exp.Add) else 1]:
            interval, factor = literals.multiple(written) or (None, None)
            months = None if interval is None else literals.months(interval)
            if interval is None or (months is None and factor is None):
                continue
            length = literals.interval(interval).value // dt.timedelta(microseconds=1) if months is None else months
            amount: Expression = Literal(-length if isinstance(node, exp.Sub) else length, pa.int64())
            if factor is not None:
                amount = self.call("*", [self.bind(factor), amount], [factor, node], node)
            function = "moved" if months is None else "moved_by_months"
            return self.call(function, [self.bind(instant), amount], [instant, node], node)
        return None

    def _apply(self, function: str, nodes: list[Node], node: Node) -> Call:
        return self.call(function, [self.bind(n) for n in nodes], nodes, node)

    def _read_literals(self, function: str, arguments: list[Expression], nodes: list[Node]) -> list[Expression]:
        """Strings beside dates, timestamps and durations are read as such."""
        times = [] if function in CALCULATED else [a for a in arguments if _is_temporal(a.type)]
        target = next((a.type for a in times if not isinstance(a, Literal)), None)
        target = target or next((a.type for a in times), None)
        if target is None:
            target = next((a.type for a in arguments if is_number(a.type) or kind.is_boolean(a.type)), None)
        if target is None or (function in CALCULATED and kind.is_boolean(target)):
            return arguments
        return [self._read(function, a, target, node) for a, node in zip(arguments, nodes, strict=True)]

    def _read(self, function: str, argument: Expression, target: pa.DataType, node: Node) -> Expression:
        """A string literal as a value of a type; where values are only chosen, one that is none stays a text."""
        if not isinstance(argument, Literal):
            return argument
        try:
            with self.binding.at(node):
                return literals.literal_as(argument, target) or argument
        except QueryError:
            if function in COMPARED | CALCULATED or _is_temporal(target):
                raise
            return argument

    def _column(self, node: exp.Column) -> Expression:
        if isinstance(node.this, exp.Star):
            raise self.binding.error("* is not a value", node, hint="write it alone in SELECT, or count(*)")
        shorthand = None if node.args.get("table") else self.shorthands.get(node.this.name.casefold())
        if shorthand is not None and not self.scope.knows(node):
            return self._shorthand(shorthand)
        if not node.args.get("table") and node.this.name.casefold() in self.given and not self.scope.knows(node):
            return self.given[node.this.name.casefold()]
        if node.args.get("table") and (nested := self.scope.nested(node)) is not None:
            return self._apply("field", [exp.Column(this=nested), exp.Literal.string(node.this.name)], node)
        if not node.args.get("table") and (source := self.scope.row(node)) is not None:
            return self._struct({name: column_named(name, source.name) for name in source.columns}, node)
        _, bound = self.scope.resolve(node)
        self.places.setdefault(str(bound), place(node))
        return bound

    def _shorthand(self, node: Node) -> Expression:
        """The expression that an alias of SELECT stands for; aliases inside it mean nothing."""
        hidden, self.shorthands = self.shorthands, {}
        bound = self.bind(node)
        self.shorthands = hidden
        return bound

    def _negation(self, node: exp.Neg) -> Expression:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.args.get("is_string"):
            return literals.number("-" + inner.this)
        return self._apply("negate", [inner], node)

    def _is(self, node: exp.Is) -> Expression:
        if isinstance(node.expression, exp.Null):
            return self._apply("is_null", [node.this], node)
        return self._apply("is_not_distinct_from", [node.this, node.expression], node)

    def _struct(self, fields: dict[str, Node], node: Node) -> Expression:
        parts = [part for name, value in fields.items() for part in (exp.Literal.string(name), value)]
        return self._apply("named_struct", parts, node)

    def _tuple(self, node: exp.Tuple) -> Expression:
        """`(a, b)` or `ROW(a, b)`: a struct, whose fields are called by their places."""
        return self._struct({f"element{i}": value for i, value in enumerate(node.expressions, 1)}, node)

    def _in(self, node: exp.In) -> Expression:
        if node.args.get("query") is not None:
            return self._queries("IN (SELECT …)", node).contains(self, node)
        parts = fields_of(self, node.this, node.expressions[0])
        if parts is not None:
            rows = [rows_compared(self, "=", parts, row.expressions, node) for row in node.expressions]
            return rows[0] if len(rows) == 1 else Call("or", tuple(rows), BOOLEAN)
        return self._apply("in", [node.this, *node.expressions], node)

    def _queries(self, what: str, node: Node) -> SubqueryValues:
        """What makes values of sub-queries, in a clause that can hold them."""
        if self.subqueries is None:
            hint = "put it in FROM and join with it, or use it in SELECT, WHERE or HAVING"
            raise self.binding.error(f"{what} cannot stand in {self.clause}", node, hint=hint)
        return self.subqueries

    def _case(self, node: exp.Case) -> Expression:
        subject = None if node.this is None else self.bind(node.this)
        conditions, values, nodes = [], [], []
        for branch in node.args["ifs"]:
            conditions.append(self._when(subject, node.this, branch))
            values.append(self.bind(branch.args["true"]))
            nodes.append(branch.args["true"])
        default = node.args.get("default")
        values.append(Literal(None, pa.null()) if default is None else self.bind(default))
        cast = self.alike(values, [*nodes, default or node])
        return Case(tuple(zip(conditions, cast[:-1], strict=True)), cast[-1])

    def _when(self, subject: Expression | None, subject_node: Node, branch: exp.If) -> Expression:
        if subject is not None:
            return self.call("=", [subject, self.bind(branch.this)], [subject_node, branch.this], branch)
        return self.condition(branch.this, "WHEN")

    def coming(self) -> list[Expression]:
        """What tells in which order the rows came, if they are those of one stream: their time, and their order."""
        if len(self.scope.sources) != 1:
            return []
        source = self.scope.sources[0]
        return [value for value in (source.time, source.bounds.get(ARRIVAL)) if value is not None]

    def alike(self, values: list[Expression], nodes: list[Node]) -> list[Expression]:
        """Values in their common type."""
        values = self._read_literals("coalesce", values, nodes)
        shared = pa.null()
        for value, node in zip(values, nodes, strict=True):
            type_ = pa.list_(pa.null()) if literals.is_empty_list(value) else value.type
            both = type_ if type_ == shared else mixed_type(shared, type_)
            if both is None:
                message = f"the values differ in type: {show_type(shared)} and {show_type(value.type)}"
                raise self.binding.error(message, node, hint="cast one of them with CAST(x AS …)")
            shared = both
        return values if shared == pa.list_(pa.null()) else [coerce(value, shared) for value in values]

    def inside(self, clause: str, aggregates: Aggregates | None = None) -> ScalarBinder:
        """A binder for what a call of an aggregate, or with OVER, looks at."""
        inner = ScalarBinder(self.binding, self.scope, clause, aggregates, self.below)
        inner._depth = self._depth
        if aggregates is not None:
            inner.places = self.places
        return inner

    def within(self, scope: Scope) -> ScalarBinder:
        """A binder of values where names mean something else."""
        return ScalarBinder(self.binding, scope, self.clause)

    def _function(self, node: exp.Anonymous) -> Expression:
        star = node.expressions[0] if node.name.lower() == "count" and node.expressions else None
        if isinstance(star, exp.Column) and isinstance(star.this, exp.Star) and star.args.get("table"):
            source = self.scope.source(star.args["table"])
            some = [is_known(column_named(name, source.name)) for name in source.columns]
            node = counting(node, exp.Star(), [all_of(some, exp.Or)])
        return bind_lambda(self, self.scope, node) if is_lambda(node) else bind_call(self, node)


def bind_condition(
    binding: Binding, node: Node, scope: Scope, values: SubqueryValues | None, *relations: Relation
) -> Expression:
    """The condition of a join, which may name nothing but the relations it joins and values of sub-queries."""
    binder = ScalarBinder(binding, scope, "ON", subqueries=values)
    bound = binder.condition(node)
    inside = {name for relation in relations for name in relation.schema.names}
    for name, position in binder.places.items():
        if name in columns_of(bound) - inside:
            hint = "a comma binds weaker than JOIN; conditions on anything else belong in WHERE"
            raise Beyond(QueryError("ON can only name what it joins", hint=hint).at(binding.text, position))
    return bound


BINDERS: dict[type[Node], Callable[[ScalarBinder, Any], Expression]] = {
    exp.Column: ScalarBinder._column,
    exp.Literal: lambda binder, node: Literal(node.this, pa.string()) if node.is_string else literals.number(node.this),
    exp.HexString: lambda binder, node: literals.binary(node.this),
    exp.Interval: lambda binder, node: literals.interval(node),
    exp.Null: lambda binder, node: Literal(None, pa.null()),
    exp.Boolean: lambda binder, node: Literal(bool(node.this), BOOLEAN),
    exp.Neg: ScalarBinder._negation,
    # AND and OR take any number of parts; chains are flattened, so that their length does not matter.
    exp.And: lambda binder, node: binder._apply("and", flatten(node, exp.And), node),
    exp.Or: lambda binder, node: binder._apply("or", flatten(node, exp.Or), node),
    exp.Not: lambda binder, node: binder._apply("not", [node.this], node),
    exp.BitwiseNot: lambda binder, node: binder._apply("bitwise_not", [node.this], node),
    exp.Is: ScalarBinder._is,
    exp.Between: lambda binder, node: binder.bind(all_of(bounds_of(node))),
    exp.In: ScalarBinder._in,
    exp.Tuple: ScalarBinder._tuple,
    exp.Exists: lambda binder, node: binder._queries("EXISTS", node).exists(binder, node),
    exp.Subquery: lambda binder, node: binder._queries("a sub-query", node).value(binder, node),
    exp.Case: ScalarBinder._case,
    exp.Cast: bind_cast,
    exp.TryCast: bind_cast,
    exp.Anonymous: ScalarBinder._function,
}


def _is_temporal(type_: pa.DataType) -> bool:
    return is_instant(type_) or bool(kind.is_duration(type_) or kind.is_time(type_))
