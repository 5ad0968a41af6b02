"""Grouping: what SELECT and HAVING may say about groups.

Values of SELECT are bound over the tuples first; then every part that equals a grouping key becomes that key's
column. What is left over of the tuples is an error: it has no single value per group.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.borrowed_aggregates import (
    BORROWED_AGGREGATES,
    CONDITIONS,
    EXACT,
    GIVE_JSON,
    IN_ORDER,
    KNOWN,
    borrow_aggregate,
    overloaded,
)
from midstream.algebra.declarations import ARRIVAL, AggregateFunction
from midstream.algebra.expressions import (
    AggregateCall,
    Column,
    Expression,
    Literal,
    Named,
    NamedAggregate,
    conjunction,
    conjuncts,
)
from midstream.algebra.functions import AGGREGATE, require_condition
from midstream.algebra.over import OrderKey
from midstream.algebra.types import BOOLEAN, INTEGER, is_nested
from midstream.errors import QueryError
from midstream.language.binding import Binding
from midstream.language.literals import coerce
from midstream.language.nested import any_of, told_apart
from midstream.language.nodes import counting, is_known
from midstream.language.values import ValueBinder


class Aggregates:
    """The aggregates and keys of one SELECT, each with a unique name."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.keys: list[Named] = []
        self.calls: list[NamedAggregate] = []
        self.nulled: list[Expression] = []
        self.carried: dict[Expression, Column] = {}
        self.brought: frozenset[str] = frozenset()
        self._names: set[str] = set()

    def add_key(self, expression: Expression) -> None:
        """Groups by one more expression; the same one twice is one key."""
        if is_nested(expression.type) and expression not in self.carried:
            call = any_of(expression)
            self.calls.append(NamedAggregate(self._unique(str(call)), call))
            self.carried[expression] = Column(self.calls[-1].name, call.type)
        told = told_apart(expression)
        if all(key.expression != told for key in self.keys):
            self.keys.append(Named(self._unique(str(told)), told))

    def is_key(self, expression: Expression) -> bool:
        """Whether tuples are grouped by an expression, or would be by another set of GROUPING SETS."""
        return expression in self.nulled or any(key.expression == told_apart(expression) for key in self.keys)

    def add(self, node: exp.Anonymous, name: str, inner: ValueBinder) -> Column:
        """The column that holds an aggregate's value."""
        call = self.bound(node, name, inner)
        for known in self.calls:
            if known.call == call:
                return Column(known.name, call.type)
        named = NamedAggregate(self._unique(str(call)), call)
        self.calls.append(named)
        if name in GIVE_JSON:
            self.binding.json.add(named.name)
        return Column(named.name, call.type)

    def over_groups(
        self, expression: Expression, places: dict[str, int | None], outside: frozenset[str] = frozenset()
    ) -> Expression:
        """An expression over tuples as one over groups, beside columns from `outside` a sub-query."""
        for key in self.keys:
            if key.expression == expression:
                return Column(key.name, expression.type)
        if expression in self.carried:
            return self.carried[expression]
        if expression in self.nulled:
            return Literal(None, expression.type)
        if isinstance(expression, Column):
            if expression.name in self.brought | outside or any(call.name == expression.name for call in self.calls):
                return expression
            raise self._ungrouped(expression, places)
        arguments = tuple(self.over_groups(a, places, outside) for a in expression.arguments)
        return expression if arguments == expression.arguments else expression.with_arguments(arguments)

    def _ungrouped(self, column: Column, places: dict[str, int | None]) -> QueryError:
        visible = column.name.partition(".")[2]
        error = QueryError(
            f"{visible} is neither grouped by nor aggregated",
            hint=f"add it to GROUP BY, or aggregate it, for instance max({visible})",
        )
        return error.at(self.binding.text, places.get(str(column)))

    def bound(self, node: exp.Anonymous, name: str, inner: ValueBinder) -> AggregateCall:
        """The meaning of a call of an aggregate."""
        if name == "count" and len(node.expressions) > 1:
            node = _counted(node)
        distinct, where = bool(node.args.get("distinct")), self._filter(node, inner)
        star = [a for a in node.expressions if isinstance(a, exp.Star)]
        if star and (name != "count" or distinct):
            raise self.binding.error(f"{node.name} does not take *", star[0], hint="name a column")
        arguments = [] if star else [self.binding.folded(inner.bind(a)) for a in node.expressions]
        if name in GIVE_JSON:
            arguments = list(map(self.binding.marked, arguments))
        user = self.binding.catalog.functions.get(node.name.lower())
        if isinstance(user, AggregateFunction):
            return AggregateCall(user.name, tuple(arguments), user.returns, distinct, where)
        if node.args.get("ignore_nulls"):
            name = KNOWN.get(name, name)
        keys = self._order(node, inner, name, arguments)
        name = overloaded(name, [a.type for a in arguments])
        if name in BORROWED_AGGREGATES:
            with self.binding.at(node):
                return replace(borrow_aggregate(name, arguments, keys, distinct), where=where)
        if not arguments and not star:
            raise self.binding.error(f"{node.name} needs an argument", node, hint="write count(*) to count tuples")
        if name in CONDITIONS:
            with self.binding.at(node):
                require_condition(arguments[0].type, node.name)
            arguments = [coerce(arguments[0], BOOLEAN)]
        if name == "count_if":
            return AggregateCall("count", (), INTEGER, where=conjunction([*conjuncts(where), *arguments]))
        if distinct and any(kind.is_interval(a.type) for a in arguments):
            hint = "months are not all as long: cast it to a text, or take its parts"
            raise self.binding.error(f"{node.name} cannot tell apart {arguments[0].type}", node, hint=hint)
        if distinct or name in EXACT:
            arguments = [told_apart(a) for a in arguments]
        name, distinct = CONDITIONS.get(name, EXACT.get(name, name)), distinct or name in EXACT
        with self.binding.at(node):
            signature = AGGREGATE[name](tuple(a.type for a in arguments))
        cast = tuple(coerce(a, t) for a, t in zip(arguments, signature.arguments, strict=True))
        return AggregateCall(name, cast, signature.result, distinct, where)

    def _filter(self, node: exp.Anonymous, inner: ValueBinder) -> Expression | None:
        condition = node.args.get("filter")
        if condition is None:
            return None
        inner.clause = "FILTER"
        where = inner.condition(condition)
        inner.clause = "an aggregate"
        return where

    def _order(self, node: exp.Anonymous, inner: ValueBinder, name: str, arguments: list[Expression]) -> list[OrderKey]:
        """The order in which an aggregate takes its rows: what is asked for, else that of their times."""
        within, keys = node.args.get("within") or [], node.args.get("order") or []
        if name in ("quantile_cont", "quantile_disc", "mode"):
            arguments[:0] = [inner.bind(key.this) for key in within[:1]]
            return [OrderKey(arguments[0], True)] if any(key.args.get("desc") for key in (*within, *keys)) else []
        if name not in IN_ORDER:
            return []
        asked = [
            OrderKey(self.binding.folded(inner.bind(k.this)), bool(k.args.get("desc")), k.args.get("nulls") or "")
            for k in [*keys, *within]
        ]
        coming = [] if node.args.get("distinct") else inner.coming()
        return [*asked, *(OrderKey(value) for value in coming if not asked or str(value).endswith(ARRIVAL))]

    def _unique(self, text: str) -> str:
        name, count = text, 1
        while name in self._names:
            count += 1
            name = f"{text}_{count}"
        self._names.add(name)
        return name


def _counted(node: exp.Anonymous) -> exp.Anonymous:
    """`count(a, b)`: how many rows have no null in any of them, or how many different ones of these."""
    of = exp.Tuple(expressions=node.expressions) if node.args.get("distinct") else exp.Star()
    return counting(node, of, list(map(is_known, node.expressions)))
