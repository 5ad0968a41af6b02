"""Groups that several slots share: results are the same, whatever is spread, and whenever."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job.chain import Chain
from tests.job.spreading import GroupBroughtHome, GroupSpread
from tests.profiles import always, examples

import midstream as ms
from midstream.adaptation.group_moves import BalancePolicy
from midstream.adaptation.hot_groups import HotPolicy
from midstream.api import ask
from midstream.checkpoint.commands import Rebalance
from midstream.distribution.fragments import SpreadGroup
from midstream.job.batch import Batch
from midstream.job.commands.forecast import forecast
from midstream.job.slots.measuring import Measured, measured
from midstream.job.slots.slot_decisions import SlotDecisions
from midstream.job.slots.spreading import merging_for

JOIN = "SELECT A.v AS a, B.v AS b FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
QUERIES = {
    "join": JOIN,
    "filtered": JOIN + " AND A.v > 3 AND A.v + B.v < 15",
    "one class": "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 30], B [RANGE 30], C [RANGE 30] "
    "WHERE A.k = B.k AND B.k = C.k",
    "left": "SELECT A.v AS a, B.v AS b FROM A [RANGE 40] LEFT JOIN B [RANGE 40] ON A.k = B.k",
    "semi": "SELECT A.k, A.v FROM A [RANGE 40] WHERE EXISTS (SELECT * FROM B [RANGE 40] WHERE A.k = B.k)",
    "anti": "SELECT A.k, A.v FROM A [RANGE 40] WHERE NOT EXISTS (SELECT * FROM B [RANGE 40] WHERE A.k = B.k)",
    "grouped side": "SELECT A.v, b.n FROM A [RANGE 40], "
    "(SELECT k, count(*) AS n FROM B [RANGE 40] GROUP BY k) AS b WHERE A.k = b.k",
}
MERGED = {
    "distinct": "SELECT DISTINCT A.k, B.v FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k",
    "grouped": "SELECT A.k, count(*) AS n, sum(B.v) AS s FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k GROUP BY A.k",
    "grouped by more": "SELECT A.k, A.v, max(B.v) AS m FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k "
    "GROUP BY A.k, A.v",
    "one stream": "SELECT k, count(*) AS n, sum(v) AS s, min(v) AS a, max(v) AS z FROM A [RANGE 40] GROUP BY k",
    "hopping": "SELECT k, count(*) AS n, sum(v) FILTER (WHERE v > 3) AS s FROM A [HOP 20, 10] GROUP BY k "
    "HAVING count(*) > 1",
    "means": "SELECT k, avg(v) FILTER (WHERE v > 2) AS m, count(*) AS n, avg(v * 1000000000000000000) AS w"
    " FROM A [RANGE 40] GROUP BY k",
    "averages": "SELECT A.k, avg(B.v) AS m FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k GROUP BY A.k",
    "tuples": "SELECT DISTINCT k, v > 4 AS w FROM A [RANGE 40] WHERE v > 1",
    "keys": "SELECT DISTINCT k FROM A [HOP 20, 10]",
    "tuples that entered": "SELECT ISTREAM DISTINCT k FROM A [RANGE 40]",
    "except": "SELECT k FROM A [RANGE 40] EXCEPT SELECT k FROM B [RANGE 2]",
    "both": "SELECT k FROM A [RANGE 40] INTERSECT SELECT k FROM B [RANGE 5]",
    "counted tuples": "SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM A [RANGE 40]) AS d GROUP BY k",
    "entered": "SELECT ISTREAM A.k, B.v FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k",
}
QUERIES |= MERGED
HOT = 7


def skewed(rows: int = 90, last: int = 120, seed: int = 3, hot: float = 0.5) -> dict[str, pa.Table]:
    """Three streams; many rows of A have one key."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in "ABC":
        keys = rng.integers(0, 12, rows)
        keys = np.where(rng.random(rows) < (hot if name == "A" else 0.2), HOT, keys)
        found[name] = pa.table({"ts": np.sort(rng.integers(0, last, rows)), "k": keys, "v": rng.integers(0, 9, rows)})
    return found


