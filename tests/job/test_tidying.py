"""Small files are merged behind the batches, and every batch is in the metrics table once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.job.chain import Chain
from typer.testing import CliRunner

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import lists, merging, metrics
from midstream.checkpoint.collect import collect
from midstream.checkpoint.file_entries import FileLog, ResultFile, Superseded
from midstream.checkpoint.lists import dead_letters_of, listed_in, results_of
from midstream.checkpoint.local_files import LocalFiles
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import SCHEMA, metrics_of
from midstream.checkpoint.names import batch_of
from midstream.checkpoint.records import Outputs
from midstream.interface.cli.app import app

QUERY = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k"


def tables(rows: int = 300, last: int = 600) -> dict[str, pa.Table]:
    random = np.random.default_rng(3)

    def table() -> pa.Table:
        columns = {"k": random.integers(0, 6, rows), "v": random.integers(0, 30, rows)}
        return pa.table({**columns, "ts": np.sort(random.integers(0, last, rows))})

    return {name: table() for name in "AB"}


def late(parts: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
    """A batch with one row of A that is too late."""
    rows = parts["A"].to_pylist()
    return {**parts, "A": pa.RecordBatch.from_pylist([*rows, {**rows[0], "ts": -1}], schema=parts["A"].schema)}


@pytest.fixture
def chain(tmp_path, monkeypatch) -> Chain:
    monkeypatch.setattr(merging, "KEPT_SECONDS", 0.0)
    question = ask(QUERY, tables())
    return Chain(question.plan, question.catalog, tmp_path, slots=2)


def test_many_batches_leave_few_files_and_the_same_results(chain):
    parts = chain.cut(tables(), 10)
    most = 0
    for i, part in enumerate(parts):
        chain.batch(late(part) if i and "A" in part else part)
        if chain.driver.commits.compactor.round is not None:
            chain.driver.commits.compactor.round.result()
        most = max(most, len(list(results_of(chain.driver.files, chain.manifest, "q"))))
    chain.batch({}, end=True)
    got = chain.results()
    assert sorted(map(str, got.to_pylist())) == sorted(map(str, ms.run(QUERY, tables()).to_pylist()))
    assert len(parts) > 50 and most < 40
    named = list(dead_letters_of(chain.driver.files, chain.manifest))
    assert sum(file.rows for file in named) == sum(chain.manifest.streams.late.values()) > 40
    assert len(named) < 30
    stored = [pq.read_table(chain.driver.files.full(file.path)).num_rows for file in named]
    assert stored == [file.rows for file in named]


def test_old_files_go_once_no_retained_manifest_names_them(chain):
    for part in chain.cut(tables(), 10):
        chain.batch(part)
        if chain.driver.commits.compactor.round is not None:
            chain.driver.commits.compactor.round.result()
    chain.driver.commits.compactor.take(wait=True)
    files = chain.driver.files
    collect(chain.driver.store, files)
    named = set().union(*(chain.driver.store.named(i).files for i in chain.driver.store.batch_ids()))
    assert not [path for path in files.list("results") if path not in named and batch_of(path) != chain.next_batch]
    assert len(files.list("results")) < 80


def test_files_kept_for_readers_stay_but_do_not_swell_the_manifest(chain, monkeypatch):
    monkeypatch.setattr(merging, "KEPT_SECONDS", 1e9)
    for part in chain.cut(tables(), 5):
        chain.batch(part)
        if chain.driver.commits.compactor.round is not None:
            chain.driver.commits.compactor.round.result()
    files, kept = chain.driver.files, chain.manifest.outputs.superseded
    names = {file.path for file in kept if not file.is_list}
    names |= listed_in(files, [file.path for file in kept if file.is_list])
    assert len(names) > 2 * lists.MOST_KEPT > 2 * (len(kept) - 10)
    collect(chain.driver.store, files)
    assert names <= set(files.list("results"))


def test_files_kept_for_readers_are_in_few_lists_and_go_in_time(tmp_path):
    """However many files are merged in the time for which they are kept."""
    files = LocalFiles(str(tmp_path))
    manifest = Manifest("test", 0)
    since: dict[str, float] = {}
    for now in range(1_500):
        fresh = [Superseded(f"results/q/{now:04d}-{i}.parquet", float(now)) for i in range(10)]
        since |= {file.path: file.since for file in fresh}
        manifest = merging.adopt(replace(manifest, batch_id=now), (), float(now))
        manifest = lists.shorten(files, manifest.with_outputs(superseded=[*manifest.outputs.superseded, *fresh]))
        kept = manifest.outputs.superseded
        assert len(kept) <= lists.MOST_KEPT + merging.KEPT_SECONDS / lists.TOGETHER + 2
        if now % 100 == 99:
            names = {file.path for file in kept if not file.is_list}
            names |= listed_in(files, [file.path for file in kept if file.is_list])
            young = {path for path, when in since.items() if now - when < merging.KEPT_SECONDS}
            assert young <= names
            assert all(now - since[path] < merging.KEPT_SECONDS + lists.TOGETHER for path in names)


@pytest.mark.slow
def test_a_merge_of_files_that_are_gone_by_then_is_not_adopted(chain):
    for part in chain.cut(tables(), 10)[:40]:
        chain.batch(part)
        chain.driver.commits.compactor.take(wait=True)
    (merge, *_) = merging.due(chain.manifest)
    assert isinstance(merge, merging.Merge)
    left = {"q": FileLog([file for file in merge.old[1:] if isinstance(file, ResultFile)])}
    other = Manifest("q", 1, outputs=Outputs(results=left))
    adopted = merging.adopt(other, [(merge, merge.merged("results/q/x.parquet"))], 0.0)
    assert adopted.outputs.results == left and not adopted.outputs.superseded


def test_every_batch_has_a_row_in_the_metrics_table(chain, monkeypatch):
    monkeypatch.setattr(metrics, "RECENT", 5)
    parts = chain.cut(tables(), 12)
    for part in parts:
        chain.batch(part)
    table = metrics_of(chain.driver.files, chain.manifest)
    assert table.schema.equals(SCHEMA)
    assert table.column("batch_id").to_pylist() == list(range(len(parts)))
    total: dict[str, int] = {}
    for row in table.column("rows").to_pylist():
        for name, count in row:
            total[name] = total.get(name, 0) + count
    assert total == chain.manifest.streams.rows
    assert all(len(dict(row)) > 0 for row in table.column("seconds").to_pylist())
    assert 1 < len(chain.manifest.outputs.metrics) < len(parts) // 5
    chain.driver.commits.metrics_retained = 10
    for _ in range(8):
        chain.batch({})
    kept = metrics_of(chain.driver.files, chain.manifest).column("batch_id").to_pylist()
    assert kept == list(range(kept[0], chain.manifest.batch_id + 1)) and 10 <= len(kept) < len(parts)


def test_status_tells_of_a_job_that_does_not_run(chain):
    for part in chain.cut(tables(), 40):
        chain.batch(part)
    told = CliRunner().invoke(app, ["status", str(chain.folder)])
    assert told.exit_code == 0, told.output
    assert ": stopped, " in told.output and "rows a second: A" in told.output
    assert "query q" in told.output
