"""Rows that go to several slots: their owner accounts for them, and nobody else's results change."""

from __future__ import annotations

from dataclasses import fields, replace

import pyarrow as pa
import pytest
from tests.job.test_chain import tables
from tests.job.test_group_moves import QUERIES, answer, chain_of

import midstream as ms
from midstream.job import flow
from midstream.job.circumstances import SlotLayout
from midstream.job.flow import make


class ToEverySlot(SlotLayout):
    """All rows that have a key go to all three slots."""

    @property
    def copies(self):
        return {group: tuple({0, 1, 2} - {owner}) for group, owner in enumerate(self.routing)}


@pytest.mark.parametrize("name", ["join", "distinct", "entered"])
def test_copies_are_accounted_for_by_the_owners_alone(name, tmp_path, monkeypatch):
    query, inputs = QUERIES[name], tables(rows=60, last=120)
    plain, parts = chain_of(query, tmp_path / "plain", inputs, slots=3)
    copied, _ = chain_of(query, tmp_path / "copied", inputs, slots=3)
    run, taken = copied.cluster._slots.run, []

    def with_copies(state, at, sifted):
        batch = yield from make(state, at, sifted)
        slots = ToEverySlot(**{f.name: getattr(batch.slots, f.name) for f in fields(batch.slots)})
        return replace(batch, slots=slots) if state is copied.driver.state else batch

    def counting(steps, dealt, count):
        taken.append(sum(rows.num_rows for slot in dealt for rows in slot))
        return run(steps, dealt, count)

    monkeypatch.setattr(flow, "make", with_copies)
    monkeypatch.setattr(copied.cluster._slots, "run", counting)
    late = {"A": pa.RecordBatch.from_pylist([{"ts": 0, "k": 1, "v": 1}], schema=inputs["A"].schema)}
    for part in [*parts, late, None]:
        for chain in (plain, copied):
            chain.batch(part or {}, end=part is None)
    keyed = {name for name, route in copied.driver.state.routes.items() if route.key}
    arrived = [(name in keyed, rows.num_rows) for part in [*parts, late] for name, rows in part.items()]
    assert sum(taken) == sum(3 * count if by_key else count for by_key, count in arrived)
    assert copied.manifest.streams == plain.manifest.streams
    assert sum(copied.manifest.slots.loads) == pytest.approx(sum(plain.manifest.slots.loads), rel=0.02)
    dead = [sum(file.rows for file in chain.manifest.outputs.dead_letters.newer) for chain in (plain, copied)]
    assert dead == [1, 1]
    assert ms.snapshot_equal(copied.results(), answer(query, inputs))
    assert copied.results().num_rows == plain.results().num_rows
