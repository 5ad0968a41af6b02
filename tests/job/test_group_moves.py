"""Partition groups as ranges of every state: moving one names it, whatever the query, the bits and the moment."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job.chain import Chain
from tests.job.test_chain import KEYS, KEYS_GROUPED, STAGES, tables
from tests.profiles import examples

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.opening import open_segment

ONE_KEY = "SELECT A.v AS a, B.v AS b FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
QUERIES = {
    "join": ONE_KEY,
    "stages": KEYS,
    "grouped": KEYS_GROUPED,
    "distinct": STAGES,
    "other key": "SELECT k, v, count(*) AS n FROM A [RANGE 40] GROUP BY k, v",
    "distinct tuples": "SELECT DISTINCT A.k, A.v FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k",
    "two columns": "SELECT A.k FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k AND A.v = B.v",
    "outer": "SELECT A.v AS a, B.v AS b FROM A [RANGE 40] LEFT JOIN B [RANGE 40] ON A.k = B.k",
    "rows": "SELECT A.v FROM A [PARTITION BY k ROWS 2], B [RANGE 40] WHERE A.k = B.k",
    "difference": "SELECT k, v FROM A [RANGE 40] EXCEPT SELECT k, v FROM B [RANGE 40]",
    "entered": "SELECT ISTREAM k, v FROM A [RANGE 40]",
}


def read_by(query: str, inputs: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The streams that a query reads."""
    return {name: table for name, table in inputs.items() if name in re.findall(r"\b[A-Z]\b", query)}


def chain_of(query: str, folder: Path, inputs: dict[str, pa.Table], **options: Any) -> tuple[Chain, list]:
    """A chain over a query, and its batches."""
    used = read_by(query, inputs)
    question = ask(query, used)
    chain = Chain(question.plan, question.catalog, folder, **options)
    return chain, chain.cut(question.tables, 20)


def owned(chain: Chain) -> int:
    """Checks that each slot holds rows of its own groups only; gives how many segments were looked at."""
    manifest, looked_at = chain.manifest, 0
    routing, width = np.array(manifest.slots.routing), np.uint64(64 - chain.driver.state.group_bits)
    for fragment in chain.query.staged.fragments:
        grouped = {(s.id, s.key) for s in chain.query.boxes[fragment.number].states() if s.grouping is not None}
        for slot, entries in manifest.segments["q"].get(fragment.number, {}).items():
            for entry in (e for e in entries if (e.state, e.key) in grouped):
                segment = open_segment(chain.driver.files, entry)
                assert len(segment) == entry.rows
                assert (routing[segment.hashes >> width] == slot).all()
                looked_at += 1
    return looked_at


def answer(query: str, inputs: dict[str, pa.Table]) -> pa.Table:
    return ms.reference(query, read_by(query, inputs))


@examples(8)
@given(name=st.sampled_from(sorted(QUERIES)), bits=st.integers(8, 12), seed=st.integers(0, 1_000_000))
def test_groups_move_at_random_and_results_stay(name, bits, seed, tmp_path_factory):
    query, inputs, rng = QUERIES[name], tables(rows=50, last=120), random.Random(seed)
    folder = tmp_path_factory.mktemp("groups")
    chain, parts = chain_of(query, folder, inputs, slots=rng.randint(1, 4), bits=bits, seed=seed)
    looked_at = 0
    for part in parts:
        match rng.choice(["stay", "move", "scatter", "rescale", "restart"]):
            case "move":
                routing = list(chain.driver.state.routing.groups)
                for _ in range(rng.randint(1, 5)):
                    routing[rng.randrange(len(routing))] = rng.randrange(chain.driver.state.slots)
                chain.driver.rebalance(routing)
            case "scatter":
                chain.driver.rebalance([rng.randrange(chain.driver.state.slots) for _ in range(2**bits)])
            case "rescale":
                chain.driver.rescale(rng.randint(1, 5))
            case "restart" if chain.driver.manifest is not None:
                chain, _ = chain_of(query, folder, inputs, seed=seed)
                assert chain.driver.state.group_bits == bits
        chain.batch(part)
        looked_at += owned(chain)
    chain.batch({}, end=True)
    assert looked_at
    difference = ms.snapshot_equal(chain.results(), answer(query, inputs))
    assert difference, f"{difference}\n{chain.query.staged}"


def stored_bytes(chain: Chain) -> int:
    """How much the folder of states holds."""
    files = chain.driver.files
    return sum(Path(files.full(path)).stat().st_size for path in files.list("state"))


