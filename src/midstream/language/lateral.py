"""LATERAL: a sub-query in FROM that names what stands to its left.

One that reads no stream is computed beside the tuples to its left. One that only filters is joined with them, and the
conditions of its WHERE that name them are the join's. Any other is computed for each of their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from midstream.algebra.expressions import Call, Column, Expression, Named, conjunction
from midstream.algebra.plan import JoinKind, Project, Relation
from midstream.algebra.types import BOOLEAN
from midstream.language.binding import Beyond
from midstream.language.dependent import Environment, dependent, require_near
from midstream.language.items import Items, bind_items
from midstream.language.nodes import Node
from midstream.language.outputs import unique_names
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.sources import SourceBinder
from midstream.language.subqueries import ClauseBinder, holds_query, is_plain
from midstream.language.windows import join_of

Found = tuple[Relation, Items]
"""The tuples to the left with those of a sub-query, and the sub-query's values there."""


def lateral_query(
    binder: ClauseBinder, node: Node, base: Relation, scope: Scope, environment: Environment, kind: JoinKind
) -> Project:
    """The tuples of a relation with what a sub-query gives beside each."""
    try:
        with binder.binding.attempt():
            found = _filtered(binder, node.copy(), base, scope, environment, kind)
    except Beyond:
        found = None
    relation, items = found or _any(binder, node, base, scope, environment, kind)
    require_near(binder.binding, [value for _, value in items], relation)
    names = unique_names([name for name, _ in items])
    kept = [Named(f.name, Column(f.name, f.type)) for f in base.schema]
    return Project(relation, (*kept, *(Named(n, v) for n, (_, v) in zip(names, items, strict=True))))


def _filtered(
    binder: ClauseBinder, node: Node, base: Relation, scope: Scope, environment: Environment, kind: JoinKind
) -> Found | None:
    """A sub-query that only filters and computes, if this is one."""
    distinct = node.args.get("distinct") is not None
    if not is_plain(node, binder.binding.catalog) or distinct or any(map(holds_query, node.expressions)):
        return None
    assert isinstance(node, exp.Select)
    binding, inner, start = binder.binding, Scope(binder.binding, outer=scope), node.args.get("from_")
    if start is None or isinstance(start.this, exp.Unnest | exp.Values):
        if kind == "left" and node.args.get("where") is not None:
            return None
        if kind == "left" and start is not None:
            start.this.set("outer", True)
        relation = SourceBinder(binding, environment, binder, base).bind(node, inner)
        relation, _ = binder.where(node, relation, inner, environment)
        return relation, bind_items(ScalarBinder(binding, inner, "SELECT"), node)
    right = binder.tuples(node, inner, environment.apart())
    right, tied = binder.where(node, right, inner, environment.apart(), correlate=True)
    items = bind_items(ScalarBinder(binding, inner, "SELECT"), node)
    if kind == "left" and not all(isinstance(value, Column) for _, value in items):
        return None
    return _joined(binder, base, right, tied, kind), items


def _any(
    binder: ClauseBinder, node: Node, base: Relation, scope: Scope, environment: Environment, kind: JoinKind
) -> Found:
    """A sub-query that is computed for each of the values that it names."""
    found = dependent(binder, node, scope, environment, base)
    items: Items = [(column.name.partition(".")[2], column) for column in found.outputs]
    return _joined(binder, base, found.relation, [Call(w, (a, b), BOOLEAN) for a, b, w in found.ties], kind), items


def _joined(
    binder: ClauseBinder, left: Relation, right: Relation, ties: Sequence[Expression], kind: JoinKind
) -> Relation:
    require_near(binder.binding, ties, left, right)
    return join_of(binder.binding, "a join", left, right, conjunction(list(ties)), kind)
