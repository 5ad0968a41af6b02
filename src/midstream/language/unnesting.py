"""Functions that give rows: in FROM beside the rows to their left, in SELECT beside the rows that are selected.

Each is one list or several, read side by side. A place in them is one list more, and an outer join keeps a row whose
list is empty by giving it one null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.expressions import Column, Expression, Literal, Named, columns_of
from midstream.algebra.listings import ELEMENTS, LISTING, UNNESTING
from midstream.algebra.plan import Relation, Unnested
from midstream.algebra.types import INTEGER, TEXT, has_elements, show_type
from midstream.language.binding import Binding
from midstream.language.literals import coerce
from midstream.language.nodes import Node, at_same
from midstream.language.values import ValueBinder


def gives_rows(node: Node) -> bool:
    """Whether a call gives rows in SELECT, and is not made to give the list of them."""
    name, options = node.name.lower(), node.expressions[2:]
    every = name == "regexp_matches" and any(one.is_string and "g" in one.name for one in options)
    return (every or name in UNNESTING) and not node.args.get("listed")


Lists = list[tuple[str, Expression]]
"""Lists with the names of their elements."""


def rows_of_function(binder: ValueBinder, node: exp.Unnest, wanted: int) -> Lists:
    """What a function in FROM gives, for at most so many names."""
    call = node.expressions[0]
    name = call.name.lower()
    if LISTING.get(name, "").startswith("json_pairs"):
        pairs = exp.Anonymous(this=LISTING[name], expressions=call.expressions)
        call = exp.Anonymous(this="inline", expressions=[pairs])
    lists = _elements(binder, call, wanted) if call.name.lower() in ELEMENTS else [(name, _listed(binder, call))]
    if name.startswith("posexplode"):
        lists.insert(0, ("pos", places_in(binder, lists[0][1], 0, call)))
    if node.args.get("ordinality"):
        lists.append(("ordinality", places_in(binder, lists[0][1], 1, call)))
    if node.args.get("outer") or name.endswith("_outer"):
        return [(name, binder.call("list_or_null", [one], [call], call)) for name, one in lists]
    return lists


def places_in(binder: ValueBinder, one: Expression, first: int, node: Node) -> Expression:
    """The places of the elements of a list, counted from the first."""
    return binder.call("list_places", [one, Literal(first, INTEGER)], [node, node], node)


def _listed(binder: ValueBinder, call: exp.Anonymous) -> Expression:
    """The rows of a function in FROM as a list; one that gives a value gives one row."""
    function = LISTING.get(call.name.lower())
    if function is None:
        return binder.call("list_value", [binder.bind(call)], [call], call)
    return binder.bind(at_same(exp.Anonymous(this=function, expressions=call.expressions, listed=True), call))


def _elements(binder: ValueBinder, call: exp.Anonymous, wanted: int) -> Lists:
    """The lists of `unnest(…)`: structs and the entries of maps become columns where names are given to them."""
    if not call.expressions:
        raise binder.binding.error(f"{call.name} needs a list", call)
    lists: Lists = []
    for argument in call.expressions:
        one = list_of(binder, argument)
        fields = one.type.value_type
        spread = kind.is_struct(fields) and (wanted > len(call.expressions) or call.name.lower() == "inline")
        if spread or kind.is_map(binder.bind(argument).type):
            for name in (f.name for f in fields):
                lists.append((name, binder.call("list_field", [one, Literal(name, TEXT)], [argument] * 2, argument)))
        else:
            lists.append(("col" if call.name.lower().startswith("posexplode") else call.name.lower(), one))
    return lists


def list_of(binder: ValueBinder, node: Node) -> Expression:
    """A value that is a list; a map is the list of its entries."""
    bound = binder.bind(node)
    if kind.is_map(bound.type):
        return binder.call("map_entries", [bound], [node], node)
    if kind.is_null(bound.type):
        return binder.call("list_value", [], [], node)
    if not has_elements(bound.type):
        raise binder.binding.error(
            f"{show_type(bound.type)} has no elements", node, hint="unnest takes a list or a map"
        )
    return bound


def rows_of_values(binder: ValueBinder, node: exp.Values) -> Lists:
    """The columns of `VALUES (1, 'a'), (2, 'b')`, each as the list of its values."""
    rows = [row.expressions for row in node.expressions]
    width = len(rows[0])
    for row, written in zip(rows, node.expressions, strict=True):
        if len(row) != width:
            raise binder.binding.error(f"the rows of VALUES have {width} and {len(row)} values", written)
    return [(f"col{i}", _column(binder, [row[i] for row in rows], node)) for i in range(width)]


def named_elsewhere(names: list[str], columns: list[Column]) -> dict[str, Column]:
    """What other systems call the columns of VALUES and of `range`, which have no names of their own."""
    others = {"col0": "column1", "range": "id"}
    if names == [f"col{i}" for i in range(len(names))]:
        others = {name: f"column{i}" for i, name in enumerate(names, 1)}
    return {others[n]: column for n, column in zip(names, columns, strict=True) if n in others}


def _column(binder: ValueBinder, nodes: list[Node], node: Node) -> Expression:
    bound = binder.alike([binder.bind(one) for one in nodes], nodes)
    typed = [coerce(value, TEXT) if kind.is_null(value.type) else value for value in bound]
    return binder.call("list_value", typed, nodes, node)


@dataclass
class Unnests:
    """The lists that SELECT gives rows of, side by side."""

    binding: Binding
    lists: list[Named] = field(default_factory=list)

    def add(self, binder: ValueBinder, node: exp.Anonymous) -> Expression:
        """An element of the list of a call."""
        listed = node.name.lower() in LISTING
        if not listed and (
            len(node.expressions) != 1 or node.name.lower() in ("posexplode", "posexplode_outer", "inline")
        ):
            raise self.binding.error(
                f"{node.name} gives several columns", node, hint=f"write it in FROM: FROM A, {node.name}(…) AS t(a, b)"
            )
        bound = _listed(binder, node) if listed else list_of(binder, node.expressions[0])
        if node.name.lower().startswith("explode") and kind.is_map(binder.bind(node.expressions[0]).type):
            hint = f"write it in FROM: FROM A, {node.name}(A.m) AS t(k, v)"
            raise self.binding.error(f"{node.name} of a map gives two columns", node, hint=hint)
        if node.name.lower() == "explode_outer":
            bound = binder.call("list_or_null", [bound], [node], node)
        known = next((one for one in self.lists if one.expression == bound), None)
        if known is None:
            known = Named(self.binding.alias("#unnest", node), bound)
            self.lists.append(known)
        return Column(known.name, bound.type.value_type)

    def names(self) -> frozenset[str]:
        """The columns of elements."""
        return frozenset(one.name for one in self.lists)

    def applied(self, relation: Relation, over: Callable[[Expression], Expression]) -> Relation:
        """The relation with a row for each element."""
        waiting = [Named(one.name, over(one.expression)) for one in self.lists]
        while waiting:
            later = [one for one in waiting if columns_of(one.expression) & {other.name for other in waiting}]
            relation = Unnested(relation, tuple(one for one in waiting if one not in later))
            waiting = later
        return relation
