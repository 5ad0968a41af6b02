"""Another `emit_every` for a query on its checkpoint: refused unless it cuts results at the same instants."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.job.many import Many
from tests.job.test_replacing import clipped

import midstream as ms
from midstream.api import ask
from midstream.errors import JobError
from midstream.job.commands.rewording import Rewording, Text
from midstream.language import parse

COUNT = "SELECT k, COUNT(*) AS n FROM A [RANGE 80] GROUP BY k"
PLAIN = "SELECT k, v FROM A [RANGE 80]"
ROWS = [(i % 3, i, i * 3) for i in range(100)]


def table() -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v, "ts": ts} for k, v, ts in ROWS])


def opened(folder: Path) -> Many:
    many = Many(catalog=ask(COUNT, {"A": table()}).catalog, folder=folder, slots=2)
    many.driver.queries.clear()
    return many


def declare(many: Many, cql: str, every: int | None, replace: bool = False) -> None:
    text = Text("q", cql, parse(cql, many.catalog), every=every)
    Rewording(many.driver, many.adding, many.catalog).make_way(text, replace)
    many.add("q", cql, every=every)


def resumed(folder: Path, cql: str, first: int | None, second: int | None, replace: bool = False) -> pa.Table:
    """The results of a query that is restarted half way through, perhaps with another `emit_every`."""
    many = opened(folder)
    declare(many, cql, first)
    parts = many.cut({"A": table()}, 10)
    for part in parts[:5]:
        many.batch(part)
    many = opened(folder)
    declare(many, cql, second, replace)
    for part in parts[5:]:
        many.batch(part)
    many.batch({}, end=True)
    return many.table("q")


@pytest.mark.parametrize(("first", "second"), [(10, 30), (30, 10), (7, 100), (None, 30), (30, None)])
def test_other_slices_are_refused_by_name(first, second, tmp_path):
    with pytest.raises(JobError, match="query q has another emit_every") as refused:
        resumed(tmp_path, COUNT, first, second)
    assert "--replace" in str(refused.value.hint)


@pytest.mark.parametrize(("first", "second"), [(10, 30), (30, 10)])
def test_replaced_it_starts_anew_with_what_comes(first, second, tmp_path):
    got = resumed(tmp_path, COUNT, first, second, replace=True)
    whole = ROWS[49][2] + 81
    assert ms.snapshot_equal(clipped(got, whole), clipped(ms.reference(COUNT, {"A": table()}, time="ts"), whole))


@pytest.mark.parametrize(("first", "second"), [(10, 10), (None, 10), (10, None)])
def test_the_same_slices_go_on(first, second, tmp_path):
    got = resumed(tmp_path, COUNT, first, second)
    assert ms.snapshot_equal(got, ms.reference(COUNT, {"A": table()}, time="ts"))


def test_a_monotone_query_answers_without_slices(tmp_path):
    got = resumed(tmp_path, PLAIN, 10, 30)
    assert ms.snapshot_equal(got, ms.reference(PLAIN, {"A": table()}, time="ts"))
