"""The benchmarks of the execution model: they measure what they say they measure, whatever the times."""

from __future__ import annotations

import pytest

from midstream.interface.bench import scheduling, sharing


def test_fifty_queries_give_what_the_whole_join_gives_and_keep_its_windows_once(monkeypatch):
    monkeypatch.setattr(sharing, "ROWS", 200)
    monkeypatch.setattr(sharing, "KEYS", 400)
    monkeypatch.setattr(sharing, "BATCHES", 9)
    figures = {figure.name: figure for figure in sharing.bench_sharing(repeats=1).figures}
    assert figures["results of 50 queries / of the whole join"].value == 1.0
    assert figures["state of 50 / of one query"].holds


@pytest.mark.parametrize("name", list(scheduling.QUERIES))
def test_every_way_of_running_a_box_gives_the_same(name, monkeypatch):
    monkeypatch.setattr(scheduling, "ROWS", 300)
    plan, inputs = scheduling._plan(scheduling.QUERIES[name]), scheduling._batches(1)
    taken = scheduling._measured(plan, inputs[:3], 1)
    assert set(taken) == {"direct", *scheduling.TABLES, *(f"{table} by its table" for table in scheduling.TABLES)}
