"""A query leaves a checkpoint by its name, also while no job runs."""

from __future__ import annotations

import pytest
from tests.job.many import Many
from tests.job.test_replacing import OLD, opened, reword, started, tables
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.collect import collect
from midstream.checkpoint.lease import Lease
from midstream.errors import JobError, QueryError
from midstream.interface.cli.app import app
from midstream.job.queries.replacing import drop_at_rest, undeclared

OTHER = "SELECT A.k, COUNT(*) AS n FROM A [RANGE 20] GROUP BY A.k"


def two(folder, batches: int = 4) -> tuple[Many, list]:
    """A job of two queries, and the batches that are left."""
    many = opened(folder)
    many.add("q", OLD)
    many.add("n", OTHER)
    parts = many.cut(tables(), 24)
    for part in parts[:batches]:
        many.batch(part)
    return many, parts[batches:]


def test_a_query_dropped_at_rest_is_gone_and_the_others_go_on(tmp_path):
    many, rest = two(tmp_path)
    last = many.manifest.batch_id
    made = drop_at_rest(many.driver.store, "n")
    assert made.batch_id == last + 1 and made.asked.texts == {"n": (OTHER, None)}
    many = opened(tmp_path)
    assert set(many.driver.queries) == {"q"} and many.driver.state.current_text("n", OTHER) is None
    for part in rest:
        many.batch(part)
    many.batch({}, end=True)
    many.driver.store.retain(1)
    collect(many.driver.store, many.driver.files)
    expected = ms.reference(OLD, tables(), time="ts")
    assert sorted(map(str, many.table("q").to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert "n" not in many.manifest.segments and "n" not in many.manifest.outputs.results
    assert not [path for path in many.driver.files.list("results") if path.startswith("results/n/")]


def test_the_source_does_not_count_the_batch_that_drops(tmp_path):
    many, _ = two(tmp_path)
    last = many.manifest.batch_id
    drop_at_rest(many.driver.store, "n")
    assert many.driver.store.before(last + 1, "test") == many.driver.store.read(last + 1)
    assert [m.batch_id for _, m in many.driver.store.done(last)] == [last, last + 1]


def test_nothing_is_dropped_under_a_driver(tmp_path):
    many, _ = two(tmp_path)
    with Lease.take(many.driver.files), pytest.raises(JobError, match="another driver"):
        drop_at_rest(many.driver.store, "n")
    with pytest.raises(QueryError, match="there is no query x"):
        drop_at_rest(many.driver.store, "x")
    drop_at_rest(many.driver.store, "n")


def test_the_results_of_a_replaced_query_can_be_dropped(tmp_path):
    many, rest = started(tmp_path, 4)
    reword(many, OLD.replace("> 3", "> 4"), replace=True)
    many.batch(rest[0])
    (aside,) = set(many.manifest.queries) - {"q"}
    drop_at_rest(many.driver.store, aside)
    many = opened(tmp_path)
    many.batch(rest[1])
    assert set(many.manifest.queries) == {"q"} and not many.driver.state.texts


def test_what_is_not_declared_is_known(tmp_path):
    many, rest = started(tmp_path, 4)
    reword(many, OLD.replace("> 3", "> 4"), replace=True)
    many.batch(rest[0])
    assert set(undeclared(many.manifest, ())) == {"q"} and not undeclared(many.manifest, {"q"})
    assert undeclared(None, ()) == {}


def test_the_command_drops_at_rest(tmp_path):
    two(tmp_path)
    shown = CliRunner().invoke(app, ["drop", str(tmp_path), "n", "--json"])
    assert shown.exit_code == 0, shown.output
    assert set(opened(tmp_path).driver.queries) == {"q"}
    shown = CliRunner().invoke(app, ["drop", str(tmp_path), "n"])
    assert shown.exit_code == 2 and "there is no query n" in shown.stderr
