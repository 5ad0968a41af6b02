"""Several groupings of one SELECT, each as a query of its own, or as a table for what reads all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from sqlglot import exp

from midstream.language.binding import Binding
from midstream.language.nodes import Node, column_named
from midstream.language.subqueries import has_aggregate, has_over

ABOVE = ("distinct", "qualify", "order", "limit", "offset", "ties", "percent", "windows", "keys", "kind", "with_")
"""What a SELECT says of all its groups together."""


def one_per_set(node: exp.Select, sets: list[exp.Tuple]) -> Iterator[exp.Select]:
    """The SELECT once for each set of keys; `grouping_id()` and `grouping__id` tell which keys of all are null."""
    whole = list(dict.fromkeys(key for keys in sets for key in keys.expressions))

    def numbered(part: exp.Expr) -> exp.Expr:
        asked = isinstance(part, exp.Column | exp.Anonymous) and not part.expressions
        called = asked and part.name.casefold().replace("__", "_") == "grouping_id"
        return exp.Anonymous(this="grouping_id", expressions=[key.copy() for key in whole]) if called else part

    for keys in sets:
        variant = cast(exp.Select, node.copy().transform(numbered))
        others = [key.copy() for other in sets for key in other.expressions if key not in keys.expressions]
        group = exp.Group(expressions=[key.copy() for key in keys.expressions], others=others)
        group.meta.update(node.args["group"].meta)
        variant.set("group", group)
        for clause in ("distinct", "limit", "offset", *(() if node.args.get("keys") else ("order",))):
            variant.set(clause, None)
        yield variant


def above_groupings(node: exp.Select, binding: Binding) -> exp.Select | None:
    """A SELECT that reads its groups as a table, if it has to.

    That is where OVER, QUALIFY or DISTINCT ON stand beside several groupings, and where a sub-query names an aggregate
    of the query around it: `HAVING EXISTS (SELECT 1 FROM b WHERE b.x > max(a.x))`.
    """
    group, asked = node.args.get("group") or exp.Group(), node.args.get("distinct")
    keys = [key for one in group.args.get("sets") or [group] for key in one.expressions]
    on = asked is not None and asked.args.get("on") is not None
    wide = on or node.args.get("qualify") is not None or any(map(has_over, node.expressions))
    several, sources = wide and bool(group.args.get("sets")), _names(node)
    if not several and not any(_is_of(call, node, sources, binding) for call in node.find_all(exp.Anonymous)):
        return None
    if any(isinstance(key, exp.Literal) for key in keys) or group.args.get("all"):
        hint = "group by names, or put the groupings into a sub-query"
        raise binding.error("groups by number cannot be read by OVER or sub-queries beside them", node, hint=hint)
    parts = dict[Node, str]()

    def column(part: exp.Expr) -> exp.Expr:
        found = isinstance(part, Node) and part in keys
        if isinstance(part, exp.Column | exp.Anonymous) and part.find_ancestor(exp.Select) is not above:
            outer = isinstance(part, exp.Anonymous) or (found and part.args.get("table"))
            found = bool(outer) and _is_of(part, above, sources, binding)
        elif isinstance(part, exp.Column | exp.Anonymous):
            aggregated = isinstance(part, exp.Anonymous) and has_aggregate(part, binding.catalog) and not has_over(part)
            found = found or aggregated or part.name.casefold().partition("_")[0] == "grouping"
        if not found or not isinstance(part, Node):
            return part
        return column_named(parts.setdefault(part.copy(), f"#{len(parts)}"))

    groups, above = node.copy(), node.copy()
    for item in above.expressions:
        if isinstance(item, exp.Column | exp.Anonymous):
            item.replace(exp.Alias(this=item.copy(), alias=exp.Identifier(this=item.name, quoted=True)))
    having = above.args.get("having")
    for clause in (*ABOVE, "having"):
        groups.set(clause, None)
    for clause in ("from_", "joins", "where", "group", "having"):
        above.set(clause, None)
    above.set("where", None if having is None else exp.Where(this=having.this))
    above.transform(column, copy=False)
    named = {item.alias for item in node.expressions if isinstance(item, exp.Alias)}
    for loose in (c for item in above.expressions for c in item.find_all(exp.Column) if not c.name.startswith("#")):
        if loose.find_ancestor(exp.Select) is above and loose.name not in named:
            hint = f"add it to GROUP BY, or aggregate it, for instance max({loose.name})"
            raise binding.error(f"{loose.name} is neither grouped by nor aggregated", loose, hint=hint)
    items = [exp.Alias(this=part, alias=exp.Identifier(this=name, quoted=True)) for part, name in parts.items()]
    groups.set("expressions", items)
    above.set("from_", exp.From(this=exp.Subquery(this=groups, alias=exp.Identifier(this="#groups", quoted=True))))
    return above


def _names(select: Node) -> set[str]:
    """What the sources of a SELECT are called."""
    first = select.args.get("from_")
    sources = [*([] if first is None else [first.this]), *(join.this for join in select.args.get("joins") or [])]
    return {str((one.args.get("alias") or one.this or one).name).casefold() for one in sources}


def _is_of(part: exp.Expr, select: Node, sources: set[str], binding: Binding) -> bool:
    """Whether what stands in a sub-query is an aggregate or a column of a SELECT around it, whose sources it names."""
    around = part.find_ancestor(exp.Select)
    named = {column.table.casefold() for column in part.find_all(exp.Column)}
    if around is select or not named or not named <= sources - {""} or not isinstance(part, exp.Column | exp.Anonymous):
        return False
    while around is not None and around is not select:
        if named & _names(around):
            return False
        around = around.find_ancestor(exp.Select)
    return around is select and (isinstance(part, exp.Column) or has_aggregate(part, binding.catalog))
