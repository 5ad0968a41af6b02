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
from midstream.algebra.plan import Match, Project, Relation
from midstream.algebra.types import INTEGER
from midstream.language.binding import Binding
from midstream.language.nodes import Node
from midstream.language.over import narrowed
from midstream.language.pattern_grammar import MatchClause
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope, ScopeSource
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
        self.computed: dict[Expression, Column] = {}
        self.own = scope
        self.scope = Scope(binding, [*scope.sources, ScopeSource("#values", self.named)], scope.merged, scope.hidden)

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
        return Match(
            self._read(frozenset[str]().union(*map(columns_of, read))),
            tuple(key.name for key in keys),
            self.pattern,
            conditions,
            tuple(self.values),
            measures,
            clause.skip,
            within,
        )

    def _read(self, names: frozenset[str]) -> Relation:
        """The columns of the stream that are read, and those that are computed of it."""
        kept = [Column(f.name, f.type) for f in self.relation.schema if f.name in names]
        if not self.computed:
            return narrowed(self.relation, kept)
        values = [Named(column.name, value) for value, column in self.computed.items()]
        return Project(self.relation, (*(Named(column.name, column) for column in kept), *values))

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
        if isinstance(node, exp.Column) and self._symbol(node) is not None:
            return self._row_value("last", node)
        if not isinstance(node, exp.Anonymous) or node.args.get("over") is not None:
            return node
        name = node.name.lower()
        if name == "next":
            raise self._error("NEXT looks at rows that are still to come", "look back with PREV", node)
        if name == "match_rowtime":
            return cast(exp.Expr, self.clause.order[0].this.copy())
        if name in AGGREGATES:
            return self._aggregate(node, name)
        return self._row_call(node, name) if name in ("prev", "first", "last") else node

    def _row_call(self, node: exp.Anonymous, name: str) -> exp.Expr:
        """`FIRST(a.x, n)`, `LAST(a.x, n)`, `PREV(x, n)`, `PREV(LAST(a.x, n), m)`."""
        if not node.expressions:
            raise self._error(f"{node.name} takes a value", "for instance LAST(A.price)", node)
        of, number = node.expressions[0], self._number(node, 1 if name == "prev" else 0)
        if name != "prev":
            return self._row_value(cast(PatternFunction, name), of, number)
        if isinstance(of, exp.Anonymous) and of.name.lower() in ("first", "last") and of.expressions:
            return self._row_value(
                cast(PatternFunction, of.name.lower()), of.expressions[0], self._number(of, 0), number
            )
        return self._row_value("last", of, before=number)

    def _aggregate(self, node: exp.Anonymous, name: str) -> exp.Expr:
        of = node.expressions[0] if len(node.expressions) == 1 else None
        if of is None or node.args.get("distinct") or node.args.get("filter") is not None:
            raise self._error(f"in a pattern {node.name} takes a value", "for instance SUM(A.price)", node)
        star = isinstance(of, exp.Star) or (isinstance(of, exp.Column) and isinstance(of.this, exp.Star))
        if name == "count" and star:
            return self._named(PatternValue("", "count", self._symbol(of), None, INTEGER))
        column = self._argument(of)
        with self.binding.at(node):
            kind = INTEGER if name == "count" else AGGREGATE[name]((column.type,)).result
        return self._named(PatternValue("", cast(PatternFunction, name), self._symbol(of), column.name, kind))

    def _number(self, node: exp.Anonymous, default: int) -> int:
        rest = node.expressions[1:]
        if not rest:
            return default
        if len(rest) > 1 or not isinstance(rest[0], exp.Literal) or not str(rest[0].this).isdecimal():
            raise self._error(f"{node.name} takes a value and a number that is written out", None, node)
        return int(rest[0].this[:9])

    def _symbol(self, node: exp.Expr) -> str | None:
        """The symbol whose rows a value is of."""
        tables = [column.args.get("table") for column in node.find_all(exp.Column)]
        found = {table.name.upper() for table in tables if table is not None and table.name.upper() in self.symbols}
        if len(found) > 1:
            raise self._error("a value is of the rows of one symbol", None, cast(Node, node))
        return found.pop() if found else None

    def _argument(self, node: exp.Expr) -> Column:
        """The column of the stream that a value is, or that is computed for it."""
        bound = ScalarBinder(self.binding, self.own, "a pattern").bind(cast(Node, node.transform(self._unqualified)))
        if isinstance(bound, Column):
            return bound
        return self.computed.setdefault(bound, Column(f"#{bound}", bound.type))

    def _unqualified(self, node: exp.Expr) -> exp.Expr:
        own = isinstance(node, exp.Column) and self._symbol(node) is not None
        return exp.Column(this=node.this) if own else node

    def _row_value(self, function: PatternFunction, node: exp.Expr, number: int = 0, before: int = 0) -> exp.Expr:
        column = self._argument(node)
        return self._named(PatternValue("", function, self._symbol(node), column.name, column.type, number, before))

    def _named(self, value: PatternValue) -> exp.Expr:
        known = next((v for v in self.values if replace(v, name="") == value), None)
        if known is None:
            known = replace(value, name=f"#{len(self.values)}")
            self.values.append(known)
            self.named[known.name] = Column(known.name, known.type)
        return exp.Column(this=exp.Identifier(this=known.name, quoted=True))
