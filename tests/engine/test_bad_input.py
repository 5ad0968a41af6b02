"""What cannot be used is refused by name, or set aside and counted; nothing is lost without a count."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
from tests.engine import driving

import midstream as ms
from midstream.algebra.time import INFINITY
from midstream.cluster.local import embedded
from midstream.cluster.local.embedded import StreamProgress
from midstream.cluster.local.live_query import LiveQuery
from midstream.optimizer.plans import plan_query

A = pa.table({"ts": [10, 50, 30, 60, 20], "k": [1, 2, 3, 4, 5]})
QUERY = "SELECT k FROM A [RANGE 5]"
JOIN = "SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"


def counts(table: pa.Table) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(table.schema.metadata[b"midstream.dead_letters"])
    return found


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_rows_out_of_order_are_welcome_by_default(batch_rows: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ms.run(QUERY, {"A": A}, batch_rows=batch_rows)
    assert found["k"].to_pylist() == [1, 5, 3, 2, 4]
    assert not found.schema.metadata


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_rows_later_than_declared_are_counted_and_kept_apart(batch_rows: int) -> None:
    with pytest.warns(ms.DeadLetterWarning, match=r"1 of A \(late\)"):
        result = ms.run(QUERY, {"A": A}, lateness=20, batch_rows=batch_rows, full=True)
    found, dead = result.table, result.dead_letters
    assert found["k"].to_pylist() == [1, 3, 2, 4]
    assert counts(found) == {"A": {"late": 1}}
    assert [(d.stream, d.reason, d.rows.to_pylist()) for d in dead] == [("A", "late", [{"ts": 20, "k": 5}])]


def test_rows_without_a_time_are_counted() -> None:
    table = pa.table({"ts": [1, None, 3, None], "k": [1, 2, 3, 4]})
    with pytest.warns(ms.DeadLetterWarning):
        found = ms.run(QUERY, {"A": table})
    assert found["k"].to_pylist() == [1, 3] and counts(found) == {"A": {"null time": 2}}


def test_every_stream_and_reason_is_counted_by_itself() -> None:
    a = pa.table({"ts": [5, 1, None], "k": [1, 1, 1]})
    b = pa.table({"ts": [9, 1, 2], "k": [1, 1, 1]})
    with pytest.warns(ms.DeadLetterWarning):
        found = ms.run(JOIN, {"A": a, "B": b}, lateness={"A": 2, "B": 7})
    assert counts(found) == {"A": {"null time": 1, "late": 1}, "B": {"late": 1}}


def test_a_result_that_lost_rows_keeps_its_columns() -> None:
    with pytest.warns(ms.DeadLetterWarning):
        found = ms.run(QUERY, {"A": pa.table({"ts": pa.array([None], pa.int64()), "k": [1]})})
    assert found.num_rows == 0 and found.column_names == ["k", "valid_from", "valid_to"]


def test_streams_that_the_query_does_not_read_lose_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ms.run(QUERY, {"A": A, "B": pa.table({"ts": pa.array([None], pa.int64())})})


def test_mixed_types_are_refused() -> None:
    with pytest.raises(ms.InputError, match="A"):
        ms.run(QUERY, {"A": [{"ts": 1, "k": 1}, {"ts": 2, "k": "x"}]})
    with pytest.raises(ms.InputError, match="cannot cast 'x' to double"):
        ms.run(JOIN, {"A": A, "B": pa.table({"ts": [1], "k": ["x"]})})


def test_streams_whose_times_mean_different_things_are_refused() -> None:
    other = pa.table({"ts": pa.array([1], pa.timestamp("us")), "k": [1]})
    with pytest.raises(ms.MidstreamError, match="time"):
        ms.run(JOIN, {"A": A, "B": other})


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())])])
def test_lists_and_structs_are_taken_from_one_another(kind: pa.DataType) -> None:
    query = "SELECT k FROM A [RANGE 5] EXCEPT SELECT k FROM B [RANGE 5]"
    values = [[1], [2]] if pa.types.is_list(kind) else [{"x": 1}, {"x": 2}]
    a, b = pa.table({"ts": [1, 1], "k": pa.array(values, kind)}), pa.table({"ts": [1], "k": pa.array(values[:1], kind)})
    for answer in (ms.run, ms.reference):
        assert answer(query, {"A": a, "B": b})["k"].to_pylist() == values[1:]


def test_a_list_is_welcome_as_payload() -> None:
    table = pa.table({"ts": [1, 2], "k": [[1], [2, 3]]})
    assert ms.run(QUERY, {"A": table})["k"].to_pylist() == [[1], [2, 3]]


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_a_stream_that_ends_early_holds_nothing_up(batch_rows: int) -> None:
    a = pa.table({"ts": list(range(0, 100, 5)), "k": [i % 3 for i in range(20)]})
    inputs = {"A": a, "B": a.slice(0, 2)}
    for query in (JOIN, "SELECT A.k FROM A [RANGE 7] LEFT JOIN B [RANGE 7] ON A.k = B.k"):
        difference = ms.snapshot_equal(ms.run(query, inputs, batch_rows=batch_rows), ms.reference(query, inputs))
        assert difference, str(difference)


def test_an_empty_stream_holds_nothing_up() -> None:
    query = "SELECT A.k FROM A [RANGE 7] LEFT JOIN B [RANGE 7] ON A.k = B.k"
    assert sorted(set(ms.run(query, {"A": A, "B": A.slice(0, 0)})["k"].to_pylist())) == [1, 2, 3, 4, 5]


def test_a_query_that_has_ended_takes_nothing_more() -> None:
    relation, catalog = driving.question(QUERY, {"A": A})
    query = LiveQuery(plan_query(relation), catalog.functions)
    query.advance({"A": INFINITY})
    with pytest.raises(ms.InputError, match="has ended"):
        query.feed("A", driving.one_batch(A), np.asarray(A["ts"]))


def test_a_stream_that_has_ended_takes_nothing_more() -> None:
    _, catalog = driving.question(QUERY, {"A": A})
    stream = StreamProgress(catalog.streams["A"])
    stream.close()
    with pytest.raises(ms.InputError, match="stream A has ended"):
        stream.accept(driving.one_batch(A))


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 2**62])
def test_a_time_that_leaves_no_room_for_a_window_makes_a_dead_letter(time: int) -> None:
    rows = pa.table({"ts": [1, time, 2], "k": [1, 2, 3]})
    with pytest.warns(ms.DeadLetterWarning, match=r"1 of A \(time out of range\)"):
        result = ms.run(QUERY, {"A": rows}, full=True)
    found, dead = result.table, result.dead_letters
    assert found["k"].to_pylist() == [1, 3] and dead[0].rows["k"].to_pylist() == [2]
    assert ms.snapshot_equal(found, ms.reference(QUERY, {"A": rows}))


def test_a_time_of_64_bits_without_a_sign_makes_a_dead_letter() -> None:
    rows = pa.table({"ts": pa.array([1, 2**64 - 1, None], pa.uint64()), "k": [1, 2, 3]})
    with pytest.warns(ms.DeadLetterWarning, match="time out of range"):
        assert ms.run(QUERY, {"A": rows})["k"].to_pylist() == [1]


def test_an_unknown_scheduling_strategy_is_refused() -> None:
    with pytest.raises(ms.QueryError, match="nonsense"):
        ms.run(QUERY, {"A": A}, scheduling="nonsense")


@pytest.mark.parametrize("lateness", [-1, "soon", 1.5, True, "5 seconds"])
def test_a_lateness_that_is_none_is_refused(lateness: object) -> None:
    with pytest.raises(ms.MidstreamError):
        ms.run(QUERY, {"A": A}, lateness=lateness)  # type: ignore[arg-type]


@pytest.mark.parametrize("lateness", [None, 2**63, 2**70])
def test_rows_from_both_ends_of_time_are_not_late(lateness: int | None) -> None:
    far = pa.table({"ts": [-(2**62) + 1, 2**62 - 1, -(2**62) + 1], "k": [1, 2, 3]})
    for batch_rows in (1, 3):
        found = ms.run(QUERY, {"A": far}, lateness=lateness, batch_rows=batch_rows)
        assert found["k"].to_pylist() == [1, 3, 2] and not found.schema.metadata


@pytest.mark.parametrize("batch_rows", [0, -5])
def test_batches_must_have_rows(batch_rows: int) -> None:
    with pytest.raises(ms.QueryError, match="batch_rows"):
        ms.run(QUERY, {"A": A}, batch_rows=batch_rows)


class TestMoreThanOneBatchCanHold:
    """Arrow leaves a column of more than 2 GB of text in several pieces; here tables simply stay in theirs."""

    ROWS = pa.table(
        {"ts": pa.chunked_array([[1, 2], [3], [4, 5]]), "k": pa.chunked_array([["a"], ["b", "c"], ["d", "e"]])}
    )

    @pytest.mark.parametrize("batch_rows", [1, 2, 3])
    def test_no_row_is_lost(self, monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
        monkeypatch.setattr(embedded, "_joined", lambda table: table)
        query = "SELECT k FROM A [RANGE 2]"
        assert ms.run(query, {"A": self.ROWS}, batch_rows=batch_rows)["k"].to_pylist() == list("abcde")

    def test_a_batch_that_cannot_be_one_is_refused(self) -> None:
        with pytest.raises(ms.InputError, match="more than 2 GB of text"):
            embedded._only(self.ROWS.to_batches(), self.ROWS.schema)
