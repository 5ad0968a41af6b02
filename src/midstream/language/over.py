"""OVER: functions of the rows around a row.

They come after WHERE, GROUP BY and HAVING and before DISTINCT and LIMIT. Calls of one SELECT over equal partitions in
equal orders are computed together.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.borrowed_aggregates import IN_ORDER
from midstream.algebra.expressions import AggregateCall, Column, Expression, Literal, Named, columns_of
from midstream.algebra.over import (
    DEFAULT_FRAME,
    NEIGHBOURS,
    NUMBERED,
    ONLY_OVER,
    RANKINGS,
    SAME,
    Excluded,
    Frame,
    NamedOver,
    OrderKey,
)
from midstream.algebra.plan import Over, Project, Relation, is_raw
from midstream.algebra.time import plural
from midstream.algebra.types import INTEGER, TEXT, common_type, show_type
from midstream.errors import QueryError
from midstream.language.aggregates import Aggregates
from midstream.language.binding import Binding, match_name
from midstream.language.literals import coerce, months
from midstream.language.nested import told_apart
from midstream.language.nodes import Node
from midstream.language.over_streams import over_stream
from midstream.language.values import ValueBinder
from midstream.language.windows import require_window

FARTHEST = 2**31
"""How many rows away a frame may reach."""

Change = Callable[[Expression], Expression]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The keys and the order that calls share."""

    keys: tuple[Expression, ...]
    order: tuple[OrderKey, ...]


