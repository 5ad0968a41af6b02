"""Sequences: `a FOLLOWED BY b`, and what is the same seen from the second stream: ASOF JOIN and NOT FOLLOWED BY.

Equalities of ON between the two sides become keys, an inequality of their times becomes the order of the pair; whatever
else ON says filters the pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sqlglot import exp

from midstream.algebra.expressions import Call, Expression, columns_of, conjunction, conjuncts
from midstream.algebra.plan import (
    Match,
    Relation,
    RowsOverStream,
    Select,
    Sequence,
    SequenceMode,
    TimeOrder,
    is_raw,
    is_time,
    walk_plan,
)
from midstream.language.binding import Binding
from midstream.language.nodes import FollowedBy, Node, everything_of, flatten, lateral
from midstream.language.scalars import bind_condition
from midstream.language.scope import Scope
from midstream.language.temporal import ordered
from midstream.language.windows import bind_duration

MIRRORED: dict[str, TimeOrder] = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}
"""The same order said the other way round."""


def bind_step(binding: Binding, left: Relation, right: Relation, step: FollowedBy, scope: Scope) -> Relation:
    """One more step of a sequence."""
    asof, mode = bool(step.args.get("asof")), cast(SequenceMode, step.args.get("mode") or "recent")
    absent = mode == "none"
    for side in (left, right):
        _require_raw(binding, side, step)
    first, second = (right, left) if asof or absent else (left, right)
    keys, rest = _keys(binding, step, scope, first, second)
    order, rest = _order(rest, first, second, None if asof else absent)
    within, outer = step.args.get("within"), bool(step.args.get("outer"))
    if outer and within is None and order in (">=", ">"):
        raise binding.error(
            f"{'NOT FOLLOWED BY' if absent else 'ASOF LEFT JOIN with a later match'} needs WITHIN",
            step,
            detail="without a bound it is never known that a tuple has no later match, and it is remembered for ever",
            hint="say how much later a match may be: WITHIN " + ("100" if first.domain.is_integer else "10 MINUTES"),
        )
    return Sequence(
        first,
        second,
        mode,
        on=keys,
        within=None if within is None else _within(binding, within, first),
        condition=conjunction(rest),
        outer=outer,
        order=order,
    )


def nearest_by_value(binding: Binding, join: Node, name: str) -> Node:
    """ASOF JOIN of what is no stream: of the rows for which ON holds, the one that its inequality puts nearest."""
    on = join.args.get("on")
    for part in flatten(on, exp.And) if on is not None and join.args.get("within") is None else ():
        later, earlier, _ = ordered(part) or (part, part, True)
        named = [{column.table.casefold() for column in side.find_all(exp.Column)} for side in (later, earlier)]
        for side, own, other in zip((later, earlier), named, named[::-1], strict=True):
            if own == {name.casefold()} and not own & other:
                order = [exp.Ordered(this=side.copy(), desc=side is earlier), exp.Ordered(this=exp.Star())]
                rows = everything_of(
                    join.this.copy(), where=exp.Where(this=on), order=order, limit=exp.Literal.number(1)
                )
                first = lateral(rows, join.this, exp.Identifier(this=name))
                return exp.Join(this=first, kind="left" if join.args.get("outer") else "inner", on=exp.true())
    hint = f"write for instance ON a.k = {name}.k AND a.x >= {name}.x; WITHIN is for streams"
    raise binding.error("ASOF JOIN of windows and tables needs an inequality in ON", join, hint=hint)


def _require_raw(binding: Binding, side: Relation, step: FollowedBy) -> None:
    if not is_raw(side):
        word = "ASOF JOIN" if step.args.get("asof") else "FOLLOWED BY"
        hint = "leave the window out; WITHIN says how far apart the two may be"
        raise binding.error(f"{word} takes streams, not windows", step, hint=hint)
    if any(isinstance(node, RowsOverStream | Match) for node in walk_plan(side)):
        raise binding.error(
            "a sequence cannot read what OVER or MATCH_RECOGNIZE give", step, hint="use them above the sequence"
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
    bound = bind_condition(binding, condition, scope, None, first, second)
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


def _order(
    parts: list[Expression], first: Relation, second: Relation, later: bool | None
) -> tuple[TimeOrder, list[Expression]]:
    """What the time of a first is to that of its second, and the conditions that do not say it.

    A first is at or before its second, or at or after it if it is the `later` one; where that is None, as the first
    condition says. A condition against the direction of the others stays one: it filters.
    """
    said = {part: order for part in parts if (order := _time_order(part, first, second)) is not None}
    if later is None:
        later = next(iter(said.values()), "<=") in (">=", ">")
    allowed: tuple[TimeOrder, TimeOrder] = (">=", ">") if later else ("<=", "<")
    strict = allowed[1] in said.values()
    return allowed[strict], [part for part in parts if said.get(part) not in allowed]


def _time_order(part: Expression, first: Relation, second: Relation) -> TimeOrder | None:
    """What a condition says about the time of a first and the time of its second, if it says nothing else."""
    if not (isinstance(part, Call) and part.function in MIRRORED):
        return None
    left, right = part.args
    order: TimeOrder = part.function  # type: ignore[assignment]
    if is_time(left, first) and is_time(right, second):
        return order
    return MIRRORED[order] if is_time(left, second) and is_time(right, first) else None


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
    return plan.with_inputs((_filtered(inner, left), plan.second)), [p for p in parts if p not in early]


def _filtered(plan: Sequence, parts: list[Expression]) -> Relation:
    """The pairs for which conditions of WHERE hold, which never change what is paired with what."""
    if not parts:
        return plan
    if plan.mode == "chronicle" or plan.outer:
        return Select(plan, conjunction(parts))
    return replace(plan, condition=conjunction([*conjuncts(plan.condition), *parts]))


def _aliases(expression: Expression) -> int:
    return len({name.partition(".")[0] for name in columns_of(expression)})
