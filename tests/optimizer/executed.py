"""Both sides of a rewrite, executed: by the oracle, and by the engine if it has what the plan asks for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa

import midstream as ms
from midstream.algebra.emission import emission_of
from midstream.algebra.expressions import Column, Named
from midstream.algebra.plan import Project, Relation, ToStream
from midstream.algebra.semantics import evaluate
from midstream.api import Question, ask
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run
from midstream.errors import DeadLetterWarning
from midstream.optimizer.plans import Plan

Rule = Callable[[Relation], Relation]


def bound(query: str, inputs: dict[str, pa.Table]) -> Question:
    """A query over tables, with a lateness that lets all rows in."""
    late = 10**6 if pa.types.is_integer(next(iter(inputs.values())).schema.field("ts").type) else "1 day"
    return ask(query, inputs, lateness=late)


def rewritten(plan: Relation, rule: Rule) -> Iterator[Relation]:
    """The plan with the rule applied at each node at which it does something, one at a time."""
    for path in _paths(plan):
        node = _at(plan, path)
        changed = rule(node)
        if changed != node:
            yield _with(plan, path, like(changed, node))


def like(changed: Relation, node: Relation) -> Relation:
    """Columns in the order of the original: a join's columns go by name, a result's also by place."""
    if changed.schema.names == node.schema.names or isinstance(changed, ToStream):
        return changed
    return Project(changed, tuple(Named(f.name, Column(f.name, f.type)) for f in node.schema))


def answers(plan: Relation, question: Question) -> pa.Table:
    """The engine's answer to a plan exactly as it stands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadLetterWarning)
        how = FiniteRun(Plan(plan, plan, emission_of(plan)), batch_rows=5)
        return run(plan, question.tables, question.catalog, how)


def assert_same(before: Relation, after: Relation, question: Question) -> None:
    inputs, catalog = question.tables, question.catalog
    assert after.schema == before.schema, f"{before}\nbecame\n{after}"
    want = evaluate(before, inputs, catalog)
    same = ms.snapshot_equal(evaluate(after, inputs, catalog), want)
    assert same, f"{before}\nbecame\n{after}\n{same}"
    run_too = ms.snapshot_equal(answers(after, question), want)
    assert run_too, f"the engine differs on\n{after}\n{run_too}"


def _paths(plan: Relation, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield path
    for i, child in enumerate(plan.inputs):
        yield from _paths(child, (*path, i))


def _at(plan: Relation, path: tuple[int, ...]) -> Relation:
    for i in path:
        plan = plan.inputs[i]
    return plan


def _with(plan: Relation, path: tuple[int, ...], part: Relation) -> Relation:
    if not path:
        return part
    inputs = list(plan.inputs)
    inputs[path[0]] = _with(inputs[path[0]], path[1:], part)
    return plan.with_inputs(tuple(inputs))
