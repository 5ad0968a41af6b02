"""ORDER BY of a query whose result is read as a whole: an order of its rows, by what the result has of them.

A result that comes bit by bit is in the order of time. An order that chooses rows (LIMIT) has had its effect.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import Column, Expression
from midstream.algebra.over import OrderKey
from midstream.errors import QueryError
from midstream.language.binding import Binding
from midstream.language.limits import position_of
from midstream.language.nodes import Node
from midstream.language.over import ordered_by
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.text import read

KEY = "#key"
"""The columns that hold the keys of a result's order begin with this."""


def result_order(query: str, schema: pa.Schema) -> list[OrderKey]:
    """The keys by which a finished result is sorted, up to the first that it does not have."""
    tree = read(query)
    if tree.args.get("limit") is not None or tree.args.get("offset") is not None:
        return []
    if held := [Column(f.name, f.type) for f in schema if f.name.startswith(KEY)]:
        order, rest = tree.args["order"], iter(held)
        several = len(held) - len(order) + 1
        times = [several if isinstance(written.this, exp.Star) else 1 for written in order]
        return [ordered_by(w, next(rest)) for w, n in zip(order, times, strict=True) for _ in range(n)]
    binding, found = Binding(query, Catalog({})), list[OrderKey]()
    scope = Scope(binding)
    scope.add("result", schema, schema.names, tree)
    binder = ScalarBinder(binding, scope, "ORDER BY")
    for written in tree.args.get("order") or ():
        try:
            found += [ordered_by(written, key) for key in _keys(binder, tree, written.this, schema)]
        except QueryError:
            break
    return found


def _keys(binder: ScalarBinder, tree: Node, key: Node, schema: pa.Schema) -> list[Expression]:
    if isinstance(key, exp.Star):
        return [Column(f.name, f.type) for f in schema if f.name not in ("valid_from", "valid_to", "ts")]
    items = tree.expressions if isinstance(tree, exp.Select) else []
    plain = not any(isinstance(item, exp.Star) or isinstance(item.this, exp.Star) for item in items)
    same = [i for i, item in enumerate(items) if key in (item, item.this if isinstance(item, exp.Alias) else item)]
    place = position_of(binder.binding, key, len(schema))
    named = isinstance(key, exp.Column) and not key.args.get("table") and key.name in schema.names
    if place is None and plain and same and not named:
        place = same[0]
    if place is not None:
        return [Column(schema.field(place).name, schema.field(place).type)]

    def unqualified(part: exp.Expr) -> exp.Expr:
        return exp.Column(this=part.this) if isinstance(part, exp.Column) and part.args.get("table") else part

    bare = key.copy().transform(unqualified)
    assert isinstance(bare, Node)
    return [binder.bind(bare)]
