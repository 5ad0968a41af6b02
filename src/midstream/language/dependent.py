"""Sub-queries that name columns of the query around them.

What such a sub-query gives depends on these columns alone, so it is computed for all combinations of their values at
once: its domain. The domain is joined to what the sub-query reads, is part of every key, partition and limit in it,
and its columns come with the result, by which that is joined to the tuples around it (Neumann and Kemper, Unnesting
Arbitrary Queries, 2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Protocol

from sqlglot import exp

from midstream.algebra.expressions import (
    AggregateCall,
    Call,
    Column,
    Expression,
    Literal,
    Named,
    columns_of,
    conjunction,
)
from midstream.algebra.plan import Aggregate, Join, JoinKind, Project, Relation, Stream, walk_plan
from midstream.algebra.types import BOOLEAN, INTEGER, is_nested
from midstream.language.binding import Beyond, Binding
from midstream.language.nested import any_of, distinct, told_apart
from midstream.language.nodes import Node
from midstream.language.scalars import SubqueryValues
from midstream.language.scope import Scope

NOTHING = Literal(0, INTEGER)

Tie = tuple[Expression, Expression, str]
"""Something around a sub-query, something in it, and the comparison that ties them."""


@dataclass(frozen=True)
class Domain:
    """What a query may name of the scope around it: columns as called in it, and a relation of their values."""

    scope: Scope
    columns: Mapping[str, Column] = field(default_factory=dict)
    relation: Relation | None = None

    def tuples(self, binding: Binding) -> Relation | None:
        """A relation of all values; each time one that reads under aliases of its own."""
        if self.relation is None:
            return None
        copied, _ = _copied(binding, self.relation)
        columns = zip(self.columns.values(), copied.schema, strict=True)
        return Project(copied, tuple(Named(c.name, Column(f.name, f.type)) for c, f in columns))


@dataclass(frozen=True)
class Environment:
    """What names in FROM mean besides streams: the queries of WITH, each with the environment it was written in.

    A query with a domain gives the domain's columns too, behind its own.
    """

    ctes: Mapping[str, tuple[Node, Environment]]
    renamed: Mapping[str, Sequence[exp.Identifier]] = field(default_factory=dict)
    domain: Domain | None = None

    @property
    def given(self) -> tuple[Column, ...]:
        """The columns of the domain."""
        return () if self.domain is None else tuple(self.domain.columns.values())

    def scope(self, binding: Binding) -> Scope:
        """A scope that sees what the domain has of the query around it."""
        return Scope(binding, outer=self.domain.scope, domain=self.domain.columns) if self.domain else Scope(binding)

    def apart(self) -> Environment:
        """The same for a query that has no domain."""
        return replace(self, domain=None)


class Queries(Protocol):
    """Binds queries."""

    binding: Binding

    def query(self, node: Node, environment: Environment, in_order: bool = False) -> Relation:
        """A sub-query, with a column that tells in which order its rows came if that is asked and known."""

    def lateral(self, node: Node, base: Relation, scope: Scope, environment: Environment, kind: JoinKind) -> Project:
        """The tuples of a relation with what a sub-query gives beside each."""

    def values(self, relation: Relation, environment: Environment) -> SubqueryValues:
        """The sub-queries that the condition of a join of a relation holds."""


@dataclass(frozen=True, slots=True)
class Dependent:
    """A bound sub-query: what it gives, and what ties it to the tuples around it."""

    relation: Relation
    outputs: list[Column]
    ties: list[Tie]


def dependent(binder: Queries, node: Node, scope: Scope, environment: Environment, around: Relation) -> Dependent:
    """A sub-query of the tuples `around`, which `scope` names."""
    binding = binder.binding
    alias, domain = binding.alias("query", node), Domain(scope)
    while True:
        try:
            with binding.attempt():
                bound = binder.query(node.copy(), replace(environment, domain=domain))
            break
        except Beyond as beyond:
            name = beyond.name
            if name in domain.columns or name not in around.schema.names:
                raise
            domain = _domain(binding, scope, [*domain.columns, name], around, node)
    names = bound.schema.names
    renamed = rename(bound, {name: f"{alias}.{name}" for name in names})
    columns = [Column(f.name, f.type) for f in renamed.schema]
    outputs, inner = columns[: len(names) - len(domain.columns)], columns[len(names) - len(domain.columns) :]
    outer = [Column(name, around.schema.field(name).type) for name in domain.columns]
    ties = [(told_apart(a), told_apart(b), "is_not_distinct_from") for a, b in zip(outer, inner, strict=True)]
    return Dependent(renamed, outputs, ties)


def _domain(binding: Binding, scope: Scope, names: list[str], around: Relation, node: Node) -> Domain:
    copied, called = _copied(binding, around, node)
    alias = binding.alias("domain", node)
    values = [Named(f"{alias}.{i}", Column(called(n), around.schema.field(n).type)) for i, n in enumerate(names)]
    columns = {name: Column(one.name, one.expression.type) for name, one in zip(names, values, strict=True)}
    return Domain(scope, columns, distinct(Project(copied, tuple(values))))


def _copied(binding: Binding, plan: Relation, node: Node | None = None) -> tuple[Relation, Any]:
    """A plan that reads the same under other aliases, and what a column is called there."""
    names = {name for part in walk_plan(plan) for name in part.schema.names if "." in name}
    known = {name.partition(".")[0] for name in names} | {
        part.alias for part in walk_plan(plan) if isinstance(part, Stream)
    }
    aliases = {one: binding.alias(one, node) for one in sorted(known) if one.casefold() in binding.aliases}

    def called(name: str) -> str:
        alias, dot, rest = name.partition(".")
        return f"{aliases[alias]}.{rest}" if dot and alias in aliases else name

    def changed(value: Any) -> Any:
        match value:
            case Literal():
                return value
            case str():
                return called(value)
            case tuple():
                return tuple(changed(part) for part in value)
            case Stream():
                return replace(value, alias=aliases[value.alias])
        if not is_dataclass(value) or isinstance(value, type):
            return value
        return replace(value, **{f.name: changed(getattr(value, f.name)) for f in fields(value) if f.init})

    return changed(plan), called


def complete(binding: Binding, every: Relation, grouped: Aggregate) -> Relation:
    """An aggregate of all rows for every tuple, with those that have no rows: a count is zero there."""
    alias = binding.alias("groups", None)
    apart = rename(grouped, {name: f"{alias}.{name}" for name in grouped.schema.names})
    keys = [(key, Column(f"{alias}.{key.name}", key.expression.type)) for key in grouped.keys]
    on = conjunction([Call("is_not_distinct_from", (k.expression, c), BOOLEAN) for k, c in keys])
    columns = [Named(key.name, key.expression) for key, _ in keys]
    own = {any_of(column): column for f in every.schema if is_nested(f.type) for column in [Column(f.name, f.type)]}
    values = [(one, own.get(one.call, brought(f"{alias}.{one.name}", one.call))) for one in grouped.aggregates]
    columns += [Named(one.name, value) for one, value in values]
    return Project(Join(every, apart, on, "left"), tuple(columns))


def brought(name: str, call: AggregateCall) -> Expression:
    """An aggregate behind an outer join: of nothing, a count is zero."""
    column = Column(name, call.type)
    return Call("coalesce", (column, NOTHING), INTEGER) if call.function == "count" else column


def require_own(binding: Binding, call: AggregateCall, outside: frozenset[str], node: Node) -> None:
    """Refuses an aggregate of nothing but columns around a sub-query: it would be one of the query around it."""
    read = call.args if call.where is None else (*call.args, call.where)
    named = frozenset[str]().union(*map(columns_of, read))
    if named and named <= outside:
        raise binding.error(
            f"{call.function} is an aggregate of the query around this one", node, hint="aggregate in that query"
        )


def require_near(binding: Binding, ties: Sequence[Expression], *relations: Relation) -> None:
    """Refuses ties to columns that neither side has: they are those of a query farther out."""
    far = frozenset[str]().union(*map(columns_of, ties)) - {name for one in relations for name in one.schema.names}
    if far:
        name = min(far)
        raise Beyond(binding.error(f"{name.rpartition('.')[2]} belongs to a query farther out", None), name)


def rename(relation: Relation, names: dict[str, str]) -> Relation:
    """The relation with other column names."""
    if isinstance(relation, Project):
        return Project(relation.input, tuple(Named(names[c.name], c.expression) for c in relation.columns))
    return Project(relation, tuple(Named(names[f.name], Column(f.name, f.type)) for f in relation.schema))
