"""A distinct that has nothing to remove disappears."""

from __future__ import annotations

from midstream.algebra.expressions import Column
from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    MultiJoin,
    Over,
    Project,
    Relation,
    Select,
)


def eliminate_distinct(plan: Relation) -> Relation:
    """A distinct over a relation whose tuples have a key is that relation.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(eliminate_distinct, "SELECT DISTINCT k, count(*) AS n FROM A [NOW] GROUP BY k")
    Distinct
    └─ Project A.k AS k, count(*) AS n
       └─ Aggregate count(*) by A.k
          └─ Window [NOW]
             └─ Stream A
    becomes
    Project A.k AS k, count(*) AS n
    └─ Aggregate count(*) by A.k
       └─ Window [NOW]
          └─ Stream A
    """
    match plan:
        case Distinct(inner) if key_of(inner) is not None:
            return inner
        case _:
            return plan


def key_of(plan: Relation) -> frozenset[str] | None:
    """Columns of which no two tuples of a snapshot have the same values; None if none are known.

    >>> from midstream.optimizer.rules.examples import example
    >>> sorted(key_of(example("SELECT DISTINCT k, v FROM A [NOW]")))
    ['k', 'v']
    """
    match plan:
        case Distinct(inner):
            return key_of(inner) or frozenset(inner.schema.names)
        case Aggregate(keys=keys):
            return frozenset(k.name for k in keys)
        case (
            Select(inner) | Over(inner) | Join(left=inner, kind="semi" | "anti") | Difference(inner) | Intersect(inner)
        ):
            return key_of(inner)
        case Join(left, right, kind="inner" | "left" | "right" | "full" as kind):
            return _joined_key([left, right]) if kind in ("inner", "left") else None
        case MultiJoin(joined):
            return _joined_key(list(joined))
        case Project(inner, columns):
            renamed = {c.expression.name: c.name for c in columns if isinstance(c.expression, Column)}
            return _projected_key(key_of(inner), renamed)
    return None


def _joined_key(inputs: list[Relation]) -> frozenset[str] | None:
    keys = [key_of(relation) for relation in inputs]
    if any(key is None for key in keys):
        return None
    return frozenset(name for key in keys if key is not None for name in key)


def _projected_key(key: frozenset[str] | None, renamed: dict[str, str]) -> frozenset[str] | None:
    if key is None or not key <= renamed.keys():
        return None
    return frozenset(renamed[name] for name in key)
