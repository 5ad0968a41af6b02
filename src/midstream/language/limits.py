"""ORDER BY, LIMIT, OFFSET and DISTINCT ON: the first rows of every snapshot.

They are functions over the whole snapshot, or over its rows with equal keys, and a condition on what these give. An
order without LIMIT says nothing of the result but how to read it (`result_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.expressions import AggregateCall, Call, Column, Expression, Literal, Named, conjunction
from midstream.algebra.over import Frame, NamedOver, OrderKey
from midstream.algebra.plan import Over, Project, Relation, Select
from midstream.algebra.types import BOOLEAN, INTEGER, TEXT
from midstream.errors import QueryError
from midstream.language.binding import Binding, match_name
from midstream.language.items import Items
from midstream.language.literals import coerce
from midstream.language.nodes import Node
from midstream.language.over import Change, order_key, ordered_by
from midstream.language.scalars import ScalarBinder
from midstream.language.scope import Scope
from midstream.language.windows import require_window

FIRST, PLACE, RANK, ALL = "#first", "#place", "#rank", "#all"


@dataclass(frozen=True, slots=True)
class Limit:
    """How many rows are left out, and how many are wanted of those that follow; `ties` adds the equals of the last.

    With `percent` that is so many of a hundred of all rows, rounded down.
    """

    skipped: int
    count: int | None
    ties: bool
    percent: bool = False


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Which of its rows a SELECT gives: a condition, the keys of DISTINCT ON, an order, and a limit."""

    qualify: Expression | None
    on: tuple[Expression, ...] | None
    order: tuple[OrderKey, ...]
    limit: Limit | None
    keys: tuple[Expression, ...] = ()
    """What the rows that are counted have in common."""
    coming: tuple[Expression, ...] = ()
    """What tells in which order they came."""

    @property
    def reads(self) -> tuple[Expression, ...]:
        """What is looked at to tell."""
        qualify = () if self.qualify is None else (self.qualify,)
        return (*qualify, *(self.on or ()), *(o.key for o in self.order))

    def changed(self, change: Change) -> GivenRows:
        """The same of values that are changed."""
        return GivenRows(
            None if self.qualify is None else change(self.qualify),
            None if self.on is None else tuple(map(change, self.on)),
            tuple(replace(o, key=change(o.key)) for o in self.order),
            self.limit,
            tuple(map(change, self.keys)),
        )


def wanted_of(
    node: exp.Select,
    select: ScalarBinder,
    items: Items,
    shorthands: dict[str, Node],
    together: tuple[Expression, ...] = (),
) -> GivenRows:
    """What QUALIFY, DISTINCT ON, ORDER BY and LIMIT of a SELECT say, whose items are bound already."""

    def binder(clause: str) -> ScalarBinder:
        made = ScalarBinder(select.binding, select.scope, clause, select.aggregates, select.subqueries, select.overs)
        made.shorthands, made.places = shorthands, select.places
        return made

    def key(one: Node, clause: str) -> Expression:
        place = position_of(select.binding, one, len(items))
        if place is None and isinstance(one, exp.Column) and not one.args.get("table"):
            found = match_name(one.this, [name for name, _ in items])
            place = next((i for i, (name, _) in enumerate(items) if name in found), None)
        value = binder(clause).bind(one) if place is None else items[place][1]
        return coerce(value, TEXT) if kind.is_null(value.type) else value

    def keys(one: Node) -> list[Expression]:
        return [value for _, value in items] if isinstance(one, exp.Star) else [key(one, "ORDER BY")]

    distinct, qualify = node.args.get("distinct"), node.args.get("qualify")
    on = None if distinct is None else distinct.args.get("on")
    return GivenRows(
        None if qualify is None else binder("QUALIFY").condition(qualify.this),
        None if on is None else tuple(key(one, "DISTINCT ON") for one in on.expressions),
        tuple(ordered_by(one, by) for one in node.args.get("order") or () for by in keys(one.this)),
        limit_of(select.binding, node),
        together,
    )


def limit_of(binding: Binding, node: Node) -> Limit | None:
    """What LIMIT, OFFSET and FETCH say; None if there are none of them."""
    count, skipped = node.args.get("limit"), node.args.get("offset")
    count = None if isinstance(count, exp.Null) else count
    if count is None and skipped is None:
        return None
    wanted = None if count is None else _rows(binding, count)
    ties, percent = bool(node.args.get("ties")), bool(node.args.get("percent"))
    if percent and (ties or (wanted or 0) > 100):
        raise binding.error("a percentage is at most 100, and takes no WITH TIES", count)
    if ties and node.args.get("order") is None:
        raise binding.error("WITH TIES needs an ORDER BY", count)
    return Limit(0 if skipped is None else _rows(binding, skipped), wanted, ties, percent)


