"""How the inputs of a join meet: a condition split into equal keys and the rest, for one probe or a whole route."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.expressions import Call, Column, Expression, columns_of, conjunction, conjuncts
from midstream.algebra.plan import Relation
from midstream.optimizer.equalities import KnownEqual

Names = frozenset[str]


def columns_read(expressions: Iterable[Expression]) -> Names:
    """The columns that some expressions read."""
    return frozenset(name for e in expressions for name in columns_of(e))


class SplitCondition:
    """A join condition as equal keys and the rest."""

    def __init__(self, pairs: list[tuple[Expression, Expression]], nulls_equal: bool, rest: list[Expression]) -> None:
        self.left = tuple(a for a, _ in pairs)
        self.right = tuple(b for _, b in pairs)
        self.nulls_equal = nulls_equal
        self.residual = conjunction(rest) if rest else None
        self.residual_columns = columns_read(rest)


def split_condition(on: Expression, left: Relation, right: Relation) -> SplitCondition:
    """A join's condition as equal keys of its two inputs and the rest."""
    return split_by(on, frozenset(left.schema.names), frozenset(right.schema.names))


def split_by(on: Expression, left: Names, right: Names) -> SplitCondition:
    """A condition as equal keys of columns on two sides and the rest; nulls are equal if no key is compared by `=`."""
    parts = conjuncts(on)
    strict = [_sides(c, "=", left, right) for c in parts]
    if not any(strict):
        loose = [_sides(c, "is_not_distinct_from", left, right) for c in parts]
        pairs = [s for s in loose if s]
        return SplitCondition(pairs, bool(pairs), [c for c, s in zip(parts, loose, strict=True) if not s])
    return SplitCondition([s for s in strict if s], False, [c for c, s in zip(parts, strict, strict=True) if not s])


def _sides(c: Expression, function: str, left: Names, right: Names) -> tuple[Expression, Expression] | None:
    """The two sides of an equality whose sides read different inputs, left one first."""
    if not (isinstance(c, Call) and c.function == function and _hashable(c.args[0].type)):
        return None
    a, b = c.args
    reads_a, reads_b = columns_of(a), columns_of(b)
    if not reads_a or not reads_b:
        return None
    if reads_a <= left and reads_b <= right:
        return a, b
    if reads_a <= right and reads_b <= left:
        return b, a
    return None


def _hashable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def route_of(
    start: int,
    order: tuple[int, ...],
    schemas: list[pa.Schema],
    conditions: tuple[Expression, ...],
    wanted: Names,
    extra: list[dict[str, Expression]],
) -> list[tuple[int, SplitCondition]]:
    """Each probe of a route with the conditions it decides; registers the keys that inputs must offer."""
    here = frozenset(schemas[start].names)
    waiting, route, known = list(conditions), [], KnownEqual()
    for target in order:
        there = frozenset(schemas[target].names)
        ready = [c for c in waiting if columns_of(c) <= here | there]
        waiting = [c for c in waiting if c not in ready]
        # What earlier probes of the route have made equal need not be compared again.
        fresh = [c for c in sorted(ready, key=str) if known.learns(c)]
        split = _probing(split_by(conjunction(fresh), here, there), schemas)
        for key in split.right:
            extra[target][key_name(key)] = key
        for key in split.left:
            for owner, schema in enumerate(schemas):
                if columns_of(key) <= frozenset(schema.names):
                    extra[owner][key_name(key)] = key
        route.append((target, split))
        here |= there
    return route


def _probing(split: SplitCondition, schemas: list[pa.Schema]) -> SplitCondition:
    """Keys that one input can compute; an equality over several inputs is checked after the probe instead."""
    pairs, rest = [], list(conjuncts(split.residual))
    for left, right in zip(split.left, split.right, strict=True):
        if any(columns_of(left) <= frozenset(schema.names) for schema in schemas):
            pairs.append((left, right))
        else:
            function = "is_not_distinct_from" if split.nulls_equal else "="
            rest.append(Call(function, (left, right), pa.bool_()))
    pairs.sort(key=lambda pair: str(pair[1]))  # one order of columns, so that routes share an index
    return SplitCondition(pairs, split.nulls_equal, rest)


def finished_route(
    start: int, route: list[tuple[int, SplitCondition]], inputs: tuple[p.PhysicalNode, ...]
) -> Iterable[p.ProbeStep]:
    """The probes of a route, each with all columns gathered so far."""
    so_far = inputs[start].schema
    for target, split in route:
        so_far = pa.schema([*so_far, *inputs[target].schema])
        yield p.ProbeStep(
            target, key_names(split.left), key_names(split.right), split.nulls_equal, split.residual, so_far
        )


def key_name(key: Expression) -> str:
    """The column that holds a key."""
    return key.name if isinstance(key, Column) else f"#{key}"


def key_names(keys: Iterable[Expression]) -> tuple[str, ...]:
    """The columns that hold some keys."""
    return tuple(map(key_name, keys))
