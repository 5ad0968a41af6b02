"""Another text for a query on its checkpoint: the same in other words goes on, another one takes its place if asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.job.many import Many

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.collect import collect
from midstream.checkpoint.manifest import REPLACED
from midstream.errors import JobError
from midstream.job.commands.rewording import Rewording, Text
from midstream.job.outputs.results import results_of_query
from midstream.language import parse
from midstream.optimizer.plans import plan_query

OLD = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 3"
REWORDED = [
    "SELECT A.v AS a, B.v AS b FROM B [RANGE 20], A [RANGE 20] WHERE A.v > 3 AND A.k = B.k",
    "SELECT A.v AS a, B.v AS b FROM A [RANGE 20] JOIN B [RANGE 20] ON A.k = B.k WHERE A.v > 3",
    "SELECT  A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE B.k = A.k AND A.v > 3",
]
OTHERS = [
    "SELECT A.v AS a, B.v AS c FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 3",
    "SELECT B.v AS b, A.v AS a FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 3",
    "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 4",
    "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 21] WHERE A.k = B.k AND A.v > 3",
    "SELECT DISTINCT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 3",
    "SELECT ISTREAM A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 3",
    "SELECT A.v AS a, B.v AS b FROM A [RANGE 20] LEFT JOIN B [RANGE 20] ON A.k = B.k WHERE A.v > 3",
]


def tables(rows: int = 120, last: int = 240) -> dict[str, pa.Table]:
    random = np.random.default_rng(11)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 5, rows), "v": random.integers(0, 12, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, last, rows))})

    return {name: table() for name in "AB"}


def opened(folder: Path) -> Many:
    return Many(catalog=ask(OLD, tables()).catalog, folder=folder, slots=2)


def reword(many: Many, cql: str, replace: bool = False) -> bool:
    text = Text("q", cql, parse(cql, many.catalog))
    text, same = Rewording(many.driver, many.adding, many.catalog).make_way(text, replace)
    many.add("q", cql, wanted=text.plan)
    return same


def started(folder: Path, batches: int) -> tuple[Many, list[dict[str, pa.RecordBatch]]]:
    many = opened(folder)
    many.add("q", OLD)
    parts = many.cut(tables(), 24)
    for part in parts[:batches]:
        many.batch(part)
    return opened(folder), parts[batches:]


@pytest.mark.parametrize("cql", REWORDED)
def test_the_same_query_in_other_words_goes_on(cql, tmp_path):
    many, rest = started(tmp_path, 5)
    assert reword(many, cql)
    for part in rest:
        many.batch(part)
    many.batch({}, end=True)
    assert many.manifest.queries["q"].cql == cql
    got, expected = many.table("q"), ms.run(OLD, tables())
    assert sorted(map(str, got.to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.mark.parametrize("cql", OTHERS)
def test_another_query_is_refused_and_told_what_becomes_of_the_state(cql, tmp_path):
    many, _ = started(tmp_path, 3)
    with pytest.raises(JobError, match="not the same query") as refused:
        reword(many, cql)
    assert "--replace" in str(refused.value.hint)
    assert "if it were replaced: A [RANGE" in str(refused.value.detail)
    assert many.manifest.queries["q"].cql == OLD


SUM = "SELECT A.v + B.v AS total FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k AND A.v > 3"
OTHER_WINDOW = SUM.replace("[RANGE 20]", "[RANGE 15]")
TUMBLING = "SELECT k, COUNT(*) AS n FROM A [TUMBLE 30] GROUP BY k"


def test_it_is_said_from_which_instant_on_a_query_that_took_the_place_is_complete(tmp_path, caplog):
    many, rest = started(tmp_path, 6)
    last = many.manifest.streams.latest["A"]
    reword(many, TUMBLING, replace=True)
    for part in rest:
        many.batch(part)
    many.batch({}, end=True)
    record = next(r for r in many.history("q") if r.get("event") == "started")
    whole = record["complete_from"]
    assert whole == (last // 30 + 2) * 30, "the window in which the query began is the last that lacks rows"
    got, expected = many.table("q"), ms.run(TUMBLING, tables())
    assert ms.snapshot_equal(clipped(got, whole), clipped(expected, whole))
    assert not ms.snapshot_equal(clipped(got, whole - 1), clipped(expected, whole - 1))
    assert (
        f"query q was replaced with batch {record['start_batch']}: results are complete from {whole} on" in caplog.text
    )


@pytest.mark.parametrize(("cql", "how"), [(SUM, "inherited"), (OTHER_WINDOW, "derived")])
def test_a_query_that_takes_the_place_starts_with_what_follows_from_kept_windows(cql, how, tmp_path):
    many, rest = started(tmp_path, 6)
    old_results = many.table("q")
    assert not reword(many, cql, replace=True)
    aside = f"q@{many.next_batch}"
    replaced_at = many.next_batch
    for part in rest:
        many.batch(part)
        if many.manifest.batch_id == replaced_at:
            many = opened_without(many, aside)
    many.batch({}, end=True)
    collect(many.driver.store, many.driver.files)
    got, expected = many.table("q"), ms.run(cql, tables())
    sharing = many.manifest.account("q").sharing
    assert sharing is not None
    whole = sharing.start
    begun = next(r for r in many.history("q") if r.get("event") == "started")
    assert got.num_rows and begun["complete_from"] == whole and set(begun[how]) == {"A", "B"}
    assert ms.snapshot_equal(clipped(got, whole), clipped(expected, whole))
    entry = many.manifest.queries[aside]
    assert (entry.cql, entry.status) == (OLD, REPLACED)
    assert aside not in many.manifest.segments and aside not in many.driver.queries
    plan = plan_query(parse(OLD, many.catalog))
    still = results_of_query(many.driver.files, many.manifest, aside, plan)
    kept = set(map(str, still.to_pylist()))
    assert kept >= set(map(str, old_results.to_pylist())) and old_results.num_rows


def opened_without(many: Many, aside: str) -> Many:
    """A restart in which, as in a job, nobody asks for the query that was replaced."""
    again = Many(catalog=many.catalog, folder=many.folder, slots=2)
    again.driver.queries.pop(aside, None)
    return again


def clipped(table: pa.Table, start: int) -> pa.Table:
    """What is valid from an instant on."""
    late = table.filter(pc.greater(pc.fill_null(table.column("valid_to"), 2**62), start))
    starts = pc.max_element_wise(late.column("valid_from"), pa.scalar(start, pa.int64()))
    return late.set_column(late.column_names.index("valid_from"), "valid_from", starts)
