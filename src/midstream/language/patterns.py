"""MATCH_RECOGNIZE: what conditions and measures say of matched rows becomes values under names of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from midstream.algebra.expressions import Column, Expression, Literal, Named, columns_of
from midstream.algebra.functions import AGGREGATE
from midstream.algebra.patterns import (
    MATCHES,
    OF_ROWS,
    PatternFunction,
    PatternValue,
    length_of,
    may_be_empty,
    repeats_nothing,
    symbols_of,
)
from midstream.algebra.plan import Match, Project, Relation, is_raw, is_time
from midstream.algebra.types import INTEGER, TEXT
from midstream.language.binding import Binding
from midstream.language.nodes import Node, column_named
from midstream.language.over import narrowed
from midstream.language.pattern_grammar import MatchClause
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope, ScopeSource
from midstream.language.windows import bind_duration, order_of

LONGEST = 10_000
"""How many parts a pattern may have, written out."""


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
        self.defined: str | None = None
        self.final = False
        self.own = scope
        self.scope = Scope(binding, [*scope.sources, ScopeSource("#values", self.named)], scope.merged, scope.hidden)

    def match(self) -> Match:
        """The whole clause."""
        clause = self.clause
        self._require_stream()
        self._require_symbols()
        keys = [self._key(node) for node in clause.partition]
        conditions = tuple(self._condition(symbol, node) for symbol, node in clause.conditions.items())
        self.defined = None
        measures = [
            Named(name.name, self._binder("MEASURES").bind(self._with_values(node))) for node, name in clause.measures
        ]
        if clause.all_rows:
            measures = self._with_columns(keys, measures)
        if not keys and not measures:
            raise self._error("MATCH_RECOGNIZE needs MEASURES or PARTITION BY", hint="MEASURES LAST(A.x) AS x")
        if len({measure.name for measure in measures}) < len(measures):
            raise self._error("two columns of MATCH_RECOGNIZE have the same name", hint="name all measures differently")
        within = None if clause.within is None else bind_duration(self.binding, clause.within, self.relation.domain)
        ties = tuple(order_of(self.binding, clause.order[1:], lambda node: self._key(node, "ordered").name))
        order = [Column(tie.name, self.relation.schema.field(tie.name).type) for tie in ties]
        read: list[Expression] = [*keys, *order, *(c for _, c in conditions), *(m.expression for m in measures)]
        read += [Column(v.column, v.type) for v in self.values if v.column is not None]
        return Match(
            self._read(frozenset[str]().union(*map(columns_of, read))),
            tuple(key.name for key in keys),
            self.pattern,
            conditions,
            tuple(self.values),
            tuple(measures),
            clause.skip,
            within,
            clause.all_rows,
            ties,
        )

    def _condition(self, symbol: str, node: Node) -> tuple[str, Expression]:
        self.defined = symbol
        return symbol, self._binder("DEFINE").condition(self._with_values(node))

    def _with_columns(self, keys: list[Column], measures: list[Named]) -> list[Named]:
        """Measures between the stream's time and its other columns."""
        time = self._ordered(self.clause.order[0].this)
        own = [Named(name, column) for source in self.own.sources for name, column in source.columns.items()]
        own = [one for one in own if one.expression not in keys]
        return [*(o for o in own if o.expression == time), *measures, *(o for o in own if o.expression != time)]

    def _read(self, names: frozenset[str]) -> Relation:
        """The columns of the stream that are read, and those that are computed of it."""
        kept = [Column(f.name, f.type) for f in self.relation.schema if f.name in names]
        made = [Named(column.name, value) for value, column in self.computed.items()]
        if any(value.function == "number" for value in self.values):
            made.append(Named(MATCHES, Literal(None, INTEGER)))
        if not made:
            return narrowed(self.relation, kept)
        return Project(self.relation, (*(Named(column.name, column) for column in kept), *made))

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
        first = self.clause.order[0] if self.clause.order else exp.Ordered(this=exp.null(), desc=True)
        if first.args.get("desc") or not is_time(self._ordered(first.this), self.relation):
            message = "MATCH_RECOGNIZE needs an ORDER BY that begins with the stream's time"
            raise self._error(message, "ORDER BY ts, ascending")

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

    def _key(self, node: Node, what: str = "partitioned") -> Column:
        bound = ScalarBinder(self.binding, self.own, "a pattern").bind(node)
        if not isinstance(bound, Column):
            raise self._error(f"a pattern is {what} by columns", "compute the key in a sub-query", node)
        return bound

    def _ordered(self, node: Node) -> Expression:
        return ScalarBinder(self.binding, self.own, "ORDER BY").bind(node)

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
        match name:
            case "final" | "running":
                return self._of_rows(node, name)
            case "match_rowtime":
                return cast(exp.Expr, self.clause.order[0].this.copy())
            case "match_number":
                return self._named(PatternValue("", "number", None, None, INTEGER))
            case "classifier":
                return self._row_value("last", node)
            case "first" | "last" | "prev" | "next":
                return self._row_call(node, name)
        return self._aggregate(node, name) if name in OF_ROWS else node

    def _of_rows(self, node: exp.Anonymous, word: str) -> exp.Expr:
        """`FINAL LAST(a.x)`: of all rows of the match; `RUNNING`, which need not be said: of those so far."""
        call = node.expressions[0]
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in OF_ROWS | {"first", "last"}:
            raise self._error(f"{word.upper()} stands before FIRST, LAST or an aggregate", None, node)
        if word == "final" and self.defined is not None:
            raise self._error("DEFINE knows the rows so far, not the final ones", "say FINAL in MEASURES", node)
        self.final = word == "final" and self.clause.all_rows
        value = self._replaced(call)
        self.final = False
        return value

    def _row_call(self, node: exp.Anonymous, name: str) -> exp.Expr:
        """`FIRST(a.x, n)`, `LAST(a.x, n)`, `PREV(x, n)`, `PREV(LAST(a.x, n), m)`, `NEXT(x, n)`."""
        if not node.expressions:
            raise self._error(f"{node.name} takes a value", "for instance LAST(A.price)", node)
        of, number = node.expressions[0], self._number(node, 1 if name in ("prev", "next") else 0)
        if name in ("first", "last"):
            return self._row_value(cast(PatternFunction, name), of, number)
        inner = of.name.lower() if isinstance(of, exp.Anonymous) and of.expressions else ""
        if name == "next":
            self._require_ahead(node, of, inner)
        if inner in ("first", "last"):
            return self._row_value(cast(PatternFunction, inner), of.expressions[0], self._number(of, 0), number)
        return self._row_value("last", of, before=number if name == "prev" else -number)

    def _require_ahead(self, node: exp.Anonymous, of: exp.Expr, inner: str) -> None:
        if self.defined is None:
            raise self._error("NEXT in MEASURES looks behind the match", "let the pattern match that row too", node)
        if inner in ("first", "last") or self._symbol(of) not in (None, self.defined):
            raise self._error("NEXT looks ahead from the row itself", "for instance NEXT(price)", node)

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
        if isinstance(node, exp.Anonymous) and node.name.lower() == "classifier":
            if before or node.expressions:
                raise self._error("CLASSIFIER() is the symbol of a matched row", "LAST(CLASSIFIER(), 1)", node)
            return self._named(PatternValue("", function, None, None, TEXT, number))
        column = self._argument(node)
        return self._named(PatternValue("", function, self._symbol(node), column.name, column.type, number, before))

    def _named(self, value: PatternValue) -> exp.Expr:
        value = replace(value, final=self.final)
        known = next((v for v in self.values if replace(v, name="") == value), None)
        if known is None:
            known = replace(value, name=f"#{len(self.values)}")
            self.values.append(known)
            self.named[known.name] = Column(known.name, known.type)
        return column_named(known.name)
