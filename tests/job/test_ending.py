"""Batches of our own, without rows, between those of a source that counts its own: to release, and to finish."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job.many import Many
from tests.profiles import examples

import midstream as ms
from midstream.algebra.declarations import Catalog
from midstream.api import ask
from midstream.checkpoint.manifest import source_batch
from midstream.errors import JobError
from midstream.job.ending import finish, is_delivered, release
from midstream.job.queries.replacing import drop_at_rest

COUNT = "SELECT k, COUNT(*) AS n FROM A [RANGE 20] GROUP BY k"
PLAIN = "SELECT k, v FROM A [RANGE 20]"
QUERIES = {"n": COUNT, "q": PLAIN}


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.Table.from_pylist([{"k": i % 3, "v": i, "ts": i * 3} for i in range(first, first + count)])


class Fed(Many):
    """A job that a source hands batches to, by the source's own count."""

    def feed(self, number: int, table: pa.Table) -> None:
        self.driver.on_batch({"A": table.combine_chunks().to_batches()[0]}, number)


def opened(folder: Path, taken: dict[str, dict[int, pa.Table]] | None = None) -> Fed:
    fed = Fed(catalog=ask(COUNT, {"A": rows(0)}).catalog, folder=folder, slots=2)
    for name, cql in QUERIES.items():
        if name not in fed.driver.queries:
            fed.add(name, cql)
        if taken is not None:
            fed.driver.deliveries.sinks[name] = [partial(_take, taken[name])]
    return fed


def _take(taken: dict[int, pa.Table], table: pa.Table, batch: int) -> None:
    taken[batch] = table


def sunk(taken: dict[str, dict[int, pa.Table]], name: str) -> pa.Table:
    return pa.concat_tables([table for _, table in sorted(taken[name].items())])


@examples(8)
@given(data=st.data())
def test_released_and_restarted_anywhere_nothing_is_lost_or_doubled(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("ending")
    taken: dict[str, dict[int, pa.Table]] = {name: {} for name in QUERIES}
    fed = opened(folder, taken)
    for number in range(6):
        fed.feed(number, rows(number * 10))
        for does in data.draw(st.lists(st.sampled_from(["release", "restart", "repeat"]), max_size=3)):
            if does == "release":
                release(fed.driver)
            elif does == "restart":
                fed = opened(folder, taken)
            else:
                fed.feed(number, rows(number * 10))
        assert source_batch(fed.manifest) == number
    finish(fed.driver)
    for name, cql in QUERIES.items():
        expected = ms.reference(cql, {"A": rows(0, 60)}, time="ts")
        assert ms.snapshot_equal(fed.table(name), expected)
        assert ms.snapshot_equal(sunk(taken, name), expected)


def test_a_release_leaves_registers_as_they_are_and_happens_once(tmp_path):
    fed = opened(tmp_path)
    assert not release(fed.driver)
    fed.feed(0, rows(0))
    before = fed.manifest
    assert before.released["n"] < before.released["q"]
    assert release(fed.driver)
    assert fed.manifest.streams.registers == before.streams.registers and fed.manifest.offsets == before.offsets
    assert fed.manifest.released["n"] > before.released["n"]
    assert not release(fed.driver)


def test_silence_while_nothing_is_read_raises_no_register(tmp_path):
    both = "SELECT A.k, COUNT(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.k"
    declared = ask(both, {"A": rows(0), "B": rows(0)}).catalog.streams
    willing = {name: replace(stream, on_demand=True, skew=1) for name, stream in declared.items()}
    fed = Fed(catalog=Catalog(willing), folder=tmp_path, slots=2)
    fed.add("n", both)
    parts = {name: rows(first).combine_chunks().to_batches()[0] for name, first in (("A", 0), ("B", 50))}
    fed.driver.on_batch(parts, 0)
    known = dict(fed.manifest.streams.registers)
    assert known["A"] < known["B"] and release(fed.driver)
    assert dict(fed.manifest.streams.registers) == known


def test_the_cluster_is_asked_whether_a_batch_is_repeated_with_the_same_rows(tmp_path, monkeypatch):
    fed = opened(tmp_path)
    fed.feed(0, rows(0))
    fed.feed(1, rows(10))
    release(fed.driver)
    fed = opened(tmp_path)
    asked: list[int] = []
    monkeypatch.setattr(fed.cluster, "require_same", lambda manifest: asked.append(manifest.batch_id))
    fed.feed(1, rows(10, 15))
    assert asked == [1, 2]


@pytest.mark.parametrize("dropped", [(), ("q",)])
def test_what_a_repeated_batch_needs_is_kept(dropped, tmp_path):
    fed = opened(tmp_path)
    fed.driver.commits.retained = 1
    fed.feed(0, rows(0))
    fed.feed(1, rows(10))
    for name in dropped:
        drop_at_rest(fed.driver.store, name)
    fed = Fed(catalog=fed.catalog, folder=tmp_path, slots=2)
    fed.driver.commits.retained = 1
    assert release(fed.driver)
    fed.feed(1, rows(10))
    assert fed.driver.store.batch_ids()[0] == 0


def test_rows_after_the_end_are_refused(tmp_path):
    fed = opened(tmp_path)
    fed.feed(0, rows(0))
    finish(fed.driver)
    for driven in (fed, opened(tmp_path)):
        with pytest.raises(JobError, match="has been finished"):
            driven.feed(1, rows(10))
    assert not release(fed.driver)


def test_a_sink_that_fails_at_the_end_is_called_again(tmp_path):
    taken: dict[str, dict[int, pa.Table]] = {name: {} for name in QUERIES}
    fed = opened(tmp_path, taken)
    fed.feed(0, rows(0))

    def down(*_: Any) -> None:
        raise OSError("the sink is down")

    fed.driver.deliveries.sinks["q"] = [down]
    with pytest.raises(OSError, match="is down"):
        finish(fed.driver)
    assert not is_delivered(fed.driver)
    fed = opened(tmp_path, taken)
    finish(fed.driver)
    assert is_delivered(fed.driver)
    batch = fed.manifest.batch_id
    finish(fed.driver)
    assert fed.manifest.batch_id == batch
    for name, cql in QUERIES.items():
        assert ms.snapshot_equal(sunk(taken, name), ms.reference(cql, {"A": rows(0)}, time="ts"))
