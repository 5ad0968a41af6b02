"""The positive-negative representation: the same answers, and the same migrations, from signed tuples."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.generators import RELATIONAL, cases
from tests.migration.families import QUERIES, join_settings, rule_settings, topped_settings
from tests.profiles import examples

import midstream as ms
from midstream.algebra.semantics import evaluate
from midstream.cluster.finite_run import FiniteRun
from midstream.lab.papers import positive_negative
from midstream.lab.papers.positive_negative.signed_query import run_signed
from midstream.lab.papers.positive_negative.signs import consolidated, intervals, signed
from midstream.operators.elements import Elements

CHANGES = st.integers(0, 40)


def elements(rows):
    """(value, from, to) as a batch."""
    columns = pa.RecordBatch.from_pydict({"v": [row[0] for row in rows]})
    starts, ends = (pa.array([row[i] for row in rows], pa.int64()).to_numpy() for i in (1, 2))
    return Elements(columns, starts, ends)


def listed(batch):
    values = batch.columns.column(0).to_pylist()
    return sorted(zip(values, batch.valid_from.tolist(), batch.valid_to.tolist(), strict=True))


def test_an_element_is_a_positive_and_a_negative():
    assert listed(signed(elements([("a", 1, 5)]))) == [("a", 1, 1), ("a", 5, -1)]


def test_adjacent_elements_cancel_between_them():
    assert listed(consolidated(signed(elements([("a", 1, 5), ("a", 5, 9)])))) == [("a", 1, 1), ("a", 9, -1)]


def test_signs_describe_intervals_first_in_first_out():
    again = intervals(signed(elements([("a", 1, 5), ("a", 2, 9), ("b", 3, 4)])))
    assert listed(again) == [("a", 1, 5), ("a", 2, 9), ("b", 3, 4)]


@settings(max_examples=60)
@given(case=cases(RELATIONAL - {"bounds", "valid_until"}, most_rows=8), rows=st.sampled_from([1, 3, 50]))
def test_every_relational_query_answers_alike(case, rows):
    found = positive_negative.run(case.query, case.inputs, batch_rows=rows)
    same = ms.snapshot_equal(found, ms.reference(case.query, case.inputs))
    assert same, same


@examples(40)
@given(
    setting=st.one_of(join_settings(), topped_settings(), rule_settings(QUERIES)),
    rows=st.sampled_from([1, 3, 8]),
    at=CHANGES,
)
def test_genmig_over_signed_tuples_gives_the_same(setting, rows, at):
    assume("RSTREAM" not in setting.text)
    changes = [ms.Migration(at=at + 5 * i, plan=plan, strategy="genmig") for i, plan in enumerate(setting.plans[1:])]
    asked = setting.asked
    found = run_signed(asked.plan, asked.tables, asked.catalog, FiniteRun(setting.plans[0], changes, rows))
    same = ms.snapshot_equal(found, evaluate(asked.plan, asked.tables, asked.catalog))
    assert same, same


def test_other_strategies_are_refused():
    rows = pa.table({"ts": [1, 2], "k": [1, 1]})
    change = ms.Migration(at=2, plan="(B A)", strategy="moving_state")
    query = "SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
    with pytest.raises(ms.MigrationError, match="moving_state does not migrate the positive-negative representation"):
        positive_negative.run(query, {"A": rows, "B": rows}, migrations=[change])


def test_sequences_are_refused():
    rows = pa.table({"ts": [1, 2], "k": [1, 1]})
    with pytest.raises(ms.QueryError, match="the positive-negative representation has no Sequence"):
        positive_negative.run("SELECT A.k FROM A FOLLOWED BY B ALL", {"A": rows, "B": rows})
