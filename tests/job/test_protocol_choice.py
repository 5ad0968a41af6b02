"""By which protocol groups move if nobody says so: by the one that is predicted to cost least."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.test_chain import GROUPS, THREE

import midstream as ms
from midstream.adaptation.group_moves import BalancePolicy, GroupLoad, MoveTerms, group_moves
from midstream.api import ask

WANTED = [1] * 100 + [0] * 156


def falling(after: int, low: int, last: int = 200, high: int = 24) -> dict[str, pa.Table]:
    """Streams with many rows in each tick at first, and few after some tick."""
    random = np.random.default_rng(3)

    def table() -> pa.Table:
        ts = np.concatenate([np.repeat(np.arange(after), high), np.repeat(np.arange(after, last), low)])
        return pa.table({"k": random.integers(0, 4000, len(ts)), "v": random.integers(0, 9, len(ts)), "ts": ts})

    return {name: table() for name in "ABC"}


def run_to(query: str, inputs: dict[str, pa.Table], folder: Path, until: int, differ: bool) -> tuple[Chain, int]:
    """A chain that has come to an instant, by ten ticks a batch; its slots may run different plans."""
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, folder, slots=2, plan="((A B) C)")
    for since in range(0, until, 10):
        chain.batch(between(inputs, since, since + 10))
        if differ and since == 0:
            chain.migrate("(A (B C))", "moving_state", slots=[1])
    return chain, until


def between(inputs: dict[str, pa.Table], since: int, until: int) -> dict[str, pa.RecordBatch]:
    found = {}
    for name, table in inputs.items():
        ts = table["ts"].to_numpy()
        rows = table.filter(pa.array((ts >= since) & (ts < until)))
        if rows.num_rows:
            found[name] = rows.combine_chunks().to_batches()[0]
    return found


@pytest.mark.parametrize(
    ("differ", "until", "protocol"),
    [(False, 60, "mslb"), (True, 60, "mslb"), (True, 80, "split_time_balancing")],
    ids=["one plan", "two plans at a high rate", "two plans at a rate that has fallen"],
)
def test_state_is_sent_unless_rates_have_fallen(differ, until, protocol, tmp_path):
    inputs = falling(60, 1)
    query = THREE.replace("RANGE 20", "RANGE 30")
    chain, at = run_to(query, inputs, tmp_path, until, differ)
    assert chain.driver.rebalance(WANTED, protocol="auto")
    wanted = chain.driver.state.wanted
    assert wanted is not None and wanted.protocol == protocol
    assert wanted.reason.startswith(f"By {protocol} it is predicted to cost ")
    assert all(f"by {other} " in wanted.reason for other in {"mslb", "split_time_balancing", "ptlb"} - {protocol})
    for since in range(at, 200, 10):
        chain.batch(between(inputs, since, since + 10))
    record = chain.manifest.slots.moves[-1]
    assert (record["protocol"], record["reason"]) == (protocol, wanted.reason)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), ms.run(query, inputs))


def test_what_is_wrong_for_a_query_is_not_weighed(tmp_path):
    inputs = falling(20, 1, last=60)
    chain, _ = run_to(GROUPS, inputs, tmp_path / "groups", 40, differ=True)
    assert chain.driver.rebalance(WANTED, protocol="auto")
    assert chain.driver.state.wanted is not None and "ptlb" not in chain.driver.state.wanted.reason
    chain, _ = run_to(THREE.replace("A [RANGE 20]", "A [ROWS 5]"), inputs, tmp_path / "rows", 40, differ=False)
    assert chain.driver.rebalance(WANTED, protocol="auto")
    wanted = chain.driver.state.wanted
    assert wanted is not None and (wanted.protocol, wanted.reason) == ("mslb", "")


def test_moves_that_are_decided_together_go_by_one_protocol():
    busy = [(0, 1.0)] * 3 + [(1, 10_000.0)] * 3
    loads = [GroupLoad(owner, 0.3, rows=1e6, bytes=1e8, rate=rate) for owner, rate in busy]
    terms = MoveTerms(("mslb", "split_time_balancing"), 60.0)
    found = group_moves(loads, 4, terms, BalancePolicy())
    assert not found.against and len(found.change.pairs) == 2
    told = found.change.as_dict(256)
    assert {move["protocol"] for move in told["moves"]} == {found.change.protocol}
    assert sorted(told["protocols"]) == sorted(terms.protocols)
    assert "is predicted to cost" in found.done
