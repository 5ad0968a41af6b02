"""The yardsticks of the benchmarks on Spark: what they count is right; how fast they are decides nothing here."""

from __future__ import annotations

from pathlib import Path

import pytest

from midstream.lab.bench import sharing
from midstream.lab.bench.sharing_spark import bench_sharing_on_spark
from midstream.lab.bench.silent_stream import bench_silent_stream
from midstream.lab.bench.spark_join import _query, _write

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_results_do_not_wait_for_a_silent_stream_and_those_of_plain_spark_do(spark):
    figures = {f.name: f.value for f in bench_silent_stream(silent=6).figures}
    assert figures["wrong counts, both"] == 0
    assert figures["Midstream, with a skew: longest delay of a result"] <= 2
    assert figures["Midstream: results given meanwhile"] == figures["results due meanwhile"] > 0
    assert figures["Spark: results given meanwhile"] == 0


@pytest.mark.slow
def test_many_queries_give_what_the_whole_join_gives_and_keep_little_more_state(spark, monkeypatch):
    for name, value in {"QUERIES": 3, "ROWS": 200, "KEYS": 100, "BATCHES": 6}.items():
        monkeypatch.setattr(sharing, name, value)
    figures = {f.name: f.value for f in bench_sharing_on_spark(repeats=1).figures}
    assert figures["results of 3 queries / of the whole join"] == 1
    assert figures["results of the whole join"] > 0
    assert figures["state of 3 / of one query"] <= 3


@pytest.mark.slow
def test_both_sides_of_the_join_benchmark_give_the_same_results(spark, tmp_path: Path):
    from midstream.lab.yardsticks.joins import native_join, our_join

    folders = _write(tmp_path / "data", "ABC", 2000, 5, seed=1, keys=2000)
    cql = _query("ABC", seconds=1)
    plain = our_join(spark, folders, cql, tmp_path / "plain", "((A B) C)")
    moved = our_join(spark, folders, cql, tmp_path / "moved", "((A B) C)", (1, "(A (B C))", "genmig"))
    native = native_join(spark, list(folders.values()), "1 seconds", tmp_path / "native")
    assert plain.results == moved.results == native.results > 0
    assert moved.migrated is not None and plain.migrated is None
    assert len(plain.seconds) == len(plain.released) == 5
    assert plain.released == moved.released and sum(plain.released) > 0
