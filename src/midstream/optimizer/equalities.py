"""Equalities are transitive: `A.k = B.k` and `B.k = C.k` say that `A.k = C.k`.

A term is an expression over one input. Terms that conditions of the form `term = term` link form a class: where all of
them hold, all terms of the class are equal and none is null. Both sides of a comparison have one type, so a class has
one type too, and equality within it is transitive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from midstream.algebra.expressions import Call, Expression, Literal, call, columns_of


def equality(a: Expression, b: Expression) -> Expression:
    """`a = b`, with the smaller text first: one form for both ways to write it."""
    first, second = sorted((a, b), key=str)
    return call("=", first, second)


def sides(condition: Expression) -> tuple[Expression, Expression] | None:
    """The two sides of an equality."""
    if isinstance(condition, Call) and condition.function == "=" and len(condition.args) == 2:
        return condition.args[0], condition.args[1]
    return None


def classes(conditions: Iterable[Expression]) -> tuple[tuple[Expression, ...], ...]:
    """The classes of terms that the conditions make equal, each in order of text.

    >>> import pyarrow as pa
    >>> from midstream.algebra.expressions import Column
    >>> a, b, c = (Column(n, pa.int64()) for n in ("A.k", "B.k", "C.k"))
    >>> [[str(t) for t in terms] for terms in classes([call("=", b, a), call("=", b, c)])]
    [['A.k', 'B.k', 'C.k']]
    """
    known = KnownEqual()
    for condition in conditions:
        both = sides(condition)
        if both is not None and all(columns_of(side) for side in both):
            known.learns(condition)
    ordered = [tuple(sorted(g, key=str)) for g in known.groups]
    return tuple(sorted(ordered, key=lambda terms: str(terms[0])))


def closure(conditions: Sequence[Expression]) -> tuple[Expression, ...]:
    """The conditions and all equalities they imply, also those with constants.

    >>> import pyarrow as pa
    >>> from midstream.algebra.expressions import Column
    >>> a, b, c = (Column(n, pa.int64()) for n in ("A.k", "B.k", "C.k"))
    >>> [str(x) for x in closure([call("=", a, b), call("=", b, c), call("=", a, Literal(5, pa.int64()))])]
    ['(A.k = B.k)', '(A.k = C.k)', '(B.k = C.k)', '(A.k = 5)', '(B.k = 5)', '(C.k = 5)']
    """
    groups = classes(conditions)
    implied = [equality(a, b) for terms in groups for i, a in enumerate(terms) for b in terms[i + 1 :]]
    constants = [
        call("=", term, literal) for terms in groups for literal in _constants(terms, conditions) for term in terms
    ]
    known = set(implied) | set(constants)
    rest = [c for c in conditions if _canonical(c) not in known]
    return tuple(dict.fromkeys([*implied, *constants, *rest]))


class KnownEqual:
    """What has been made equal so far."""

    def __init__(self) -> None:
        self.groups: list[set[Expression]] = []

    def learns(self, condition: Expression) -> bool:
        """Whether a condition says something new; if so, it is known from now on."""
        both = sides(condition)
        if both is None:
            return True
        if any(set(both) <= group for group in self.groups):
            return False
        touched = [g for g in self.groups if g & set(both)]
        self.groups = [g for g in self.groups if not any(g is t for t in touched)]
        self.groups.append(set(both).union(*touched))
        return True


def _constants(terms: tuple[Expression, ...], conditions: Sequence[Expression]) -> list[Literal]:
    found = []
    for condition in conditions:
        match sides(condition):
            case (Literal() as literal, term) | (term, Literal() as literal) if term in terms:
                if literal not in found:
                    found.append(literal)
    return found


def _canonical(condition: Expression) -> Expression:
    match sides(condition):
        case (Literal() as literal, term) | (term, Literal() as literal):
            return call("=", term, literal)
        case (a, b):
            return equality(a, b)
    return condition