def chain_of(query: str, folder: Path, inputs: dict[str, pa.Table], **options: Any) -> tuple[Chain, list]:
    """A chain over a query, and its batches."""
    used = {name: table for name, table in inputs.items() if f"{name} [" in query}
    question = ask(query, used)
    chain = Chain(question.plan, question.catalog, folder, **options)
    return chain, chain.cut(question.tables, 20)


def answer(query: str, inputs: dict[str, pa.Table]) -> pa.Table:
    return ms.reference(query, {name: table for name, table in inputs.items() if f"{name} [" in query})


def hot_group(chain: Chain) -> int:
    """The group with most to do."""
    loads = chain.driver.state.loads
    return max(range(len(loads)), key=loads.__getitem__)


def spread(chain: Chain, group: int, ways: int, stream: str = "A") -> None:
    try:
        merging = merging_for(chain.driver.queries, stream)
    except ms.MidstreamError:
        merging = ()
    chain.driver.apply(GroupSpread(SpreadGroup(group, stream, ways, "a test", merging=merging)))


@pytest.mark.parametrize("name", always(6, QUERIES))
def test_a_group_is_spread_and_comes_home_and_nothing_is_written_for_it(name, tmp_path):
    query, inputs = QUERIES[name], skewed(90 if "B [" in QUERIES[name] else 180)
    chain, parts = chain_of(query, tmp_path, inputs, slots=3)
    for part in parts[:3]:
        chain.batch(part)
    group = hot_group(chain)
    spread(chain, group, 3)
    for part in parts[3:6]:
        batch = chain.batch(part)
        assert [(g.group, len(g.slots), g.resting) for g in batch.slots.spread] == [(group, 3, "")]
    shared = {slot for report in batch.reports for slot in [report.slot] if report.traffic.groups.get(group)}
    assert len(shared) > 1
    chain.driver.apply(GroupBroughtHome(group))
    chain.batch(parts[6])
    assert not chain.manifest.slots.shared
    for part in parts[7:]:
        chain.batch(part)
    moves = chain.manifest.slots.moves
    assert [(move["spread"], move["brought_home"]) for move in moves] == [([group], []), ([], [group])]
    assert name in MERGED or all(move["rows_sent"] == move["bytes_written"] == 0 for move in moves)
    assert name in MERGED or chain.moves == 0
    assert not chain.query.merging
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), answer(query, inputs))
    assert difference, f"{difference}\n{chain.query.staged}"


@examples(10)
@given(name=st.sampled_from(sorted(QUERIES)), seed=st.integers(0, 1_000_000))
def test_groups_are_spread_at_random_and_results_stay(name, seed, tmp_path_factory):
    rng = random.Random(seed)
    query, inputs = QUERIES[name], skewed(rng.randint(30, 60), seed=seed, hot=rng.random())
    streams = [s for s in "ABC" if f"{s} [" in query]
    folder = tmp_path_factory.mktemp("spread")
    chain, parts = chain_of(query, folder, inputs, slots=rng.randint(1, 4), seed=seed)
    for part in parts:
        for _ in range(rng.randint(0, 2)):
            state = chain.driver.state
            match rng.choice(["spread", "spread", "spread", "home", "move", "rescale", "restart", "fail"]):
                case "spread" if chain.driver.manifest is not None:
                    group = hot_group(chain) if rng.random() < 0.7 else rng.randrange(256)
                    spread(chain, group, rng.randint(2, 4), rng.choice(streams))
                case "home" if state.spread.groups:
                    chain.driver.apply(GroupBroughtHome(rng.choice(sorted(state.spread.groups))))
                case "move":
                    routing = list(state.routing.groups)
                    for _ in range(rng.randint(1, 99)):
                        routing[rng.randrange(256)] = rng.randrange(state.slots)
                    if state.wanted is None:
                        chain.driver.rebalance(routing)
                case "rescale" if state.wanted is None:
                    chain.driver.rescale(rng.randint(1, 4))
                case "restart" if chain.driver.manifest is not None:
                    wanted = {group.group for group in chain.manifest.slots.spread}
                    chain, _ = chain_of(query, folder, inputs, seed=seed)
                    assert chain.driver.state.spread.groups.keys() == wanted
                case "fail" if chain.driver.manifest is not None:  # a batch that was run, and never committed
                    chain.cluster.run(chain.made(), part)
        chain.batch(part)
    chain.batch({}, end=True)
    difference = ms.snapshot_equal(chain.results(), answer(query, inputs))
    assert difference, f"{difference}\n{chain.query.staged}\n{chain.manifest.slots.moves}"


