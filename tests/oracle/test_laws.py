"""Laws that tie the parts of the oracle to each other, over random queries."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.driving import numbered
from tests.generators import EVERYTHING, RELATIONAL, Case, cases

import midstream as ms
from midstream.algebra.semantics import coalesced
from midstream.algebra.semantics.inner_joins import pairs
from midstream.algebra.semantics.values import Row, row_identity
from midstream.algebra.semantics.windows import Element
from midstream.algebra.snapshots import multiset_equal
from midstream.algebra.time import INFINITY
from midstream.lab.fuzz.constructs import TO_STREAM
from midstream.lab.fuzz.sources import ENDLESS

elements = st.builds(
    lambda value, start, length: Element((value,), start, start + length),
    st.sampled_from([1, 2, None, float("nan"), 0.0, -0.0]),
    st.integers(0, 12),
    st.integers(1, 6),
)


def reference(query: str, case: Case) -> pa.Table:
    return ms.reference(query, case.inputs, time=case.time)


def body(case: Case, words: str = "") -> str:
    return f"SELECT {words} * FROM ({case.query}) AS whole"


def counted(table: pa.Table) -> dict[int, Counter]:
    """The rows of a stream per instant."""
    found: dict[int, Counter] = {}
    times = table.column(table.num_columns - 1).cast(pa.int64()).to_pylist()
    payload = [column.to_pylist() for column in table.columns[:-1]]
    for time, row in zip(times, zip(*payload, strict=True), strict=True):
        found.setdefault(time, Counter())[row_identity(row)] += 1
    return found


@given(st.lists(elements, max_size=12))
def test_coalescing_changes_no_snapshot_and_leaves_nothing_to_join(drawn: list[Element]) -> None:
    compact = coalesced(drawn)
    for instant in range(20):
        before, after = (
            Counter(row_identity(e.row) for e in group if e.start <= instant < e.end) for group in (drawn, compact)
        )
        assert before == after
    ends = {(row_identity(e.row), e.end) for e in compact}
    assert not ends & {(row_identity(e.row), e.start) for e in compact}


@given(st.lists(elements, max_size=12), st.lists(elements, max_size=12), st.booleans(), st.booleans())
def test_a_join_meets_all_pairs_of_one_instant(left: list[Element], right: list[Element], endless, equal) -> None:
    right += [Element((1,), 3, INFINITY)] * endless
    every = ((a.row + b.row, max(a.start, b.start), min(a.end, b.end)) for a, b in product(left, right))

    def holds(row: Row) -> bool | None:
        return None if None in row else row[0] == (row[1] if equal else 1)

    expected = [Element(row, start, end) for row, start, end in every if start < end and holds(row)]
    assert pairs(left, right, [holds], [(0, 0)] * equal) == expected


@given(cases(EVERYTHING), st.randoms(use_true_random=False))
def test_rows_that_tell_their_order_may_lie_in_any(case: Case, random) -> None:
    def shuffled(table: pa.Table) -> pa.Table:
        return numbered(table).take(pa.array(random.sample(range(table.num_rows), table.num_rows), pa.int64()))

    mixed = {name: shuffled(table) for name, table in case.inputs.items()}
    again = ms.reference(case.query, mixed, time=case.time)
    assert multiset_equal(reference(case.query, case), again)


@given(cases(RELATIONAL))
def test_what_enters_and_leaves_adds_up_to_the_relation(case: Case) -> None:
    relation = reference(case.query, case)
    entered, left = (counted(reference(body(case, word), case)) for word in ("ISTREAM", "DSTREAM"))
    current: Counter = Counter()
    starts, ends = (relation[name].cast(pa.int64()).to_pylist() for name in ("valid_from", "valid_to"))
    rows = [row_identity(row) for row in zip(*(c.to_pylist() for c in relation.columns[:-2]), strict=True)]
    for moment in sorted({*starts, *entered, *left, *(end for end in ends if end is not None)}):
        current += entered.get(moment, Counter())
        current -= left.get(moment, Counter())
        valid = Counter(
            row
            for row, start, end in zip(rows, starts, ends, strict=True)
            if start <= moment and (end is None or moment < end)
        )
        assert current == valid, f"at {moment}"
        assert not entered.get(moment, Counter()) & left.get(moment, Counter())


TICKING = RELATIONAL - {*ENDLESS, "hop", "tumble", "cumulate", "timestamp_time", "zoned_time"}
"""Queries that are looked at once per tick; those over nothing but hopping windows are so at boundaries only."""


@given(cases(TICKING))
def test_a_now_window_over_a_query_is_the_query(case: Case) -> None:
    windowed = reference(f"SELECT * FROM ({case.query}) [NOW] AS whole", case)
    assert ms.snapshot_equal(windowed, reference(case.query, case))


@given(cases(TICKING))
def test_rstream_gives_every_snapshot(case: Case) -> None:
    relation, stream = reference(case.query, case), counted(reference(body(case, "RSTREAM"), case))
    expected: dict[int, Counter] = {}
    for *row, start, end in zip(*(c.to_pylist() for c in relation.columns), strict=True):
        for instant in range(start, end):
            expected.setdefault(instant, Counter())[row_identity(tuple(row))] += 1
    assert stream == expected


@given(cases(EVERYTHING - TO_STREAM))
def test_a_sub_query_is_its_query(case: Case) -> None:
    found = reference(f"SELECT * FROM ({case.query}) AS one", case)
    assert multiset_equal(found, reference(case.query, case))


@given(cases(RELATIONAL - {"raw"}))
def test_a_query_less_itself_is_empty(case: Case) -> None:
    assert reference(f"({case.query}) EXCEPT ALL ({case.query})", case).num_rows == 0
