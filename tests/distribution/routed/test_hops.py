"""Rounds of hops, interpreted slot by slot over batches, give the oracle's answer."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.distribution.routed.joins import Joined, draw_join, draw_plan

import midstream as ms
from midstream.algebra.placements import Placement
from midstream.cluster.simulated.routed_run import local_rows
from midstream.distribution.routed.hops import Hop, KeptWindow, Travel, kept_windows, rounds
from midstream.distribution.routed.probing import Prober
from midstream.distribution.routed.query import RoutedQuery
from midstream.distribution.routed.window import Window
from midstream.job.task.result_table import result_table
from midstream.operators.build import build
from midstream.operators.elements import Elements, concatenate, empty_elements
from midstream.operators.hashing import hash_columns
from midstream.optimizer.routed.text import parse_plan

SLOTS = 3


def slots_of(rows: Elements, key: tuple[str, ...]) -> np.ndarray:
    return hash_columns([rows.columns.column(name) for name in key]) % SLOTS


def spread(rows: Elements, travel: Travel, key: tuple[str, ...], here: int) -> list[Elements]:
    """What each slot gets of rows that are in one."""
    if travel is Travel.TO_ALL:
        return [rows] * SLOTS
    if travel is Travel.STAY:
        return [rows if slot == here else rows.slice(0, 0) for slot in range(SLOTS)]
    where = slots_of(rows, key)
    return [rows.where(where == slot) for slot in range(SLOTS)]


class Slots:
    """Windows and partial results in slots, without a cluster."""

    def __init__(self, query: RoutedQuery, plan) -> None:
        self.query, self.prober = query, Prober(query)
        self.rounds = rounds(query, plan)
        self.windows: dict[KeptWindow, list[Window]] = {}
        for kept in kept_windows(self.rounds):
            node = query.input(kept.stream)
            self.windows[kept] = [Window(node.content, node.schema, node.longest) for _ in range(SLOTS)]

    def run(self, number: int, batch: dict[str, Elements], arrival: dict[str, int]) -> list[Elements]:
        for kept, windows in self.windows.items():
            travel = Travel.BY_KEY if kept.travel is Travel.BY_KEY else kept.travel
            parts = spread(batch[kept.stream], travel, kept.key, arrival[kept.stream])
            for window, part in zip(windows, parts, strict=True):
                window.add(number, part)
        partial = {
            head: [rows if slot == arrival[head] else rows.slice(0, 0) for slot in range(SLOTS)]
            for head, rows in batch.items()
        }
        for round in self.rounds:
            for hop in round.hops:
                partial[hop.head] = self._hop(number, hop, partial[hop.head])
        return [rows for parts in partial.values() for rows in parts if len(rows)]

    def _hop(self, number: int, hop: Hop, parts: list[Elements]) -> list[Elements]:
        sent = [spread(rows, hop.travel, hop.key, slot) for slot, rows in enumerate(parts)]
        found = []
        for slot in range(SLOTS):
            rows = concatenate([parts[slot] for parts in sent])
            window = self.windows[hop.window][slot]
            found.append(self.prober.probe(hop.head, hop.met, rows, hop.window.stream, window, number).rows)
        return found


def answer(joined: Joined, random: Random):
    query = joined.query
    plan, count = draw_plan(random, query.conditions), random.randint(1, 6)
    slots, found = Slots(query, plan), []
    cuts = {}
    for stream in query.streams:
        size = joined.tables[stream].num_rows
        cuts[stream] = [0, *sorted(random.randint(0, size) for _ in range(count - 1)), size]
    for number in range(count):
        batch = {}
        for stream in query.streams:
            start, end = cuts[stream][number : number + 2]
            batch[stream] = local_rows(query, stream, joined.tables[stream].slice(start, end - start), "ts")
        found += slots.run(number, batch, {s: random.randrange(SLOTS) for s in query.streams})
    schema = query.default.schema
    found = [rows.with_columns(rows.columns.select(schema.names)) for rows in found]
    elements = concatenate(found) if found else empty_elements(schema)
    for node in query.above:
        elements = build(node, {}).process(0, elements) or empty_elements(node.schema)
    return plan, result_table(query.plan, elements)


@pytest.mark.parametrize("seed", range(30))
def test_rounds_in_slots_agree_with_the_oracle(seed):
    random = Random(seed)
    count = 3 + seed % 4
    joined = draw_join(random, count, 12 if count < 5 else 5)
    plan, result = answer(joined, random)
    reference = ms.reference(joined.text, joined.tables)
    same = ms.snapshot_equal(result, reference)
    assert same and result.num_rows == reference.num_rows, f"{same}\n{plan}\n{joined.text}"


@pytest.fixture
def chained() -> RoutedQuery:
    text = "SELECT A.v AS a FROM A [RANGE 5], B [RANGE 5], C [RANGE 5], D [RANGE 5] "
    joined = draw_join(Random(0), 4, 4)
    return Joined(text + "WHERE A.k0 = B.k0 AND B.k1 = C.k1 AND C.v < D.v", joined.tables).query


def test_a_way_over_differing_keys_travels_by_each(chained):
    plan = parse_plan("A -> B -> C -> D, B -> A -> C <- D, C -> B -> A -> D, D <- C -> B -> A", chained.conditions)
    found = rounds(chained, plan)
    assert [str(round.hops[0]) for round in found] == [
        "A by key A.k0, probe B by B.k0",
        "A..B by key B.k1, probe C by C.k1",
        "A..C to all slots, probe D anywhere",
    ]
    assert str(found[0].hops[3]) == "D stay, probe C in every slot"
    assert [round.exchanges for round in found] == [True, True, True]
    kept = {str(window) for window in kept_windows(found)}
    assert kept >= {"B by B.k0", "B by B.k1", "C by C.k1", "C in every slot", "D anywhere", "D in every slot"}


def test_equal_keys_are_met_without_a_second_exchange():
    joined = draw_join(Random(0), 3, 4)
    text = "SELECT A.v AS a FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.k0 = B.k0 AND B.k0 = C.k0"
    query = Joined(text, joined.tables).query
    found = rounds(query, parse_plan("A -> B -> C, B -> A -> C, C -> B -> A", query.conditions))
    assert [round.exchanges for round in found] == [True, False]
    assert {hop.travel for hop in found[1].hops} == {Travel.STAY}


def test_source_placement_everywhere_needs_no_exchange(chained):
    plan = draw_plan(Random(1), chained.conditions)
    text = str(plan).replace("->", "<-")
    found = rounds(chained, parse_plan(text, chained.conditions))
    assert not any(round.exchanges for round in found)
    assert all(join.placement is Placement.SOURCE for way in parse_plan(text, chained.conditions) for join in way.joins)