REFUSED = {
    "SELECT k, stddev(v) AS n FROM A [RANGE 40] GROUP BY k": "needs all rows of a key in one slot",
    "SELECT k, avg(v / 2.0) AS n FROM A [RANGE 40] GROUP BY k": "needs all rows of a key in one slot",
    "SELECT x.v FROM A [RANGE 40] AS x, A [RANGE 40] AS y WHERE x.k = y.k": "joins A with itself",
    "SELECT B.v FROM B [RANGE 40] LEFT JOIN A [RANGE 40] ON A.k = B.k": "needs all rows of a key in one slot",
    "SELECT k, v FROM A [RANGE 40] EXCEPT ALL SELECT k, v FROM B [RANGE 40]": "needs all rows of a key in one slot",
    "SELECT A.v FROM A [PARTITION BY k ROWS 2], B [RANGE 40] WHERE A.k = B.k": "needs all rows of a key in one slot",
    "SELECT A.v FROM A [RANGE 40]": "arrive in any slot",
    "SELECT count(*) AS n FROM A [RANGE 40]": "arrive in one slot",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_would_not_be_the_same_rests_and_says_why(query, tmp_path):
    inputs = skewed(30)
    chain, parts = chain_of(query, tmp_path, inputs, slots=2)
    chain.batch(parts[0])
    spread(chain, 5, 2)
    for part in parts[1:]:
        batch = chain.batch(part)
    assert [g.slots for g in batch.slots.spread] == [()]
    (told,) = chain.manifest.slots.spread
    assert REFUSED[query] in told.resting
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))


def test_a_group_rests_while_its_query_migrates(tmp_path):
    query, inputs = QUERIES["one class"], skewed()
    chain, parts = chain_of(query, tmp_path, inputs, slots=3, plan="((A B) C)")
    for i, part in enumerate(parts):
        if i == 3:
            spread(chain, hot_group(chain), 3)
        if i == 6:
            chain.migrate("(A (B C))", "genmig")
        batch = chain.batch(part)
        if i == 6:
            assert [g.resting for g in batch.slots.spread] == ["query q migrates"]
    assert chain.query.plan.text == "(A (B C))"
    assert batch.slots.spread[0].active
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))


def measured_by_rows(batch: Batch, interval: float) -> Measured:
    """What is measured where every row takes a millisecond, and so does every copy that is not counted."""
    seen = measured(batch, 1.0)
    groups = tuple(replace(group, seconds=group.rate / 1000) for group in seen.groups)
    return replace(seen, groups=groups, shared=tuple((g, replace(s, seconds=s.rate / 1000)) for g, s in seen.shared))


