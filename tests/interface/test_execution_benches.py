"""The benchmarks of the execution model: they measure what they say they measure, whatever the times."""

from __future__ import annotations

import pytest

import midstream as ms
from midstream.job.task.ingest import source_elements
from midstream.lab.bench import connectors, language, scheduling, sharing
from midstream.operators.box import Box
from midstream.operators.elements import concatenate


def test_fifty_queries_give_what_the_whole_join_gives_and_keep_its_windows_once(monkeypatch):
    monkeypatch.setattr(sharing, "ROWS", 200)
    monkeypatch.setattr(sharing, "KEYS", 400)
    monkeypatch.setattr(sharing, "BATCHES", 9)
    figures = {figure.name: figure for figure in sharing.bench_sharing(repeats=1).figures}
    assert figures["results of 50 queries / of the whole join"].value == 1.0
    assert figures["state of 50 / of one query"].holds


@pytest.mark.parametrize("name", list(scheduling.QUERIES))
def test_every_way_of_running_a_box_is_measured_over_the_same_results(name, monkeypatch):
    monkeypatch.setattr(scheduling, "ROWS", 300)
    plan, inputs = scheduling._plan(scheduling.QUERIES[name]), scheduling._batches(1)[:4]
    ways = scheduling._ways(plan)
    assert set(ways) == set(scheduling._measured(plan, inputs[:1], 1))
    for number, batch in enumerate(inputs):
        for feed, advance, _ in ways.values():
            for place, (source, _) in enumerate(Box(plan.physical).sources):
                feed(place, source_elements(source, *batch[source.stream.name]))
            advance(2 * number)
    given = {way: concatenate(results) for way, (_, _, results) in ways.items()}
    expected = given["direct"]
    assert len(expected) > 0
    for results in given.values():
        assert results.columns.equals(expected.columns)
        assert results.valid_to.tolist() == expected.valid_to.tolist()


@pytest.mark.parametrize("name", language.COMPARISONS)
def test_a_construct_is_held_against_an_answer_of_as_many_rows(name):
    rows, comparison = language._stream(3_000, 1), language.COMPARISONS[name]
    once = language._once(comparison.once, rows)
    assert ms.run(comparison.query, {"A": rows}, time="ts").num_rows == once.num_rows


def test_sinks_that_write_files_are_measured_against_a_file_of_parquet(monkeypatch):
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'midstream[delta]'")
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install 'midstream[iceberg]'")
    monkeypatch.setattr(connectors, "ROWS", 200)
    monkeypatch.setattr(connectors, "REPEATS", 1)
    figures = connectors.bench_connectors(only=["files"]).figures
    measured = {figure.name: figure.to_json()["bar"] for figure in figures}
    assert measured == {
        "Parquet file, 100,000 rows": None,
        **{f"{sink} sink / Parquet file": "<= 1.5" for sink in ("folder", "Delta", "Iceberg")},
    }
