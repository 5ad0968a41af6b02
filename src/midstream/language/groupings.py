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


def above_groupings(node: exp.Select, sets: list[exp.Tuple], binding: Binding) -> exp.Select | None:
    """A SELECT with OVER, QUALIFY or DISTINCT ON, which reads the groups as a table; None for any other."""
    asked = node.args.get("distinct")
    on = asked is not None and asked.args.get("on") is not None
    if not on and node.args.get("qualify") is None and not any(map(has_over, node.expressions)):
        return None
    keys, parts = [key for one in sets for key in one.expressions], dict[Node, str]()
    if any(isinstance(key, exp.Literal) for key in keys):
        hint = "group by names, or put the groupings into a sub-query"
        raise binding.error("OVER, QUALIFY and DISTINCT ON cannot stand beside groupings by numbers", node, hint=hint)

    def column(part: exp.Expr) -> exp.Expr:
        name = part.name.casefold() if isinstance(part, exp.Column | exp.Anonymous) else ""
        aggregated = isinstance(part, exp.Anonymous) and has_aggregate(part, binding.catalog) and not has_over(part)
        if isinstance(part, Node) and (part in keys or aggregated or name.partition("_")[0] == "grouping"):
            return column_named(parts.setdefault(part.copy(), f"#{len(parts)}"))
        return part

    groups, above = node.copy(), node.copy()
    for item in above.expressions:
        if isinstance(item, exp.Column | exp.Anonymous):
            item.replace(exp.Alias(this=item.copy(), alias=exp.Identifier(this=item.name, quoted=True)))
    for clause in ABOVE:
        groups.set(clause, None)
    for clause in ("from_", "joins", "where", "group", "having"):
        above.set(clause, None)
    above = cast(exp.Select, above.transform(column))
    items = [exp.Alias(this=part, alias=exp.Identifier(this=name, quoted=True)) for part, name in parts.items()]
    groups.set("expressions", items)
    above.set("from_", exp.From(this=exp.Subquery(this=groups, alias=exp.Identifier(this="#groups", quoted=True))))
    return above
