"""What does not depend on the tuple is computed once, before anything runs."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import (
    TRUE,
    Call,
    Case,
    Cast,
    Expression,
    Literal,
    Named,
    conjunction,
    conjuncts,
    rewrite,
)
from midstream.algebra.functions import SCALAR
from midstream.algebra.plan import Join, Project, Relation, Select
from midstream.algebra.semantics.scalars import evaluator

FALSE = Literal(False, pa.bool_())


def fold_constants(plan: Relation) -> Relation:
    """Constant parts of predicates and columns become literals; a selection by TRUE disappears.

    >>> from midstream.optimizer.rules.examples import show
    >>> show(fold_constants, "SELECT k FROM A [NOW] WHERE k > 1 + 2 AND 1 = 1", at=1)
    Select (A.k > (1 + 2)) AND (1 = 1)
    └─ Window [NOW]
       └─ Stream A
    becomes
    Select A.k > 3
    └─ Window [NOW]
       └─ Stream A
    """
    match plan:
        case Select(inner, predicate):
            folded = _condition(predicate)
            if folded == TRUE:
                return inner
            return plan if folded == predicate else Select(inner, folded)
        case Join(left, right, on, kind):
            folded = _condition(on)
            return plan if folded == on else Join(left, right, folded, kind)
        case Project(inner, columns):
            new = tuple(Named(c.name, rewrite(c.expression, _folded)) for c in columns)
            return plan if new == columns else Project(inner, new)
        case _:
            return plan


def _condition(predicate: Expression) -> Expression:
    parts = conjuncts(rewrite(predicate, _folded))
    if any(_never(part) for part in parts):
        return FALSE
    return conjunction(list(dict.fromkeys(parts)))


def _never(part: Expression) -> bool:
    """A condition counts only where it is true, so null is as good as false."""
    return isinstance(part, Literal) and not part.value


def _folded(expression: Expression) -> Expression:
    if isinstance(expression, Literal) or not expression.arguments:
        return expression
    if isinstance(expression, Call) and expression.function in ("and", "or"):
        return _logic(expression)
    if isinstance(expression, Call) and expression.function not in SCALAR:
        return expression
    if not isinstance(expression, Call | Cast | Case) or not _is_plain(expression.type):
        return expression
    constant = all(isinstance(a, Literal) for a in expression.arguments)
    return _computed(expression) if constant else expression


def _computed(expression: Expression) -> Expression:
    compute: Callable[[tuple[object, ...]], object]
    try:
        compute = evaluator(expression, [], Catalog({}))
        value = compute(())
        pa.scalar(value, expression.type)
    except Exception:  # what cannot be computed fails when, and only if, a tuple comes to it
        return expression
    return Literal(value, expression.type)


def _is_plain(kind: pa.DataType) -> bool:
    """Types whose values the oracle holds as a literal does; times it holds in ticks."""
    types = pa.types
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_float64(kind) or types.is_string(kind))


def _logic(expression: Call) -> Expression:
    """AND and OR lose the parts that cannot decide them, and end at one that does."""
    decides = expression.function == "or"
    kept: list[Expression] = []
    for part in expression.args:
        if isinstance(part, Literal) and part.value is decides:
            return Literal(decides, pa.bool_())
        if not (isinstance(part, Literal) and part.value is (not decides)):
            kept.append(part)
    if not kept:
        return Literal(not decides, pa.bool_())
    if len(kept) == 1:
        return kept[0]
    return expression if len(kept) == len(expression.args) else Call(expression.function, tuple(kept), pa.bool_())