class Overs:
    """The calls with OVER of one SELECT, each with a unique name."""

    def __init__(self, binding: Binding, windows: Sequence[exp.Alias] = (), keys: Sequence[Column] = ()) -> None:
        self.binding, self.keys = binding, keys
        self.windows = {name.args["alias"]: name.this for name in windows}
        if len({name.alias.casefold() for name in windows}) < len(windows):
            raise binding.error("WINDOW defines a name twice", windows[-1])
        self.calls: dict[Partitioning, list[NamedOver]] = {}
        self.nodes: dict[str, Node] = {}

    def add(self, node: exp.Anonymous, name: str, inner: Callable[[], ValueBinder]) -> Column:
        """The column that holds the values of a call; `first_value(x, TRUE)` is `first_value(x) IGNORE NULLS`."""
        flags = [last for last in node.expressions[-1:] if isinstance(last, exp.Boolean)]
        if flags and SAME.get(name, name) in SAME.values():
            node = node.copy()
            node.set("ignore_nulls", node.expressions.pop().this)
        window = self._window(node.args["over"])
        binder = inner()
        keys = (*self.keys, *(self._key(binder, key) for key in window.args.get("partition_by") or ()))
        order = tuple(order_key(binder, key) for key in window.args.get("order") or ())
        frame, order = self._frame(binder, window.args.get("spec"), order)
        made = self._call(node, SAME.get(name, name), inner, window)
        made = replace(made, frame=frame, known=bool(node.args.get("ignore_nulls")) and made.call.function in ONLY_OVER)
        if window.args.get("gap") is not None:
            keys, made = (*keys, self._session(window, inner, keys, order)), replace(made, frame=Frame(end=None))
        return self._added(Partitioning(keys, order), made, node)

    def _session(
        self, window: Node, inner: Callable[[], ValueBinder], keys: tuple[Expression, ...], order: tuple[OrderKey, ...]
    ) -> Column:
        """How many rows of the partition up to a row have come a gap or more after the one before them."""
        if len(order) != 1 or order[0].descending:
            raise self.binding.error("SESSION WITH GAP needs an ORDER BY of one key, ascending", window)
        binder, time, gap = inner(), window.args["order"][0].this, window.args["gap"]
        over = exp.Window(partition_by=window.args.get("partition_by"), order=window.args["order"])
        before = self.add(exp.Anonymous(this="lag", expressions=[time], over=over), "lag", inner)
        passed = binder.call("-", [binder.bind(time), before], [time, time], window)
        late = binder.call(">=", [passed, binder.bind(gap)], [time, gap], window)
        started = NamedOver("", AggregateCall("count", (), INTEGER, where=late))
        return self._added(Partitioning(keys, order * 2), started, window)

    def _added(self, partitioning: Partitioning, made: NamedOver, node: Node) -> Column:
        calls = self.calls.setdefault(partitioning, [])
        for known in calls:
            if replace(known, name="") == made:
                return Column(known.name, known.type)
        number = sum(map(len, self.calls.values())) + 1
        calls.append(replace(made, name=f"{made.call.function} over {number}"))
        self.nodes[calls[-1].name] = node
        return Column(calls[-1].name, made.type)

    def names(self) -> frozenset[str]:
        """The columns that calls are."""
        return frozenset(call.name for calls in self.calls.values() for call in calls)

    def applied(
        self, relation: Relation, change: Change, read: Iterable[Expression], coming: Sequence[Expression]
    ) -> Relation:
        """The relation with the values of all calls; `change` says what their columns are there, `read` what is used.

        What nobody uses does not decide between rows that are equal in their order; when they came does.
        """
        if not self.calls:
            return relation
        raw = is_raw(relation)
        if not raw:
            require_window(self.binding, "OVER", relation)
        partitionings = [
            Partitioning(tuple(map(change, p.keys)), tuple(replace(o, key=change(o.key)) for o in p.order))
            for p in self.calls
        ]
        columns = [[_changed(call, change) for call in calls] for calls in self.calls.values()]
        used = [*read, *(key for p in partitionings for key in (*p.keys, *(o.key for o in p.order)))]
        used += [value for calls in columns for call in calls for value in call.reads]
        relation = narrowed(relation, used, coming)
        for partitioning, calls in zip(partitionings, columns, strict=True):
            keys, order = partitioning.keys, partitioning.order
            if raw:
                relation = over_stream(self.binding, relation, keys, order, calls, self.nodes)
            else:
                relation = Over(relation, keys, order, tuple(calls))
        return relation

    def _window(self, node: Node) -> Node:
        """What OVER says, with all that the window it names says."""
        name = node.args.get("alias")
        if name is None:
            return node
        found = match_name(name, [known.name for known in self.windows])
        if not found:
            raise self.binding.error(f"there is no window {name.name}", name, hint="name it: WINDOW w AS (…)")
        base = self._window(next(window for known, window in self.windows.items() if known.name == found[0]))
        whole = base.copy()
        for part in ("partition_by", "order", "spec", "gap"):
            if node.args.get(part):
                if base.args.get(part):
                    raise self.binding.error(f"the window {name.name} says this already", node)
                whole.set(part, node.args[part])
        return whole

    def _key(self, binder: ValueBinder, node: Node) -> Expression:
        bound = binder.bind(node)
        return coerce(bound, TEXT) if kind.is_null(bound.type) else told_apart(bound)

    def _call(self, node: exp.Anonymous, name: str, inner: Callable[[], ValueBinder], window: Node) -> NamedOver:
        if name in ONLY_OVER:
            return self._only_over(node, name, inner())
        if name in IN_ORDER and not node.args.get("order") and window.args.get("order"):
            node = node.copy()
            node.set("order", [key.copy() for key in window.args["order"]])
        return NamedOver("", Aggregates(self.binding).bound(node, name, inner()))

    def _only_over(self, node: exp.Anonymous, name: str, binder: ValueBinder) -> NamedOver:
        nodes = list(node.expressions)
        least = 0 if name in RANKINGS - NUMBERED else 1 if name in NEIGHBOURS else 2 if name == "nth_value" else 1
        most = 3 if name in NEIGHBOURS else least
        if not least <= len(nodes) <= most or any(isinstance(n, exp.Star) for n in nodes):
            takes = plural(least, "argument") if least == most else f"{least} to {most} arguments"
            raise self.binding.error(f"{name} takes {takes}, not {len(nodes)}", node)
        if node.args.get("distinct") or node.args.get("filter") is not None:
            raise self.binding.error(f"{name} takes neither DISTINCT nor FILTER", node)
        if node.args.get("order"):
            raise self.binding.error(f"{name} takes rows as OVER orders them", node, hint="write the order in OVER")
        number: int | None = 1
        told: tuple[Expression, ...] = ()
        if name in NUMBERED and len(nodes) > (0 if name == "ntile" else 1):
            number, told = self._number(binder, name, nodes.pop(0 if name == "ntile" else 1))
        if number is not None and number < 0:
            name, number = ("lead" if name == "lag" else "lag"), -number
        values = [binder.bind(n) for n in nodes]
        if name in RANKINGS:
            type_ = pa.float64() if name in ("percent_rank", "cume_dist") else INTEGER
            return NamedOver("", AggregateCall(name, (), type_), number=number)
        shared = values[0].type
        for value, at in zip(values[1:], nodes[1:], strict=True):
            both = common_type(shared, value.type)
            if both is None:
                raise self.binding.error(f"the default of {name} is {show_type(value.type)}", at)
            shared = both
        shared = TEXT if kind.is_null(shared) else shared
        args = (*(coerce(v, shared) for v in values), *told)
        return NamedOver("", AggregateCall(name, args, shared), number=number)

    def _number(self, binder: ValueBinder, name: str, node: Node) -> tuple[int | None, tuple[Expression, ...]]:
        """The number that a function is told, or the value of each row that is."""
        bound = self.binding.folded(binder.bind(node))
        if name != "ntile" and columns_of(bound) and kind.is_integer(bound.type):
            return None, (coerce(bound, INTEGER),)
        value = bound.value if isinstance(bound, Literal) else None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > FARTHEST:
            raise self.binding.error(f"{name} needs a whole number that is written out", node)
        if value < 1 and name not in NEIGHBOURS:
            raise self.binding.error(f"{name} counts from 1", node)
        return value, ()

    def _frame(
        self, binder: ValueBinder, node: Node | None, order: tuple[OrderKey, ...]
    ) -> tuple[Frame, tuple[OrderKey, ...]]:
        """A frame, and the order in a type in which its distances can be measured."""
        if node is None:
            return DEFAULT_FRAME, order
        unit = node.args["kind"]
        measured = unit == "range" and any(isinstance(node.args.get(which), Node) for which in ("start", "end"))
        if measured:
            if len(order) != 1:
                raise self.binding.error("RANGE with a distance needs an ORDER BY of one key", node)
            order = (replace(order[0], key=self._measurable(order[0].key, node)),)
        elif unit == "groups" and not order:
            raise self.binding.error("GROUPS needs an ORDER BY", node)
        key = order[0].key if measured else None
        start, end = (self._bound(binder, node, which, key) for which in ("start", "end"))
        excluded: Any = (node.args.get("excluded") or "").replace("NO OTHERS", "")
        if excluded not in get_args(Excluded):
            raise self.binding.error("EXCLUDE takes CURRENT ROW, GROUP, TIES or NO OTHERS", node)
        return Frame(unit, start, end, excluded), order

    def _measurable(self, key: Expression, node: Node) -> Expression:
        if kind.is_date(key.type):
            return coerce(key, pa.timestamp("us"))
        if kind.is_integer(key.type) or kind.is_floating(key.type):
            return coerce(key, INTEGER if kind.is_integer(key.type) else pa.float64())
        if kind.is_timestamp(key.type) or kind.is_duration(key.type):
            return key
        raise self.binding.error(
            f"RANGE cannot measure distances of {show_type(key.type)}", node, hint="order by a number or a time"
        )

    def _bound(self, binder: ValueBinder, node: Node, which: str, key: Expression | None) -> float | int | None:
        written, side = node.args[which], node.args.get(f"{which}_side")
        if written == "CURRENT ROW":
            return 0
        if written == "UNBOUNDED":
            if side != ("PRECEDING" if which == "start" else "FOLLOWING"):
                raise self.binding.error(f"no frame {which}s at UNBOUNDED {side}", node)
            return None
        if months(written):
            hint = "write days, for instance INTERVAL '31' DAY PRECEDING"
            raise self.binding.error("a frame cannot reach over months: they are not all as long", written, hint=hint)
        bound = self.binding.folded(binder.bind(written))
        with self.binding.at(written):
            distance = _distance(bound.value if isinstance(bound, Literal) else None, key)
        return -distance if side == "PRECEDING" else distance


