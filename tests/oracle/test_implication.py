"""Which conditions follow from others: whatever is said to follow does, value by value."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.expressions import Expression
from midstream.algebra.implication import excludes_null, implies
from midstream.algebra.plan import Relation, Select
from midstream.algebra.semantics.scalars import evaluator
from midstream.language import parse

SCHEMA = pa.schema([("v", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("ts", pa.int64())])
CATALOG = Catalog({"A": StreamDeclaration("A", SCHEMA, "ts")})
NAMES = [f"A.{name}" for name in SCHEMA.names]
VALUES = list(itertools.product([None, *range(-1, 7)], [None, 0.5, 2.0, 3.0, 9.5], [None, "", "a", "b", "c"], [0]))


def condition(text: str) -> Expression:
    found: Relation = parse(f"SELECT v FROM A [NOW] WHERE {text}", CATALOG)
    while not isinstance(found, Select):
        (found,) = found.inputs
    return found.predicate


def holds(predicate: Expression) -> list[bool]:
    value_of = evaluator(predicate, NAMES, CATALOG)
    return [value_of(row) is True for row in VALUES]


FOLLOWS = [
    ("v > 5", "v > 3"),
    ("v > 3", "v >= 4"),
    ("4 < v", "v > 3"),
    ("v BETWEEN 2 AND 4", "v >= 2"),
    ("v BETWEEN 2 AND 4", "v BETWEEN 0 AND 4"),
    ("v IN (1, 2)", "v IN (3, 2, 1)"),
    ("v IN (1, 2, 9) AND v < 5", "v IN (1, 2)"),
    ("v = 4", "v > 3 AND v <> 5 AND v IS NOT NULL"),
    ("v > 5", "v NOT IN (1, 2)"),
    ("v > 5", "v > 3 OR s = 'a'"),
    ("v = 1 OR v = 2", "v < 3"),
    ("x > 2.5 AND s = 'a'", "x > 2.0"),
    ("s IN ('a', 'b')", "s <> 'c'"),
    ("s >= 'b'", "s > 'a'"),
    ("v % 2 = 0 AND v > 1", "v % 2 < 1"),
    ("v > x", "v > x"),
]
DOES_NOT = [("v > 3", "v > 5"), ("v IN (1, 2, NULL)", "v = 1"), ("x > 2.0", "x >= 3.0"), ("v > 1 OR s = 'a'", "v > 1")]


@pytest.mark.parametrize(("given_text", "wanted"), FOLLOWS)
def test_a_condition_follows_from_a_stronger_one(given_text, wanted):
    assert implies([condition(given_text)], condition(wanted))


@pytest.mark.parametrize(("given_text", "wanted"), DOES_NOT)
def test_a_condition_does_not_follow_from_a_weaker_one(given_text, wanted):
    assert not implies([condition(given_text)], condition(wanted))


numbers = st.integers(0, 5)
atoms = st.one_of(
    st.builds("v {} {}".format, st.sampled_from(["<", "<=", "=", "<>", ">", ">="]), numbers),
    st.builds("x {} {}".format, st.sampled_from(["<", "<=", "=", "<>", ">", ">="]), st.sampled_from([0.5, 2.0, 3.0])),
    st.builds("v {} ({}, {})".format, st.sampled_from(["IN", "NOT IN"]), numbers, st.one_of(numbers, st.just("NULL"))),
    st.builds("v BETWEEN {} AND {}".format, numbers, numbers),
    st.builds("s {} '{}'".format, st.sampled_from(["<", "<=", "=", "<>", ">", ">="]), st.sampled_from("abc")),
    st.sampled_from(["v IS NULL", "s IS NOT NULL", "v IS NOT NULL", "v > x", "NOT (v > 2)"]),
)
conditions = st.recursive(
    atoms, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner), max_leaves=3
)


@given(st.lists(conditions, min_size=1, max_size=3), conditions)
def test_what_is_said_to_follow_is_true_of_every_value(known, wanted):
    predicates, found = [condition(text) for text in known], condition(wanted)
    together = [all(row) for row in zip(*map(holds, predicates), strict=True)]
    if implies(predicates, found):
        assert not any(given and not then for given, then in zip(together, holds(found), strict=True))
    for number, name in enumerate(NAMES):
        if excludes_null(predicates, name):
            assert not any(given and row[number] is None for given, row in zip(together, VALUES, strict=True))


def test_disjunctions_that_say_nothing_of_a_value_are_not_looked_at_case_by_case():
    unrelated = [condition(f"s = 'a{i}' OR x > {i}.5") for i in range(40)]
    assert implies([*unrelated, condition("v > 5")], condition("v > 3"))
    assert not implies(unrelated, condition("v > 3"))
