"""MATCH_RECOGNIZE: what conditions and measures say of matched rows becomes values under names of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from midstream.algebra.expressions import Column, Expression, Named, columns_of
from midstream.algebra.functions import AGGREGATE
from midstream.algebra.patterns import (
    PatternFunction,
    PatternValue,
    length_of,
    may_be_empty,
    repeats_nothing,
    symbols_of,
)
from midstream.algebra.plan import Match, Relation
from midstream.algebra.types import INTEGER
from midstream.language.binding import Binding
from midstream.language.nodes import Node
from midstream.language.over import narrowed
from midstream.language.pattern_grammar import MatchClause
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope, Source
from midstream.language.windows import bind_duration, is_raw, is_time

LONGEST = 10_000
"""How many parts a pattern may have, written out."""

AGGREGATES = frozenset({"sum", "avg", "min", "max", "count"})


def bind_match(binding: Binding, clause: MatchClause, relation: Relation, scope: Scope) -> Match:
    """The stream of matches in a stream; its columns are the keys and the measures."""
    return _Binder(binding, clause, relation, scope).match()


class _Binder:
    def __init__(self, binding: Binding, clause: MatchClause, relation: Relation, scope: Scope) -> None:
        self.binding, self.clause, self.relation = binding, clause, relation
        assert clause.pattern is not None
        self.pattern = clause.pattern
        self.symbols = set(symbols_of(self.pattern))
        self.values: list[PatternValue] = []
        self.named: dict[str, Column] = {}
        self.own = scope
        self.scope = Scope(binding, [*scope.sources, Source("#values", self.named)], scope.merged, scope.hidden)

    def match(self) -> Match:
        """The whole clause."""
        clause = self.clause
        self._require_stream()
        self._require_symbols()
        keys = [self._key(node) for node in clause.partition]
        conditions = tuple(
            (symbol, self._binder("DEFINE").condition(self._with_values(node)))
            for symbol, node in clause.conditions.items()
        )
        measures = tuple(
            Named(name.name, self._binder("MEASURES").bind(self._with_values(node))) for node, name in clause.measures
        )
        if not keys and not measures:
            raise self._error("MATCH_RECOGNIZE needs MEASURES or PARTITION BY", hint="MEASURES LAST(A.x) AS x")
        within = None if clause.within is None else bind_duration(self.binding, clause.within, self.relation.domain)
        read: list[Expression] = [*keys, *(c for _, c in conditions), *(m.expression for m in measures)]
        read += [Column(v.column, v.type) for v in self.values if v.column is not None]
        names = frozenset[str]().union(*map(columns_of, read)) & set(self.relation.schema.names)
        inner = narrowed(self.relation, [Column(n, self.relation.schema.field(n).type) for n in names])
        return Match(
            inner,
            tuple(key.name for key in keys),
            self.pattern,
            conditions,
            tuple(self.values),
            measures,
            clause.skip,
            within,
        )

    def _error(self, message: str, hint: str | None = None, node: Node | None = None) -> Exception:
        if node is not None:
            return self.binding.error(message, node, hint=hint)
        place = exp.Var()
        place.meta["start"] = self.clause.token.start
        return self.binding.error(message, place, hint=hint)

    def _require_stream(self) -> None:
        if not is_raw(self.relation):
            raise self._error(
                "MATCH_RECOGNIZE takes a stream, not a window", "leave the window out; WITHIN bounds a match"
            )
        order = self.clause.order
        ascending = len(order) == 1 and not order[0].args.get("desc")
        if not ascending or not is_time(
            ScalarBinder(self.binding, self.own, "ORDER BY").bind(order[0].this), self.relation
        ):
            raise self._error("MATCH_RECOGNIZE needs an ORDER BY of the stream's time", "ORDER BY ts, ascending")

    def _require_symbols(self) -> None:
        if may_be_empty(self.pattern):
            raise self._error("the pattern matches no rows at all", "let it have one row at least")
        if repeats_nothing(self.pattern):
            raise self._error("a part that matches no rows at all cannot be repeated", "(A B?)+ instead of (A? B?)+")
        if length_of(self.pattern) > LONGEST:
            raise self._error(f"the pattern has more than {LONGEST:,} parts", "repeat less often, or without a bound")
        unknown = sorted(({*self.clause.conditions} | ({self.clause.skip.symbol} - {""})) - self.symbols)
        if unknown:
            raise self._error(f"the pattern has no symbol {unknown[0]}")

    def _key(self, node: Node) -> Column:
        bound = ScalarBinder(self.binding, self.own, "PARTITION BY").bind(node)
        if not isinstance(bound, Column):
            raise self._error("a pattern is partitioned by columns", "compute the key in a sub-query", node)
        return bound

    def _binder(self, what: str) -> ScalarBinder:
        return ScalarBinder(self.binding, self.scope, what)

    def _with_values(self, node: Node) -> Node:
        """An expression with names in the place of what it says of matched rows."""
        return cast(Node, node.transform(self._replaced))

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and (symbol := self._symbol(node)) is not None:
            return self._column("last", symbol, node)
        if not isinstance(node, exp.Anonymous) or node.args.get("over") is not None:
            return node
        name = node.name.lower()
        if name == "next":
            raise self._error("NEXT looks at rows that are still to come", "look back with PREV", node)
        if name in ("prev", "first", "last", *AGGREGATES):
            return self._call(node, name)
        return node

    def _call(self, node: exp.Anonymous, name: str) -> exp.Expr:
        arguments = list(node.expressions)
        if name in AGGREGATES:
            return self._aggregate(node, name, arguments)
        inner, number = (
            arguments[0] if arguments else None,
            self._number(node, arguments[1:], 1 if name == "prev" else 0),
        )
        if name == "prev" and isinstance(inner, exp.Anonymous) and inner.name.lower() in ("first", "last"):
            inside = list(inner.expressions)
            if inside and isinstance(inside[0], exp.Column):
                logical = self._number(inner, inside[1:], 0)
                return self._column(inner.name.lower(), self._symbol(inside[0]), inside[0], logical, number)
        if not isinstance(inner, exp.Column):
            raise self._error(f"{node.name} takes a column", "for instance LAST(A.price)", node)
        if name == "prev":
            return self._column("last", self._symbol(inner), inner, before=number)
        return self._column(name, self._symbol(inner), inner, number)

    def _aggregate(self, node: exp.Anonymous, name: str, arguments: list[Node]) -> exp.Expr:
        of = arguments[0] if len(arguments) == 1 else None
        if name == "count" and (
            isinstance(of, exp.Star) or (isinstance(of, exp.Column) and isinstance(of.this, exp.Star))
        ):
            symbol = self._symbol(of) if isinstance(of, exp.Column) else None
            return self._named(PatternValue("", "count", symbol, None, INTEGER))
        if not isinstance(of, exp.Column) or node.args.get("distinct") or node.args.get("filter") is not None:
            raise self._error(f"in a pattern {node.name} takes a column", "for instance SUM(A.price)", node)
        column = self._resolved(of)
        with self.binding.at(node):
            kind = INTEGER if name == "count" else AGGREGATE[name]((column.type,)).result
        function = cast(PatternFunction, name)
        return self._named(PatternValue("", function, self._symbol(of), column.name, kind))

    def _number(self, node: exp.Anonymous, rest: list[Node], default: int) -> int:
        if not rest:
            return default
        if len(rest) > 1 or not isinstance(rest[0], exp.Literal) or not str(rest[0].this).isdecimal():
            raise self._error(f"{node.name} takes a column and a number that is written out", None, node)
        return int(rest[0].this[:9])

    def _symbol(self, column: exp.Column) -> str | None:
        table = column.args.get("table")
        return table.name.upper() if table is not None and table.name.upper() in self.symbols else None

    def _resolved(self, node: exp.Column) -> Column:
        plain = node if self._symbol(node) is None else exp.Column(this=node.this)
        _, found = self.own.resolve(plain)
        if not isinstance(found, Column):
            raise self._error("a pattern looks at columns of its stream", None, node)
        return found

    def _column(
        self, function: str, symbol: str | None, node: exp.Column, number: int = 0, before: int = 0
    ) -> exp.Expr:
        column = self._resolved(node)
        kind = cast(PatternFunction, function)
        return self._named(PatternValue("", kind, symbol, column.name, column.type, number, before))

    def _named(self, value: PatternValue) -> exp.Expr:
        known = next((v for v in self.values if replace(v, name="") == value), None)
        if known is None:
            known = replace(value, name=f"#{len(self.values)}")
            self.values.append(known)
            self.named[known.name] = Column(known.name, known.type)
        return exp.Column(this=exp.Identifier(this=known.name, quoted=True))
