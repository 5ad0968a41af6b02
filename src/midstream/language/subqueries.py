"""EXISTS and IN with a sub-query, as conditions of WHERE: semi-joins and anti-joins.

The conditions of the inner WHERE that name outer columns become the join's condition. NOT IN is null-aware: a tuple
stays only if the equality is false for every inner tuple, so the anti-join matches where it is true or null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from midstream.algebra.borrowed_aggregates import AGGREGATES
from midstream.algebra.declarations import AggregateFunction, Catalog
from midstream.algebra.expressions import Call, Expression, columns_of, conjunction
from midstream.algebra.functions import SYNONYMS
from midstream.algebra.plan import JoinKind, Relation
from midstream.algebra.types import BOOLEAN
from midstream.language.binding import Beyond
from midstream.language.dependent import Environment, Queries, dependent, require_near
from midstream.language.items import bind_items
from midstream.language.nodes import Node, all_of
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.unnesting import gives_rows
from midstream.language.windows import join_of


class ClauseBinder(Queries, Protocol):
    """Binds queries and the clauses of a SELECT."""

    def tuples(self, node: exp.Select, scope: Scope, environment: Environment) -> Relation:
        """The relation of FROM."""

    def where(
        self, node: exp.Select, relation: Relation, scope: Scope, environment: Environment, correlate: bool = False
    ) -> tuple[Relation, list[Expression]]:
        """The relation after WHERE, and the conditions that only the query around it can check."""


@dataclass(frozen=True, slots=True)
class SubqueryCondition:
    """A conjunct of WHERE that holds a sub-query; `needle` is what IN looks for."""

    node: Node
    query: Node
    negated: bool
    needle: Node | None

    @property
    def word(self) -> str:
        """How the condition is called in errors."""
        return ("NOT " if self.negated else "") + ("EXISTS" if self.needle is None else "IN")


def subquery_condition(node: Node) -> SubqueryCondition | None:
    """The condition as one with a sub-query, if it is one."""
    inner, negated = node, False
    while isinstance(inner, exp.Not):
        inner, negated = inner.this, not negated
    if isinstance(inner, exp.Exists):
        return SubqueryCondition(inner, inner.this, negated, None)
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        return SubqueryCondition(inner, inner.args["query"], negated, inner.this)
    return None


def move_conditions(select: exp.Select) -> None:
    """Moves conditions of inner joins that hold sub-queries to WHERE; that means the same unless a join pads them."""
    joins = [j for j in select.args.get("joins") or [] if isinstance(j, exp.Join)]
    if any(j.args.get("kind") in ("right", "full") for j in joins):
        return
    moved: list[Node] = []
    for join in joins:
        if join.args.get("kind") == "inner" and (on := join.args.get("on")) is not None and holds_query(on):
            moved.append(on)
            join.set("on", exp.true())
    if moved:
        where = select.args.get("where")
        select.set("where", exp.Where(this=all_of([*([where.this] if where is not None else []), *moved])))


def holds_query(node: Node) -> bool:
    """Whether a value holds a sub-query."""
    found = node.find_all(exp.Subquery, exp.Exists, exp.In)
    return any(not isinstance(part, exp.In) or part.args.get("query") is not None for part in found)


def apply_subquery(
    binder: ClauseBinder, relation: Relation, scope: Scope, condition: SubqueryCondition, environment: Environment
) -> Relation:
    """The relation, semi-joined or anti-joined with the sub-query of a condition."""
    inner, on, output = _inner(binder, relation, scope, condition, environment)
    if condition.needle is not None:
        on.append(_equality(binder, scope, condition, output))
    require_near(binder.binding, on, relation, inner)
    kind: JoinKind = "anti" if condition.negated else "semi"
    return join_of(binder.binding, f"{condition.word} (SELECT …)", relation, inner, conjunction(on), kind)


def _inner(
    binder: ClauseBinder, relation: Relation, scope: Scope, condition: SubqueryCondition, environment: Environment
) -> tuple[Relation, list[Expression], Sequence[Expression]]:
    """The inner relation, the join conditions it leaves to us, and its output columns."""
    query = condition.query
    if condition.needle is None and isinstance(query, exp.Select):  # what is selected does not matter
        kept = [item for item in query.expressions if not holds_query(item)]
        query.set("expressions", kept or [exp.Literal.number(1)])
    if is_plain(query, binder.binding.catalog):
        try:
            with binder.binding.attempt():
                return _plain(binder, scope, query.copy(), environment.apart())
        except Beyond:
            pass
    found = dependent(binder, query, scope, environment, relation)
    return found.relation, [Call(word, (a, b), BOOLEAN) for a, b, word in found.ties], found.outputs


def _plain(
    binder: ClauseBinder, scope: Scope, query: Node, environment: Environment
) -> tuple[Relation, list[Expression], list[Expression]]:
    assert isinstance(query, exp.Select)
    inner = Scope(binder.binding, outer=scope)
    relation = binder.tuples(query, inner, environment)
    relation, correlated = binder.where(query, relation, inner, environment, correlate=True)
    return relation, correlated, [e for _, e in bind_items(ScalarBinder(binder.binding, inner, "SELECT"), query)]


def is_plain(query: Node, catalog: Catalog, aggregated: bool = False) -> bool:
    """Whether a query only filters, so that its rows can be joined as they are, or, if so asked, aggregates all."""
    if not isinstance(query, exp.Select) or query.args.get("with_"):
        return False
    clauses = ("group", "having", "qualify", "kind", "limit", "offset", *(["distinct"] if aggregated else []))
    first = query.args.get("distinct") is not None and query.args["distinct"].args.get("on") is not None
    if first or any(query.args.get(key) is not None for key in clauses):
        return False
    if any(has_over(item) or has_unnest(item) for item in query.expressions):
        return False
    if aggregated:
        return True
    return not any(has_aggregate(item, catalog) for item in query.expressions)


def has_aggregate(node: Node, catalog: Catalog) -> bool:
    """Whether an aggregate of groups is called in a value."""
    names = [call.name.lower() for call in calls_of(node) if call.args.get("over") is None]
    own = [name for name in names if isinstance(catalog.functions.get(name), AggregateFunction)]
    return bool(own) or any(SYNONYMS.get(name, name) in AGGREGATES for name in names)


def has_over(node: Node) -> bool:
    """Whether a value looks at the rows around a row."""
    return any(call.args.get("over") is not None for call in calls_of(node))


def has_unnest(node: Node) -> bool:
    """Whether a value gives rows."""
    return any(map(gives_rows, calls_of(node)))


def calls_of(node: Node) -> Iterator[exp.Anonymous]:
    """The calls of a value; those of the sub-queries in it are theirs."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Select | exp.SetOperation))
    return (part for part in parts if isinstance(part, exp.Anonymous))


def _equality(
    binder: ClauseBinder, scope: Scope, condition: SubqueryCondition, output: Sequence[Expression]
) -> Expression:
    assert condition.needle is not None
    nodes = condition.needle.expressions if isinstance(condition.needle, exp.Tuple) else [condition.needle]
    if len(output) != len(nodes):
        wanted = "exactly one column" if len(nodes) == 1 else f"{len(nodes)} columns"
        raise binder.binding.error(
            f"the sub-query of IN gives {len(output)} columns", condition.query, hint=f"select {wanted}"
        )
    needle = ScalarBinder(binder.binding, scope, "WHERE")
    sides = zip(nodes, output, strict=True)
    equal = conjunction([needle.call("=", [needle.bind(n), o], [n, condition.query], condition.node) for n, o in sides])
    if not condition.negated:
        return equal
    return Call("or", (equal, Call("is_null", (equal,), BOOLEAN)), BOOLEAN)


def is_correlated(expression: Expression, inside: Relation) -> bool:
    """Whether an expression names columns that the inner query does not have."""
    return not columns_of(expression) <= set(inside.schema.names)
