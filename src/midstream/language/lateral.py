"""LATERAL: a sub-query in FROM that names what stands to its left.

One that reads no stream is computed beside the tuples to its left. Any other is joined with them, and the conditions of
its WHERE that name them are the join's.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from midstream.algebra.expressions import Column, Named, conjunction
from midstream.algebra.plan import Join, JoinKind, Project, Relation
from midstream.language.nodes import Node
from midstream.language.outputs import unique_names
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.sources import Environment, SourceBinder
from midstream.language.subqueries import QueryBinder, is_plain
from midstream.language.windows import require_window


def lateral_query(
    binder: QueryBinder, node: Node, base: Relation, scope: Scope, environment: Environment, kind: JoinKind
) -> Project:
    """The tuples of a relation with what a sub-query gives beside each."""
    binding, inner = binder.binding, Scope(binder.binding, outer=replace(scope, outer=None))
    start = node.args.get("from_")
    alone = start is None or isinstance(start.this, exp.Unnest | exp.Values)
    if not is_plain(node, binding.catalog) or (kind == "left" and alone and node.args.get("where") is not None):
        raise binding.error(
            "a sub-query beside other tuples can only filter and compute",
            node,
            hint="join with a sub-query that groups by what ties it to the others",
        )
    assert isinstance(node, exp.Select)
    if alone:
        if kind == "left" and start is not None:
            start.this.set("outer", True)
        relation = SourceBinder(binding, environment, binder, base).bind(node, inner)
        relation, _ = binder.where(node, relation, inner, environment)
    else:
        found = binder.tuples(node, inner, environment)
        found, tied = binder.where(node, found, inner, environment, correlate=True)
        require_window(binding, base, "a join")
        require_window(binding, found, "a join")
        relation = Join(base, found, conjunction(tied), kind)
    items = binder.items(node, ScalarBinder(binding, inner, "SELECT"))
    if kind == "left" and not alone and not all(isinstance(value, Column) for _, value in items):
        raise binding.error("what is joined by LEFT JOIN LATERAL can only be columns", node)
    names = unique_names([name for name, _ in items])
    kept = [Named(f.name, Column(f.name, f.type)) for f in base.schema]
    return Project(relation, (*kept, *(Named(n, v) for n, (_, v) in zip(names, items, strict=True))))