def test_a_hot_key_is_found_and_spread_and_comes_home_when_it_cools(tmp_path):
    rng, rows = np.random.default_rng(1), 3000
    ticks = np.sort(rng.integers(0, 300, rows))
    hot = (rng.random(rows) < 0.6) & (ticks > 40) & (ticks < 160)
    inputs = {
        "A": pa.table(
            {"ts": ticks, "k": np.where(hot, HOT, rng.integers(0, 500, rows)), "v": rng.integers(0, 9, rows)}
        ),
        "B": pa.table({"ts": np.arange(0, 300), "k": rng.integers(0, 500, 300), "v": rng.integers(0, 9, 300)}),
    }

    def opened() -> Chain:
        chain, _ = chain_of(JOIN, tmp_path, inputs, slots=4)
        chain.driver.deciding = SlotDecisions(BalancePolicy(), HotPolicy(), measure=measured_by_rows)
        return chain

    chain = opened()
    shared, evenness = [], []
    for i, part in enumerate(chain.cut(inputs, 110)):
        chain = opened() if i in (7, 12, 20) else chain
        batch = chain.batch(part)
        shared.append([group.group for group in batch.slots.spread if group.active])
        counts = [sum(report.traffic.groups.values()) for report in batch.reports]
        evenness.append(max(counts) * len(counts) / sum(counts))
    begun = next(i for i, groups in enumerate(shared) if groups)
    ended = next(i for i, groups in enumerate(shared) if i > begun and not groups)
    assert begun < 12 and 14 <= ended < 26 and not any(shared[ended:])
    assert max(evenness[begun - 2 : begun]) > 1.8
    assert sum(evenness[begun + 1 : ended - 4]) / len(evenness[begun + 1 : ended - 4]) < 1.4
    made = [told for told in chain.manifest.slots.decisions if told["kind"] == "keys" and told["action"] != "stay"]
    assert [told["action"] for told in made] == ["spread", "bring_home"]
    assert f"with k = {HOT}," in made[0]["reason"] and made[0]["expected_skew"] < made[0]["skew"]
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(JOIN, inputs))


def test_rebalancing_that_is_asked_for_spreads_hot_groups_and_brings_cooled_ones_home(tmp_path):
    rng, rows = np.random.default_rng(1), 1200
    ticks = np.sort(rng.integers(0, 200, rows))
    keys = np.where((rng.random(rows) < 0.6) & (ticks < 60), HOT, rng.integers(0, 500, rows))
    inputs = {
        "A": pa.table({"ts": ticks, "k": keys, "v": rng.integers(0, 9, rows)}),
        "B": pa.table({"ts": np.arange(200), "k": rng.integers(0, 500, 200), "v": rng.integers(0, 9, 200)}),
    }
    chain, parts = chain_of(JOIN, tmp_path, inputs, slots=4)
    parts = chain.cut(inputs, 100)
    for i, part in enumerate(parts):
        if i in (2, 12):
            foretold = forecast(chain.driver, Rebalance(), chain.catalog)
            assert foretold["changes"]
            assert (len(foretold["spread"]), len(foretold["brought_home"])) == ((1, 0) if i == 2 else (0, 1))
            assert i == 12 or f"with k = {HOT}, has" in foretold["spread"][0]["reason"]
            assert chain.driver.rebalance(None)
        batch = chain.batch(part)
        assert bool(batch.slots.spread) == (2 <= i < 12)
        if i == 3:
            counts = [sum(report.traffic.groups.values()) for report in batch.reports]
            assert max(counts) < 1.4 * sum(counts) / 4
    told = chain.manifest.slots.moves
    assert [len(move["spread"]) - len(move["brought_home"]) for move in told] == [1, -1]
    assert f"with k = {HOT}, has" in told[0]["trigger"]
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(JOIN, inputs))


def test_a_query_that_is_cut_for_one_group_stays_so_for_another(tmp_path):
    query, inputs = MERGED["distinct"], skewed()
    chain, parts = chain_of(query, tmp_path, inputs, slots=3)
    for i, part in enumerate(parts):
        if i == 2:
            first = hot_group(chain)
            spread(chain, first, 3)
        if i == 4:
            assert chain.query.merging
            spread(chain, (first + 1) % 256, 2)
        if i == 6:
            chain.driver.apply(GroupBroughtHome(first))
        batch = chain.batch(part)
    assert [(group.group, group.merging, group.active) for group in batch.slots.spread] == [
        ((first + 1) % 256, ("q",), True)
    ]
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))
