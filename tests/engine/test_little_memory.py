"""However little of a slice is looked at together, the snapshots are the oracle's."""

from __future__ import annotations

import contextlib
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generators import EVERYTHING, Case, cases

import midstream as ms
from midstream.operators.outer_join import OuterJoinOperator
from midstream.operators.slices import SliceOperator

pytestmark = pytest.mark.filterwarnings("ignore::midstream.errors.DeadLetterWarning")

EXAMPLES = settings().max_examples

QUERIES = {
    "counts and sums": "SELECT count(*) AS n, count(s) AS m, sum(v) AS a, sum(f) AS b, sum(d) AS c FROM {}",
    "least and greatest": "SELECT min(v) AS a, max(f) AS b, min(s) AS c, max(d) AS e, min(b) AS g, max(s) AS h FROM {}",
    "deviations": "SELECT avg(v) AS n, stddev(v) AS a, variance(f) AS b, stddev_pop(d) AS c, var_pop(f) AS e FROM {}",
    "different values": "SELECT count(DISTINCT v) AS a, sum(DISTINCT f) AS b, count(DISTINCT s) AS c FROM {}",
    "chosen rows": "SELECT sum(f) FILTER (WHERE b) AS x, count(DISTINCT s) FILTER (WHERE v > 1) AS y FROM {}",
    "few groups": "SELECT k, count(*) AS n, sum(f) AS b, stddev(v) AS c, min(s) AS e FROM {} GROUP BY k",
    "difference": "SELECT b FROM {} EXCEPT ALL SELECT b FROM {other}",
    "intersection": "SELECT b, k FROM {} INTERSECT ALL SELECT b, k FROM {other}",
    "left": "SELECT x.v, y.v AS w FROM {x} LEFT JOIN {y} ON x.v < y.v",
    "full": "SELECT x.v, y.v AS w FROM {x} FULL JOIN {y} ON x.k = y.k AND x.v < y.v",
    "right": "SELECT x.v, y.v AS w FROM {x} RIGHT JOIN {y} ON x.v > y.v + 1",
    "anti": "SELECT x.v FROM {x} WHERE NOT EXISTS (SELECT 1 FROM {y} WHERE x.v < y.v)",
    "semi": "SELECT x.v FROM {x} WHERE EXISTS (SELECT 1 FROM {y} WHERE x.v = y.v AND x.k < y.k)",
    "what enters": "SELECT ISTREAM b, k FROM {}",
    "what leaves": "SELECT DSTREAM b, count(*) AS n FROM {} GROUP BY b",
    "what is there": "SELECT RSTREAM k, v FROM {}",
    "rows": "SELECT k, v FROM A [PARTITION BY k ROWS 3]",
    "rows of all": "SELECT k, v FROM A [ROWS 7]",
    "sequence": "SELECT x.v, y.v AS w FROM A AS x FOLLOWED BY B AS y ON x.k = y.k WITHIN 9",
    "sequence of all": "SELECT x.v, y.v AS w FROM A AS x FOLLOWED BY B AS y ALL ON x.k = y.k WITHIN 9",
    "sequence in turn": "SELECT x.v, y.v AS w FROM A AS x FOLLOWED BY B AS y CHRONICLE ON x.k = y.k",
    "sequence without a key": "SELECT x.v, y.v AS w FROM A AS x FOLLOWED BY B AS y WITHIN 9",
}
WINDOWS = ("[RANGE 12]", "[HOP 12, 4]", "[UNBOUNDED]")

values = st.tuples(
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**62, -(2**62)])),
    st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.1, 1e300, -1e300, 5e-324])),
    st.one_of(st.none(), st.text("ab", max_size=2)),
    st.one_of(st.none(), st.integers(-(10**20), 10**20)),
    st.one_of(st.none(), st.booleans()),
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*sorted(rows, key=lambda row: row[0]), strict=True)) or [()] * 7
    amounts = [None if d is None else decimal.Decimal(d).scaleb(-2) for d in columns[5]]
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 2), pa.bool_())
    columns[5] = tuple(amounts)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=["ts", "k", "v", "f", "s", "d", "b"])


def written(name: str, window: str) -> str:
    text = QUERIES[name].replace("{x}", f"A {window} x").replace("{y}", f"B {window} y")
    return text.replace("{other}", f"B {window}").replace("{}", f"A {window}")


def check(query: str, inputs: dict[str, pa.Table], most: int, time: str = "ts", **how: Any) -> None:
    try:
        expected = ms.reference(query, inputs, time=time)
    except ms.InputError:
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SliceOperator, "most", most)
        patched.setattr(OuterJoinOperator, "at_once", 5)
        got = ms.run(query, inputs, time=time, **how)
    difference = ms.snapshot_equal(got, expected)
    assert difference, f"{difference}\n{query}"


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=EXAMPLES // 8)
@given(
    st.lists(values, max_size=30),
    st.lists(values, max_size=12),
    st.sampled_from(WINDOWS),
    st.sampled_from([40, 300, 2_000]),
    st.integers(3, 60),
)
def test_one_key_in_parts_is_what_it_is_at_each_instant(name, first, second, window, most, batch_rows):
    if name == "what is there" and window == "[UNBOUNDED]":
        window = "[RANGE 12]"
    check(written(name, window), {"A": table(first), "B": table(second)}, most, batch_rows=batch_rows)


@given(cases(EVERYTHING), st.sampled_from([1, 100, 1_000]))
def test_every_query_gives_the_same_in_parts(case: Case, most: int) -> None:
    with contextlib.suppress(ms.QueryError):
        ms.reference(case.query, case.inputs, time=case.time)
        check(case.query, case.inputs, most, case.time)


@pytest.mark.parametrize("name", ["rows of all", "sequence without a key"])
def test_what_has_to_be_in_memory_at_once_and_does_not_fit_is_an_error(name):
    inputs = {stream: table([(t, 0, t, 0.5, "a", 1, True) for t in range(20)]) for stream in "AB"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SliceOperator, "most", 40)
        patched.setattr(SliceOperator, "limit", 400)
        with pytest.raises(ms.InputError, match="needs more memory than memory_per_slot") as refused:
            ms.run(QUERIES[name], inputs)
    assert refused.value.detail is not None
    assert refused.value.detail.endswith("more than 400 bytes")
