"""What SELECT asks for: values with names, of which `*` and `COLUMNS(…)` stand for several."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.expressions import Expression, Literal
from midstream.algebra.types import TEXT, show_type
from midstream.language.binding import match_name
from midstream.language.nodes import Node, column_named
from midstream.language.outputs import item_name
from midstream.language.scalars import ScalarBinder

MOST_COLUMNS = 2_000

Items = list[tuple[str, Expression]]
"""Wanted names and values."""


def bind_items(binder: ScalarBinder, node: exp.Select) -> Items:
    """The names and values of a SELECT."""
    items: Items = []
    for position, item in enumerate((one for written in node.expressions for one in _several(binder, written)), 1):
        star = item if isinstance(item, exp.Star) else item.this if isinstance(item.this, exp.Star) else None
        if star is not None and isinstance(item, exp.Star | exp.Column):
            items += _chosen(binder, star, _all_of(binder, item))
        elif isinstance(item, exp.Alias):
            items.append((item.alias, binder.bind(item.this)))
            binder.given[item.alias.casefold()] = items[-1][1]
        else:
            bound = binder.bind(item)
            items.append((item_name(item, binder.scope, position), bound))
    if len(items) > MOST_COLUMNS:
        raise binder.binding.error(f"the query gives more than {MOST_COLUMNS:,} columns", node)
    return items


def spread(binder: ScalarBinder, item: Node) -> list[Node]:
    """The values of an item: those of the columns that a star stands for, unless it replaces some."""
    star = item if isinstance(item, exp.Star) else item.this
    if not isinstance(star, exp.Star) or star.args.get("replace"):
        return [item.this] if isinstance(item, exp.Alias) else [item]
    names = [name for name, _ in _chosen(binder, star, _all_of(binder, item))]
    if (of := item.args.get("of")) is not None:
        return [exp.Anonymous(this="field", expressions=[of, exp.Literal.string(name)]) for name in names]
    return [column_named(name, item.args.get("table") and item.args["table"].name) for name in names]


def _several(binder: ScalarBinder, item: Node) -> list[Node]:
    """An item once for each column that `COLUMNS(*)` or `COLUMNS('pattern')` in it stands for."""
    calls = [c for c in item.find_all(exp.Anonymous) if c.name.upper() == "COLUMNS" and len(c.expressions) == 1]
    if not calls:
        return [item]
    chosen = calls[0].expressions[0]
    pattern = chosen.this if isinstance(chosen, exp.Literal) else None if isinstance(chosen, exp.Star) else ""
    if pattern == "" or any(call != calls[0] for call in calls):
        hint = "write COLUMNS(*) or COLUMNS('pattern'), the same throughout an item"
        raise binder.binding.error("COLUMNS needs a pattern", calls[0], hint=hint)
    try:
        names = [name for name, _ in binder.scope.everything() if pattern is None or re.search(pattern, name)]
    except re.error:
        raise binder.binding.error(f"{pattern!r} is no pattern", chosen) from None
    made = [item.transform(lambda part, n=name: column_named(n) if part == calls[0] else part) for name in names]
    return [one for one in made if isinstance(one, Node)]


def _all_of(binder: ScalarBinder, item: Node) -> Items:
    """The columns of `*` or `source.*`, or the fields of `struct.*`."""
    if isinstance(item, exp.Star):
        return list(binder.scope.everything())
    table, of = item.args.get("table"), item.args.get("of")
    if table is not None and (nested := binder.scope.nested(exp.Column(this=exp.Identifier(this="*"), table=table))):
        of = exp.Column(this=nested)
    if of is None:
        source = binder.scope.source(item.args["table"])
        return [(name, binder.bind(column_named(name, source.name))) for name in source.columns]
    struct = binder.bind(of)
    if not pa.types.is_struct(struct.type):
        raise binder.binding.error(f"{show_type(struct.type)} has no fields", item)
    names = [Literal(f.name, TEXT) for f in struct.type]
    return [(str(n.value), binder.call("field", [struct, n], [item, item], item)) for n in names]


def _chosen(binder: ScalarBinder, star: Node, columns: Items) -> Items:
    """Columns, without those that EXCLUDE names, and with the values and names that REPLACE and RENAME give some."""
    excluded, replaced, renamed = (star.args.get(word) or [] for word in ("exclude", "replace", "rename"))
    for name in [*excluded, *(item.args["alias"] for item in replaced if isinstance(item, exp.Alias))]:
        if not match_name(name, [column for column, _ in columns]):
            raise binder.binding.error(f"* has no column {name.name}", name)
    gone = {found for name in excluded for found in match_name(name, [column for column, _ in columns])}
    values = {item.alias.casefold(): binder.bind(item.this) for item in replaced}
    names = {item.this.name.casefold(): item.alias for item in renamed}
    for _, column in columns:
        binder.places.setdefault(str(column), star.meta.get("start"))
    kept = [(name, values.get(name.casefold(), column)) for name, column in columns if name not in gone]
    return [(names.get(name.casefold(), name), column) for name, column in kept]