def order_key(binder: ValueBinder, node: Node) -> OrderKey:
    """One key of ORDER BY."""
    bound = binder.bind(node.this)
    return ordered_by(node, coerce(bound, TEXT) if kind.is_null(bound.type) else bound)


def ordered_by(node: Node, value: Expression) -> OrderKey:
    """A value as a key of ORDER BY, in the direction that is written."""
    return OrderKey(value, bool(node.args.get("desc")), node.args.get("nulls") or "")


def _changed(over: NamedOver, change: Change) -> NamedOver:
    where = None if over.call.where is None else change(over.call.where)
    return replace(over, call=replace(over.call, args=tuple(map(change, over.call.args)), where=where))


def narrowed(relation: Relation, used: Iterable[Expression], coming: Sequence[Expression] = ()) -> Relation:
    """The columns of a relation that are used; what tells in which order rows came decides first between equal ones."""
    names = frozenset[str]().union(*map(columns_of, used))
    leading = [name for value in coming for name in columns_of(value) if name in relation.schema.names]
    kept = [relation.schema.field(name) for name in leading]
    kept += [f for f in relation.schema if f.name in names - set(leading)]
    kept = kept or [relation.schema.field(0)]
    if [f.name for f in kept] == relation.schema.names:
        return relation
    return Project(relation, tuple(Named(f.name, Column(f.name, f.type)) for f in kept))


def _distance(value: object, key: Expression | None) -> float | int:
    """A distance of a frame, in what its key's type counts in."""
    problem = QueryError("a frame needs a number of rows", hint="for instance ROWS 3 PRECEDING")
    if key is not None and (kind.is_timestamp(key.type) or kind.is_duration(key.type)):
        unit = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[key.type.unit]
        if not isinstance(value, dt.timedelta):
            raise QueryError("a frame over times needs an interval", hint="for instance INTERVAL '5' MINUTE PRECEDING")
        value = (value // dt.timedelta(microseconds=1)) * 1000 // unit
    elif key is not None and kind.is_floating(key.type):
        value = float(value) if isinstance(value, int | float | Decimal) else None
        problem = QueryError("a frame over numbers needs a number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise problem
    if value < 0 or (key is None and value > FARTHEST):
        raise QueryError("a frame's distance is no less than zero", hint="PRECEDING and FOLLOWING say the direction")
    return value
