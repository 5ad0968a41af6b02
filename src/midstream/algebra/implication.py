"""Which conditions follow from others.

A condition that compares a value with constants is a test of that value: it is true of some values and of no null.
One test follows from others of the same value if every value that passes these passes it. What is not such a test
follows only from the same text, from one of its parts if it is a disjunction, or from all parts of one that is given.
The answer yes is always right; no means that nothing was found.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import pyarrow as pa

from midstream.algebra.expressions import Call, Expression, Literal, conjuncts

COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""What a comparison is called from the other side."""

MOST_CASES = 64
"""In how many ways disjunctions may be true together so that each is looked at."""


@dataclass(frozen=True, slots=True)
class ValueTest:
    """A comparison with constants: `in` and `<>` have several; whatever passes is no null."""

    subject: str
    type: pa.DataType
    how: str
    constants: tuple[Any, ...]

    def passes(self, value: Any) -> bool:
        """Whether a value meets the condition."""
        match self.how:
            case "in":
                return value in self.constants
            case "<>":
                return value not in self.constants
            case _:
                return COMPARED[self.how](value, self.constants[0])

    def follows_from(self, others: Iterable[ValueTest]) -> bool:
        """Whether every value that passes some tests, one of which at least is given, passes this one."""
        given = list(others)
        points = next((test.constants for test in given if test.how == "in"), None)
        if points is not None:
            left = [value for value in points if all(test.passes(value) for test in given)]
            return all(map(self.passes, left))
        if self.how == "<>":
            return all(any(not test.passes(value) for test in given) for value in self.constants)
        lower = self.how in (">", ">=")
        bounds = [t for t in given if t.how in ((">", ">=") if lower else ("<", "<="))]
        return self.how != "in" and any(self.passes(t.constants[0]) or t == self for t in bounds)


def implies(given: Iterable[Expression], wanted: Expression) -> bool:
    """Whether a condition is true wherever all the given ones are.

    >>> from midstream.algebra.expressions import Column, call
    >>> v, three, five = Column("v", pa.int64()), Literal(3, pa.int64()), Literal(5, pa.int64())
    >>> implies([call(">", v, five)], call(">", v, three)), implies([call(">", v, three)], call(">", v, five))
    (True, False)
    """
    known = [part for condition in given for part in conjuncts(condition)]
    texts = {str(condition) for condition in known}
    return all(str(part) in texts or _implied(known, part) for part in conjuncts(wanted))


def excludes_null(given: Iterable[Expression], subject: str) -> bool:
    """Whether a value that is null meets not all of the given conditions."""
    return any(test.subject == subject for condition in given for part in conjuncts(condition) for test in _tests(part))


def _implied(known: list[Expression], wanted: Expression) -> bool:
    if _is(wanted, "or") and any(implies(known, part) for part in _parts(wanted)):
        return True
    return _follows(known, wanted) or _follows_case_by_case(known, wanted)


def _follows(known: list[Expression], wanted: Expression) -> bool:
    """Whether a condition follows from tests among the given ones, whatever the others say."""
    if _is(wanted, "not") and _is(wanted.arguments[0], "is_null"):
        return excludes_null(known, str(wanted.arguments[0].arguments[0]))
    tests = [test for condition in known for test in _tests(condition)]
    return any(
        test.follows_from(alike)
        for test in _tests(wanted)
        if (alike := [o for o in tests if (o.subject, o.type) == (test.subject, test.type)])
    )


def _follows_case_by_case(known: list[Expression], wanted: Expression) -> bool:
    """Whether a condition follows from every way in which the given disjunctions can be true."""
    either = [condition for condition in known if _is(condition, "or")]
    if not either or prod(len(_parts(condition)) for condition in either) > MOST_CASES:
        return False
    others = [other for other in known if other is not either[0]]
    return all(implies([*others, part], wanted) for part in _parts(either[0]))


def _tests(condition: Expression) -> Iterator[ValueTest]:
    """The condition as a test of a value; nothing if it is none."""
    match condition:
        case Call("in", (subject, *constants)):
            yield from _tested(subject, "in", constants)
        case Call("not", (Call("in", (subject, *constants)),)):
            yield from _tested(subject, "<>", constants)
        case Call("=", (subject, Literal() as constant)) | Call("=", (Literal() as constant, subject)):
            yield from _tested(subject, "in", [constant])
        case Call(how, (subject, Literal() as constant)) if how in COMPARED:
            yield from _tested(subject, how, [constant])
        case Call(how, (Literal() as constant, subject)) if how in COMPARED:
            yield from _tested(subject, TURNED.get(how, how), [constant])


def _tested(subject: Expression, how: str, constants: Sequence[Expression]) -> Iterator[ValueTest]:
    literals = [constant for constant in constants if isinstance(constant, Literal)]
    values = [literal.value for literal in literals if literal.value is not None or how != "in"]
    comparable = all(value is not None and value == value for value in values)
    if not values or not comparable or len(literals) < len(constants) or len({x.type for x in literals}) > 1:
        return
    if pa.types.is_integer(subject.type) and how in ("<", ">"):
        how, values = (">=", [values[0] + 1]) if how == ">" else ("<=", [values[0] - 1])
    yield ValueTest(str(subject), literals[0].type, how, tuple(values))


def _is(condition: Expression, function: str) -> bool:
    return isinstance(condition, Call) and condition.function == function


def _parts(condition: Expression) -> tuple[Expression, ...]:
    """The parts of a disjunction, flattened."""
    if not _is(condition, "or"):
        return (condition,)
    return tuple(part for argument in condition.arguments for part in _parts(argument))
