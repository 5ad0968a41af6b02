"""Marks: every tuple of an old box knows which of its parts were in the box when a migration began.

A marked plan is the plan with one more column per source, true for what is old. Selections and projections pass the
marks on, joins put them together, a union makes one mark of those of each branch. A combined tuple is old if any of its
parts is, so the root of the marked plan keeps what has a true mark and drops the marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import Call, Column, Expression, Named
from midstream.errors import InternalError
from midstream.migration.legality import keeps_intervals
from midstream.operators.elements import Elements
from midstream.operators.state.segment import Segment
from midstream.operators.state.sorted_state import SortedState

Rule = Callable[[tuple[Expression, ...]], Expression]

SUFFIX = "#old"


def any_part_old(marks: tuple[Expression, ...]) -> Expression:
    """A combined tuple is new only if all its parts are."""
    return marks[0] if len(marks) == 1 else Call("or", marks, pa.bool_())


def marked_plan(plan: p.PhysicalNode, rule: Rule = any_part_old) -> p.PhysicalNode:
    """The plan that gives only results with old parts, decided at the top of its joins and nowhere below."""
    if keeps_intervals(plan):
        inner = _marked(plan)
        return p.Filter(plan.schema, inner, rule(tuple(Column(name, pa.bool_()) for name in marks_of(inner.schema))))
    return p.with_inputs(plan, lambda child: marked_plan(child, rule))


def marked_fragment(plan: p.PhysicalNode, is_root: bool) -> p.PhysicalNode:
    """A fragment of a plan with marks; one whose output goes on to another gives all of it, each row with one mark."""
    return marked_plan(plan) if is_root else _with_one_mark(_marked(plan), plan.schema)


def with_output_mark(schema: pa.Schema) -> pa.Schema:
    """The schema of what a marked fragment gives to another."""
    return _extended(schema, [SUFFIX])


def marks_of(schema: pa.Schema) -> list[str]:
    """The names of a schema's marks."""
    return [name for name in schema.names if name.endswith(SUFFIX)]


def mark_of(alias: str) -> str:
    """The mark of a source."""
    return f"{alias}.{SUFFIX}"


def _marked(node: p.PhysicalNode) -> p.PhysicalNode:
    match node:
        case p.SourceNode():
            return replace(node, schema=_extended(node.schema, [mark_of(node.stream.alias)]))
        case p.Filter() | p.Unnest() | p.WindowBounds(keeps_intervals=True):
            inner = _marked(node.input)
            return replace(node, input=inner, schema=_extended(node.schema, marks_of(inner.schema)))
        case p.Compute():
            inner = _marked(node.input)
            marks = marks_of(inner.schema)
            passed = tuple(Named(name, Column(name, pa.bool_())) for name in marks)
            return replace(node, input=inner, schema=_extended(node.schema, marks), columns=(*node.columns, *passed))
        case p.HashJoin():
            left, right = _marked(node.left), _marked(node.right)
            marks = [*marks_of(left.schema), *marks_of(right.schema)]
            return replace(node, left=left, right=right, schema=_extended(node.schema, marks))
        case p.MultiwayJoin():
            return _marked_multiway(node)
        case p.Concatenate():
            branches = tuple(_with_one_mark(_marked(branch), branch.schema) for branch in node.united)
            return replace(node, united=branches, schema=branches[0].schema)
    raise InternalError(f"{node.label} cannot carry marks")


def _marked_multiway(node: p.MultiwayJoin) -> p.PhysicalNode:
    joined = tuple(_marked(child) for child in node.joined)
    marks = [marks_of(child.schema) for child in joined]
    routes = []
    for start, route in enumerate(node.routes):
        so_far = list(marks[start])
        steps = []
        for step in route:
            so_far = [*so_far, *marks[step.target]]
            steps.append(replace(step, gathered=_extended(step.gathered, so_far)))
        routes.append(tuple(steps))
    schema = _extended(node.schema, [name for names in marks for name in names])
    return replace(node, joined=joined, routes=tuple(routes), schema=schema)


def _with_one_mark(node: p.PhysicalNode, payload: pa.Schema) -> p.PhysicalNode:
    kept = [Named(f.name, Column(f.name, f.type)) for f in payload]
    mark = any_part_old(tuple(Column(name, pa.bool_()) for name in marks_of(node.schema)))
    columns = (*kept, Named(SUFFIX, mark))
    return p.Compute(_extended(payload, [SUFFIX]), node, columns)


def _extended(schema: pa.Schema, marks: Iterable[str]) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, pa.bool_()) for name in marks)])


def with_mark(batch: Elements, alias: str, old: bool) -> Elements:
    """Elements of a source, all marked alike."""
    return batch.with_columns(_all_marked(batch.columns, [mark_of(alias)], old))


def with_mark_received(batch: Elements, alias: str) -> Elements:
    """What another fragment gave, with its mark as that of a source."""
    names = [mark_of(alias) if name == SUFFIX else name for name in batch.columns.schema.names]
    return batch.with_columns(batch.columns.rename_columns(names))


def mark_segment(segment: Segment, schema: pa.Schema) -> Segment:
    """A segment of an old box under a marked schema: all of it is old."""
    marks = marks_of(schema)
    if not marks:
        return segment
    columns = _all_marked(segment.elements.columns, marks, True)
    return _with_columns(segment, columns)


def unmark_segment(segment: Segment, schema: pa.Schema) -> Segment:
    """A segment of a marked box as the unmarked box keeps it."""
    if segment.elements.columns.schema.names == schema.names:
        return segment
    columns = segment.elements.columns.select(schema.names)
    return _with_columns(segment, columns)


def _with_columns(segment: Segment, columns: pa.RecordBatch) -> Segment:
    elements = replace(segment.elements, columns=columns)
    return replace(segment, stored=elements, place=None, narrowed=None, views={}, sizes=[])


def _all_marked(columns: pa.RecordBatch, marks: list[str], old: bool) -> pa.RecordBatch:
    column = pa.repeat(old, columns.num_rows)
    arrays = [*columns.columns, *([column] * len(marks))]
    return pa.RecordBatch.from_arrays(arrays, schema=_extended(columns.schema, marks))


def holds_old(states: Iterable[SortedState], frontier: int) -> bool:
    """Whether some states hold a row with an old part that can still meet another."""
    return any(_marked_old(state, frontier) for state in states)


def _marked_old(state: SortedState, frontier: int) -> bool:
    names = [name for name in state.schema.names if name.endswith(SUFFIX)]
    for segment in state.segments:
        alive = segment.elements.valid_to > frontier
        for name in names:
            if (segment.elements.columns.column(name).to_numpy(zero_copy_only=False) & alive).any():
                return True
    return False
