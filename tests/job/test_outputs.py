"""Files of results and dead letters: damage and loss are noticed wherever they are read, and at the start."""

from __future__ import annotations

import json
import os

import pytest
from tests.checkpoint.making import flip
from tests.job.chain import Chain
from tests.job.test_tidying import QUERY, late, tables
from tests.job.test_two_drivers import chain_on, rows
from typer.testing import CliRunner

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import maps, merging, metrics
from midstream.checkpoint import outputs as output_files
from midstream.checkpoint.check import check
from midstream.checkpoint.collect import collect
from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.metrics import metrics_of
from midstream.checkpoint.outputs import outputs_of
from midstream.checkpoint.subscriptions import Subscription
from midstream.errors import JobError
from midstream.interface.cli.app import app


@pytest.fixture
def chain(tmp_path) -> Chain:
    question = ask(QUERY, tables())
    chain = Chain(question.plan, question.catalog, tmp_path / "job", slots=2)
    for i, part in enumerate(chain.cut(tables(), 20)):
        chain.batch(late(part) if i and "A" in part else part)
    chain.driver.commits.compactor.take(wait=True)
    return chain


def forget(chain: Chain, path: str) -> None:
    """What another process would see."""
    maps.forget(chain.driver.files.full(path))


def outputs(chain: Chain, kind: str) -> list[str]:
    return [o.path for o in outputs_of(chain.driver.files, chain.manifest) if o.path.startswith(kind)]


def test_every_file_of_results_and_dead_letters_has_a_checksum_also_when_it_was_merged(chain):
    named = list(outputs_of(chain.driver.files, chain.manifest))
    assert {o.path.partition("/")[0] for o in named} == {"results", "dead_letters"}
    assert chain.manifest.outputs.superseded, "nothing was merged"
    assert all(o.checksum is not None for o in named)
    assert check(chain.driver.files, chain.manifest) == []


@pytest.mark.parametrize("kind", ["results", "dead_letters"])
def test_a_byte_that_changed_is_noticed(chain, kind):
    path = outputs(chain, kind)[0]
    flip(chain.driver.files.full(path), 20)
    (wrong,) = check(chain.driver.files, chain.manifest)
    assert path in str(wrong) and "is damaged" in str(wrong)
    shown = CliRunner().invoke(app, ["state", str(chain.folder), "--verify", "--json"])
    assert shown.exit_code == 2 and path in json.loads(shown.stdout)["wrong"][0]
    forget(chain, path)
    if kind == "results":
        with pytest.raises(JobError, match="is damaged"):
            chain.results()
        with pytest.raises(JobError, match="is damaged"):
            ms.read_results(str(chain.folder), "q")


@pytest.mark.parametrize("kind", ["results", "dead_letters"])
def test_a_file_that_was_deleted_is_noticed_at_the_start(chain, kind):
    path = outputs(chain, kind)[0]
    os.unlink(chain.driver.files.full(path))
    with pytest.raises(JobError, match="is missing") as error:
        Chain(chain.relation, chain.catalog, chain.folder, slots=2)
    assert path in str(error.value) and "rows were written there" in str(error.value)


def test_a_result_file_that_was_deleted_is_named_by_whoever_reads_results(chain):
    path = outputs(chain, "results")[0]
    os.unlink(chain.driver.files.full(path))
    for read in (
        chain.results,
        lambda: ms.read_results(str(chain.folder), "q"),
        lambda: next(iter(Subscription(str(chain.folder), "q"))),
    ):
        with pytest.raises(MissingFile, match="the result file .* is missing"):
            read()


def test_files_of_metrics_are_kept_for_readers_that_began_before(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "RECENT", 4)
    monkeypatch.setattr(metrics, "TIER", 2)
    chain = chain_on(tmp_path)
    for i in range(6):
        chain.batch({"A": rows(i)})
    before = chain.manifest
    assert before.outputs.metrics
    for i in range(6, 18):
        chain.batch({"A": rows(i)})
    collect(chain.driver.store, chain.driver.files)
    assert not {file.path for file in before.outputs.metrics} & {file.path for file in chain.manifest.outputs.metrics}
    assert metrics_of(chain.driver.files, before).num_rows == 6
    assert metrics_of(chain.driver.files, chain.manifest).num_rows == 18
    monkeypatch.setattr(merging, "KEPT_SECONDS", 0.0)
    for i in range(18, 22):
        chain.batch({"A": rows(i)})
    collect(chain.driver.store, chain.driver.files)
    assert not any(chain.driver.files.exists(file.path) for file in before.outputs.metrics)


@pytest.mark.parametrize("kept", [0, 30, output_files.STARTS])
def test_results_are_counted_alike_however_many_of_their_starts_are_kept(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(output_files, "STARTS", kept)
    question = ask(QUERY, tables())
    chain = Chain(question.plan, question.catalog, tmp_path / "job", slots=2)
    for part in chain.cut(tables(), 20):
        chain.batch(part)
        (name,) = chain.driver.queries
        manifest = chain.driver.manifest
        assert manifest is not None and manifest.account(name).results == chain.results().num_rows
        assert sum(map(len, chain.driver.commits.starts.values())) <= kept
