"""Sequences: `a FOLLOWED BY b`, and ASOF JOIN, which is the same seen from the second stream.

Equalities of ON between the two sides become keys; whatever else ON says filters the pairs.
"""

from __future__ import annotations

from sqlglot import exp

from midstream.algebra.expressions import TRUE, Call, Column, Expression, columns_of, conjunction, conjuncts
from midstream.algebra.plan import Relation, Sequence, Stream, walk_plan
from midstream.language.binding import Binding
from midstream.language.nodes import FollowedBy
from midstream.language.scalars import bind_condition
from midstream.language.scope import Scope
from midstream.language.windows import bind_duration, is_raw


def bind_step(binding: Binding, left: Relation, right: Relation, step: FollowedBy, scope: Scope) -> Relation:
    """One more step of a sequence."""
    asof = bool(step.args.get("asof"))
    for side in (left, right):
        _require_raw(binding, side, step)
    first, second = (right, left) if asof else (left, right)
    keys, rest = _keys(binding, step, scope, first, second)
    within = step.args.get("within")
    return Sequence(
        first,
        second,
        step.args.get("mode") or "recent",
        on=keys,
        within=None if within is None else _within(binding, within, first),
        condition=conjunction([c for c in rest if not (asof and _is_implied(c, first, second))]),
        outer=bool(step.args.get("outer")),
    )


def _require_raw(binding: Binding, side: Relation, step: FollowedBy) -> None:
    if not is_raw(side):
        word = "ASOF JOIN" if step.args.get("asof") else "FOLLOWED BY"
        raise binding.error(
            f"{word} takes streams, not windows",
            step,
            hint="leave the window out; WITHIN says how far apart the two may be",
        )


def _within(binding: Binding, node: exp.Expression, first: Relation) -> int:
    amount = bind_duration(binding, node, first.domain)  # type: ignore[arg-type]
    if amount < 0:
        raise binding.error("WITHIN cannot be negative", node)
    return amount


def _keys(
    binding: Binding, step: FollowedBy, scope: Scope, first: Relation, second: Relation
) -> tuple[tuple[tuple[Expression, Expression], ...], list[Expression]]:
    condition = step.args.get("on")
    if condition is None:
        return (), []
    bound = bind_condition(binding, condition, scope, first, second)
    keys, rest = [], []
    for part in conjuncts(bound):
        pair = _pair(part, set(first.schema.names), set(second.schema.names))
        if pair is None:
            rest.append(part)
        else:
            keys.append(pair)
    return tuple(keys), rest


def _pair(part: Expression, first: set[str], second: set[str]) -> tuple[Expression, Expression] | None:
    if not (isinstance(part, Call) and part.function == "="):
        return None
    a, b = part.args
    for left, right in ((a, b), (b, a)):
        if columns_of(left) and columns_of(right) and columns_of(left) <= first and columns_of(right) <= second:
            return left, right
    return None


def _is_implied(part: Expression, first: Relation, second: Relation) -> bool:
    """Whether a condition only says that the first is not later than the second, which a sequence means anyway."""
    if not (isinstance(part, Call) and part.function in ("<=", ">=")):
        return False
    early, late = part.args if part.function == "<=" else reversed(part.args)
    return _is_time(early, first) and _is_time(late, second)


def _is_time(expression: Expression, plan: Relation) -> bool:
    times = {f"{node.alias}.{node.time}" for node in walk_plan(plan) if isinstance(node, Stream)}
    return isinstance(expression, Column) and expression.name in times and len(times) == 1


def push_conditions(plan: Relation, parts: list[Expression]) -> tuple[Relation, list[Expression]]:
    """Conditions of WHERE that join earlier steps of a sequence, moved to the step that completes them.

    A later step then continues only what satisfies them. Conditions on one stream alone, or on the last step, stay.
    """
    if not isinstance(plan, Sequence) or not isinstance(plan.first, Sequence):
        return plan, parts
    first, below = plan.first, set(plan.first.schema.names)
    early = [p for p in parts if columns_of(p) <= below and _aliases(p) > 1]
    inner, left = push_conditions(first, early)
    assert isinstance(inner, Sequence)
    inner = _with_condition(inner, left)
    return plan.with_inputs((inner, plan.second)), [p for p in parts if p not in early]


def _with_condition(plan: Sequence, parts: list[Expression]) -> Sequence:
    condition = conjunction([*conjuncts(plan.condition), *parts]) if parts else plan.condition
    return Sequence(plan.first, plan.second, plan.mode, plan.on, plan.within, condition or TRUE, plan.outer)


def _aliases(expression: Expression) -> int:
    return len({name.partition(".")[0] for name in columns_of(expression)})
