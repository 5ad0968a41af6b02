"""Rows that arrive where the first probes of a routed join read them: no exchange, and nothing counted twice."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.job.many import Many
from tests.job.test_routed_in_slots import PLAIN, WAYS, chain, right, tables
from tests.profiles import always

from midstream.api import ask
from midstream.distribution.fragments import Route

EVERYWHERE = "A <- B <- C, B <- A <- C, C <- B <- A"
MIXED = "A -> B <- C, B -> A -> C, C -> B <- A"


@pytest.mark.parametrize(("plan", "stages"), [(WAYS, 2), (EVERYWHERE, 1), (MIXED, 2)])
def test_the_first_probes_need_no_stage_of_their_own(plan, stages, tmp_path):
    inputs = tables()
    made = chain(PLAIN, inputs, tmp_path, plan)
    assert made.query.staged.stages == stages + 1
    for part in made.cut(inputs, 9):
        assert made.batch(part).stages == stages
    made.batch({}, end=True)
    right(made.results(), PLAIN, inputs)


def test_rows_are_counted_once_however_often_they_arrive(tmp_path):
    inputs = tables()
    made = chain(PLAIN, inputs, tmp_path, MIXED, slots=3)
    made.run(inputs, 9)
    assert made.manifest.streams.rows == {name: table.num_rows for name, table in inputs.items()}


def test_late_rows_are_buried_once(tmp_path):
    inputs, told = tables(), {}
    for plan in (MIXED, EVERYWHERE, "((A B) C)"):
        made = chain(PLAIN, inputs, tmp_path / plan, plan, slots=3)
        parts = made.cut(inputs, 10)
        for part in (*parts[:4], parts[0], *parts[4:]):
            made.batch(part)
        made.batch({}, end=True)
        right(made.results(), PLAIN, inputs)
        told[plan] = made.manifest.streams.late, sum(f.rows for f in made.manifest.outputs.dead_letters.newer)
    assert told[MIXED] == told[EVERYWHERE] == told["((A B) C)"] and told[MIXED][1] > 0


def test_a_stream_that_another_query_wants_by_a_key_arrives_for_both(tmp_path):
    inputs = tables()
    single = "SELECT A.v AS a, B.v AS b FROM A [RANGE 6], B [RANGE 5] WHERE A.v = B.v"
    made = Many(catalog=ask(PLAIN, inputs).catalog, folder=tmp_path, slots=3)
    made.add("tree", single)
    made.add("routed", PLAIN, wanted=MIXED)
    parts = made.cut(inputs, 9)
    for part in parts:
        batch = made.batch(part)
        assert batch.arrivals.routes["A"] == Route(("v",)) and batch.arrivals.copies
    made.batch({}, end=True)
    for name, text in (("tree", single), ("routed", PLAIN)):
        right(made.table(name), text, inputs)


def test_a_split_of_plans_reads_through_an_exchange(tmp_path):
    """The sides of a split keep rows for later, each where it arrived: no row may be there twice."""
    inputs = tables()
    made = chain(PLAIN, inputs, tmp_path, EVERYWHERE)
    parts = made.cut(inputs, 9)
    for number, part in enumerate(parts):
        if number == 3:
            made.migrate("((A B) C)", "genmig")
        batch = made.batch(part)
        if number == 3:
            assert not batch.arrivals.copies
        if number == 4:
            made.driver.cancel_migration("q")
    made.batch({}, end=True)
    right(made.results(), PLAIN, inputs)


def test_keys_that_are_computed_are_exchanged(tmp_path):
    """A key that must be cast first is not a column of its stream, so no row can arrive by it."""
    inputs = tables()
    text = PLAIN.replace("A.k0 = B.k0", "A.k0 + 0 = B.k0")
    made = chain(text, inputs, tmp_path, WAYS)
    batches = [made.batch(part) for part in made.cut(inputs, 9)]
    made.batch({}, end=True)
    assert batches[0].stages == 3
    right(made.results(), text, inputs)


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "ä", "a long text that is more than thirty-two bytes long", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [dt.date(2024, 1, 1), dt.date(1969, 12, 31), None]),
    "number": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), None]),
    "half": (pa.float32(), [0.0, -0.0, 0.1, None]),
    "money": (pa.decimal128(12, 2), [Decimal("1.10"), Decimal("-3.00"), None]),
    "wide": (pa.decimal128(30, 2), [Decimal("1.10"), Decimal("12345678901234567890.12"), None]),
    "moment": (pa.timestamp("ms"), [dt.datetime(2024, 1, 1), dt.datetime(1960, 1, 1), None]),
    "large": (pa.uint64(), [0, 2**64 - 1, 7, None]),
    "small": (pa.int8(), [-1, 0, 1, None]),
    "bytes": (pa.binary(), [b"", b"\x00", b"ab", None]),
}


@pytest.mark.parametrize("kind", always(3, KEYS))
def test_keys_of_every_type_meet_where_they_arrive(kind, tmp_path):
    type_, values = KEYS[kind]
    random = Random(kind)
    schema = pa.schema([("ts", pa.int64()), ("k0", type_), ("k1", type_), ("v", pa.int64())])
    inputs = {
        name: pa.Table.from_pylist(
            [{"ts": i, "k0": random.choice(values), "k1": random.choice(values), "v": i} for i in range(16)], schema
        )
        for name in "ABC"
    }
    made = chain(PLAIN, inputs, tmp_path, MIXED, slots=3)
    batches = [made.batch(part) for part in made.cut(inputs, 9)]
    made.batch({}, end=True)
    assert batches[0].stages == 2
    right(made.results(), PLAIN, inputs)
