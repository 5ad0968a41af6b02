"""Relations that no stream gives: VALUES, functions that give rows, SELECT without FROM.

They are made of one row without columns that is always there. Joined with anything else they are computed beside its
rows, so that a join with constants keeps no state and needs no window.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import Column, Named
from midstream.algebra.plan import Project, Relation, Select, Stream, Unnested, Window, streams_of
from midstream.algebra.windows import Unbounded
from midstream.language.binding import Binding, match_name
from midstream.language.nodes import Node

ONE_ROW = "one_row__"
"""The stream of the row that is always there; only whole tables can be asked together with it."""

TIME = "ts"


def one_row(binding: Binding, node: Node | None) -> Relation:
    """The row that is always there."""
    columns = pa.schema([pa.field(TIME, binding.time_type)])
    return Window(Stream(ONE_ROW, binding.alias(ONE_ROW, node), columns, TIME), Unbounded())


def time_type(tree: Node, catalog: Catalog) -> pa.DataType:
    """The type of the times of a query: that of the first stream it names."""
    for table in tree.find_all(exp.Table):
        for name in match_name(table.this, catalog.streams):
            return catalog.streams[name].domain.type
    return pa.int64()


def is_constant(plan: Relation) -> bool:
    """Whether a relation is computed of the row that is always there, row by row."""
    while isinstance(plan, Select | Project | Unnested):
        plan = plan.input
    return isinstance(plan, Window) and isinstance(plan.input, Stream) and plan.input.name == ONE_ROW


def is_timeless(plan: Relation, catalog: Catalog) -> bool:
    """Whether a relation is made of whole tables without a time, which is asked as in a database."""
    return catalog.finite and all(s.name == ONE_ROW or s.name in catalog.timeless for s in streams_of(plan))


def beside(base: Relation, constant: Relation) -> Relation:
    """Every tuple of a relation with every row of a constant one."""
    match constant:
        case Project(inner, columns):
            kept = tuple(Named(f.name, Column(f.name, f.type)) for f in base.schema)
            return Project(beside(base, inner), (*kept, *columns))
        case Select(inner) | Unnested(inner):
            return constant.with_inputs((beside(base, inner),))
    return base


def require_stream(binding: Binding, plan: Relation, node: Node) -> None:
    """Refuses what reads the row that is always there, where queries run for ever."""
    names = {stream.name for stream in streams_of(plan)}
    if binding.catalog.finite or ONE_ROW not in names:
        return
    if names == {ONE_ROW}:
        hint = "write for instance SELECT * FROM A [RANGE 10]; midstream query and ms.run answer without"
        raise binding.error("a query that keeps running needs a stream in FROM", node, hint=hint)
    raise binding.error(
        "a query that keeps running can only join constants with streams",
        node,
        detail="its results come of rows that arrive; a union, a group or an outer join of constants alone has none",
        hint="write constants into the other query of a union, or join with them by JOIN",
    )