def _rows(binding: Binding, node: Node) -> int:
    try:
        bound = binding.folded(ScalarBinder(binding, Scope(binding), "LIMIT").bind(node))
    except QueryError:
        bound = None
    found = bound.value if isinstance(bound, Literal) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 10**18:
        raise binding.error("LIMIT and OFFSET take a whole number", node)
    return found


def limited(
    binding: Binding,
    relation: Relation,
    order: Sequence[OrderKey],
    limit: Limit | None,
    keys: Sequence[Expression] = (),
) -> Relation:
    """The rows that LIMIT leaves of those with equal keys, with columns for their places."""
    if limit is None:
        return relation
    require_window(binding, "LIMIT", relation)
    columns = [NamedOver(PLACE, AggregateCall("row_number", (), INTEGER))]
    conditions = []
    if limit.skipped:
        conditions.append(_compared(">", PLACE, limit.skipped))
    if limit.percent and limit.count is not None:
        columns.append(NamedOver(ALL, AggregateCall("count", (), INTEGER), Frame("rows", None, None)))
        part = [Call("-", (Column(PLACE, INTEGER), Literal(limit.skipped, INTEGER)), INTEGER), Column(ALL, INTEGER)]
        sides = [Call("*", (v, Literal(n, INTEGER)), INTEGER) for v, n in zip(part, (100, limit.count), strict=True)]
        conditions.append(Call("<=", tuple(sides), BOOLEAN))
    elif limit.count is not None:
        if limit.ties:
            columns.append(NamedOver(RANK, AggregateCall("rank", (), INTEGER)))
        conditions.append(_compared("<=", RANK if limit.ties else PLACE, limit.skipped + limit.count))
    return Select(Over(relation, tuple(keys), tuple(order), tuple(columns)), conjunction(conditions))


def first_of_each(
    binding: Binding, relation: Relation, keys: Sequence[Expression], order: Sequence[OrderKey]
) -> Relation:
    """The first row of those with equal keys, with a column that says so."""
    require_window(binding, "DISTINCT ON", relation)
    first = NamedOver(FIRST, AggregateCall("row_number", (), INTEGER))
    rest = tuple(o for o in order if o.key not in keys)
    return Select(Over(relation, tuple(keys), rest, (first,)), _compared("<=", FIRST, 1))


def limited_result(binding: Binding, plan: Relation, node: Node, keys: Sequence[Expression] = ()) -> Relation:
    """A finished result, of which LIMIT leaves some rows; ORDER BY names its columns."""
    limit = limit_of(binding, node)
    scope = Scope(binding)
    scope.add("result", plan.schema, plan.schema.names, node)
    binder = ScalarBinder(binding, scope, "ORDER BY")
    order = [key for written in node.args.get("order") or [] for key in _result_keys(binder, plan, written)]
    if limit is None:
        return plan
    columns = tuple(Named(f.name, Column(f.name, f.type)) for f in plan.schema)
    return Project(limited(binding, plan, order, limit, keys), columns)


def limited_distinct(
    binding: Binding, plan: Relation, columns: Sequence[Named], wanted: GivenRows, node: Node
) -> Relation:
    """A distinct result, of which LIMIT leaves some rows; ORDER BY can only mean what is selected."""
    if wanted.limit is None and not node.args.get("keys"):
        return plan
    selected = {c.expression: Column(c.name, c.expression.type) for c in columns}
    for key, written in zip(wanted.order, node.args.get("order") or (), strict=False):
        if key.key not in selected:
            hint = "select the key too"
            raise binding.error("a distinct result can only be ordered by what it selects", written, hint=hint)
    if wanted.limit is None:
        return plan
    order = [replace(key, key=selected[key.key]) for key in wanted.order]
    kept = tuple(Named(c.name, Column(c.name, c.expression.type)) for c in columns)
    return Project(limited(binding, plan, order, wanted.limit, [selected[key] for key in wanted.keys]), kept)


def _result_keys(binder: ScalarBinder, plan: Relation, key: Node) -> list[OrderKey]:
    columns = [Column(f.name, f.type) for f in plan.schema]
    if isinstance(key.this, exp.Star):
        return [ordered_by(key, column) for column in columns]
    place = position_of(binder.binding, key.this, len(columns))
    return [order_key(binder, key) if place is None else ordered_by(key, columns[place])]


def position_of(binding: Binding, node: Node, count: int) -> int | None:
    """The item that a plain number in ORDER BY stands for, counted from zero; None if it is no number."""
    if not isinstance(node, exp.Literal) or node.args.get("is_string") or not node.this.isdecimal():
        return None
    number = int(node.this[:9])
    if not 1 <= number <= count:
        raise binding.error(f"SELECT has no item {node.this[:9]}", node, hint=f"it has {count}")
    return number - 1


def _compared(function: str, name: str, number: int) -> Expression:
    return Call(function, (Column(name, pa.int64()), Literal(number, INTEGER)), BOOLEAN)