def test_what_comes_back_is_one_segment_again(tmp_path):
    keys = pa.table({"k": range(4_000), "v": [0] * 4_000, "ts": [i // 100 for i in range(4_000)]})
    chain, (part, *_) = chain_of(ONE_KEY, tmp_path, {"A": keys, "B": keys}, slots=2)
    chain.batch(part)

    def named() -> list[tuple[int, str, str, int]]:
        stored = chain.manifest.segments["q"][0]
        return sorted((slot, e.state, e.place, e.rows) for slot, entries in stored.items() for e in entries)

    before = named()
    assert chain.driver.rescale(8)
    chain.batch({})
    assert all(entry.is_part for entry in chain.manifest.entries())
    assert chain.driver.rescale(2)
    chain.batch({})
    assert named() == before


@pytest.mark.parametrize("name", ["join", "other key", "two columns", "distinct tuples"])
def test_moving_a_group_writes_nothing(name, tmp_path):
    query, inputs = QUERIES[name], tables(rows=200, last=120)
    chain, parts = chain_of(query, tmp_path, inputs, slots=2)
    for part in parts[:6]:
        chain.batch(part)
    loads, routing = chain.driver.state.loads, list(chain.manifest.slots.routing)
    group = max((g for g, slot in enumerate(routing) if slot == 0), key=lambda g: loads[g])
    routing[group] = 1
    before, bytes_before = {e.origin for e in chain.manifest.entries()}, stored_bytes(chain)
    assert chain.driver.rebalance(routing)
    batch = chain.made()
    assert chain.moves == 0
    assert stored_bytes(chain) == bytes_before
    assert batch.before is not None and batch.changes.moved is not None
    assert {entry.origin for entry in batch.before.entries()} == before
    assert (batch.changes.moved["groups"], batch.changes.moved["rows_sent"], batch.changes.moved["bytes_written"]) == (
        1,
        0,
        0,
    )
    for part in parts[6:]:
        chain.batch(part)
    assert owned(chain)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))


def test_what_a_group_left_behind_is_not_merged_for_that(tmp_path):
    inputs = tables(rows=400, last=400)
    chain, parts = chain_of(ONE_KEY.replace("40", "400"), tmp_path, inputs, slots=2)
    for part in parts[:12]:
        chain.batch(part)
    before = {e.origin for e in chain.manifest.entries()}
    routing = list(chain.manifest.slots.routing)
    routing[3] = 1
    chain.driver.rebalance(routing)
    chain.batch({})
    # A batch without rows appends nothing, and parts of one segment are no reason to merge.
    assert {e.origin for e in chain.manifest.entries()} == before


def test_a_routing_that_names_a_missing_slot_is_refused(tmp_path):
    chain, parts = chain_of(ONE_KEY, tmp_path, tables(), slots=2)
    chain.batch(parts[0])
    with pytest.raises(ms.MidstreamError, match="256 partition groups") as error:
        chain.driver.rebalance([0] * 255 + [2])
    assert "it names slot 2; the slots are 0 to 1" in str(error.value)
    assert chain.driver.state.wanted is None


@pytest.mark.parametrize("slots", [0, 257, True])
def test_more_slots_than_groups_are_refused(slots, tmp_path):
    chain, parts = chain_of(ONE_KEY, tmp_path, tables(), slots=2)
    chain.batch(parts[0])
    with pytest.raises(ms.MidstreamError, match="1 to 256 slots"):
        chain.driver.rescale(slots)
    assert chain.driver.state.wanted is None


def test_the_number_of_groups_is_chosen_with_the_checkpoint(tmp_path):
    chain, parts = chain_of(ONE_KEY, tmp_path, tables(), slots=2, bits=10)
    chain.batch(parts[0])
    assert len(chain.manifest.slots.routing) == len(chain.manifest.slots.loads) == 1024
    chain, _ = chain_of(ONE_KEY, tmp_path, tables())
    assert chain.driver.state.group_bits == 10
    chain.driver.open(bits=10)
    with pytest.raises(ms.MidstreamError, match="of 10 bits, not of 9"):
        chain.driver.open(bits=9)
    with pytest.raises(ms.MidstreamError, match="8 to 12 bits, not 13"):
        Chain(chain.relation, chain.catalog, tmp_path / "other").driver.open(bits=13)


def test_a_second_rescale_waits_for_the_first(tmp_path):
    chain, parts = chain_of(ONE_KEY, tmp_path, tables(), slots=2)
    chain.batch(parts[0])
    assert chain.driver.rescale(3)
    for slots in (4, 2):
        with pytest.raises(ms.MidstreamError, match="goes over to 3 slots already"):
            chain.driver.rescale(slots)
    with pytest.raises(ms.MidstreamError, match="goes over to 3 slots already"):
        chain.driver.rebalance([1] * 256)
    assert not chain.driver.rescale(3)
    chain.batch(parts[1])
    assert chain.driver.state.slots == 3
    assert chain.driver.rescale(4)


@pytest.mark.parametrize("name", ["join", "distinct"])
def test_a_group_of_scattered_ones_moves_without_writing(name, tmp_path):
    query, inputs = QUERIES[name], tables(rows=120, last=120)
    chain, parts = chain_of(query, tmp_path, inputs, slots=2)
    chain.batch(parts[0])
    scattered = [group % 2 for group in range(256)]
    chain.driver.rebalance(scattered)
    for part in parts[1:4]:
        chain.batch(part)
    for group in (4, 6, 100):
        scattered[group] = 1
    chain.driver.rebalance(scattered)
    chain.batch(parts[4])
    assert chain.manifest.slots.moves[-1]["bytes_written"] == 0
    assert owned(chain)
    for part in parts[5:]:
        chain.batch(part)
    chain.batch({}, end=True)
    assert ms.snapshot_equal(chain.results(), answer(query, inputs))
