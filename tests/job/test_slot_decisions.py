"""Jobs that decide about their slots: real batches are measured, and what is decided changes no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.test_chain import GROUPS, THREE
from tests.job.test_local_plans import many_keys
from tests.job.test_moving import by_rows, skewed
from tests.profiles import always, mixed

import midstream as ms
from midstream.adaptation.decider import Caution
from midstream.adaptation.group_moves import BalancePolicy
from midstream.adaptation.scaling import ScalePolicy, SlotRange
from midstream.api import ask
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.files import SideBySide
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.status import job_at, status_record
from midstream.codec import read
from midstream.job.batch import Batch
from midstream.job.outputs.progress import seconds_of, slot_loads
from midstream.job.slots.measuring import Measured, measured
from midstream.job.slots.slot_decisions import Remembered, SlotDecisions


def scaling_by(busy: list[float]) -> SlotDecisions:
    """Slots that are as busy as they are said to be, batch by batch."""

    def measure(batch: Batch, interval: float) -> Measured:
        return replace(measured(batch, interval), busy=busy[batch.batch_id])

    return SlotDecisions(among=SlotRange.of("2..6"), scaling=ScalePolicy(caution=Caution(rest=2)), measure=measure)


def opened(query: str, inputs: dict[str, pa.Table], folder: Path, busy: list[float], slots: int = 2) -> Chain:
    question = ask(query, inputs)
    chain = Chain(question.plan, question.catalog, folder, slots=slots)
    chain.driver.deciding = scaling_by(busy)
    return chain


@pytest.mark.parametrize(("query", "restarts"), always(2, mixed([THREE, GROUPS], [(), (3, 7, 11)])))
def test_slots_come_and_go_by_themselves(query, restarts, tmp_path):
    inputs = many_keys(rows=120, last=200)
    busy = [0.9] * 5 + [0.5] * 4 + [0.05] * 30
    chain = opened(query, inputs, tmp_path, busy)
    counts = []
    for i, part in enumerate(chain.cut(inputs, 18)):
        if i in restarts:
            chain = opened(query, inputs, tmp_path, busy, chain.driver.state.slots)
        chain.batch(part)
        counts.append(chain.driver.state.slots)
    chain.batch({}, end=True)
    assert counts[0] == 2 and counts[5] == 3 and counts[-1] == 2
    made = [told for told in chain.manifest.slots.decisions if told["action"] != "stay"]
    assert [told["action"] for told in made] == ["more", "fewer"]
    assert [move["trigger"] for move in chain.manifest.slots.moves] == [told["reason"] for told in made]
    assert StoredJob.open(str(tmp_path)).slots.decisions[0]["kind"] == "slots"
    assert ms.snapshot_equal(chain.results(), ms.reference(query, inputs))


def test_real_batches_are_measured(tmp_path):
    inputs = skewed()
    question = ask(THREE, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3)
    for part in chain.cut(question.tables, 200):
        batch = chain.batch(part)
    seen = measured(batch, 2.0)
    assert len(seen.groups) == 256
    held = sum(part.state_bytes for report in batch.reports for part in report.fragments.values())
    assert sum(group.bytes for group in seen.groups) == pytest.approx(held)
    worked = sum(report.processor for report in batch.reports)
    assert worked > 0
    assert sum(group.seconds for group in seen.groups) == pytest.approx(worked / 2.0)
    rows = sum(count for report in batch.reports for count in report.traffic.groups.values())
    assert sum(group.rate for group in seen.groups) == pytest.approx(rows / 2.0)
    assert all(group.owner == slot for group, slot in zip(seen.groups, batch.slots.routing, strict=True))


@pytest.mark.parametrize("restart", always(1, [4, None]))
def test_what_balancing_remembers_outlives_a_restart(restart, tmp_path):
    inputs = skewed()
    question = ask(THREE, inputs)

    def opened() -> Chain:
        chain = Chain(question.plan, question.catalog, tmp_path, slots=8)
        chain.driver.deciding = SlotDecisions(BalancePolicy(), measure=by_rows)
        return chain

    chain = opened()
    for i, part in enumerate(chain.cut(question.tables, 60)):
        chain = opened() if i == restart else chain
        chain.batch(part)
    chain.batch({}, end=True)
    assert chain.manifest.slots.moves
    assert read(Remembered, chain.manifest.slots.deciding).changes["groups"].made
    assert ms.snapshot_equal(chain.results(), ms.run(THREE, inputs))


def pushed(seed: int) -> pa.Table:
    drawn = np.random.default_rng(seed)
    k, v, ts = (
        drawn.integers(0, 9, 20),
        drawn.integers(0, 9, 20),
        np.sort(drawn.integers(10 * seed, 10 * seed + 10, 20)),
    )
    return pa.table({"k": k, "v": v, "ts": ts})


def test_a_session_keeps_to_its_range(tmp_path):
    def opened(slots: int | str) -> ms.Session:
        session = ms.Session(checkpoint=str(tmp_path), on="local", slots=slots)
        session.stream("A", pushed(0).schema)
        session.query("q", "SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k")
        return session.start()

    with opened(1) as session:
        session.push("A", pushed(1))
    with opened("2..4") as session:
        session.push("A", pushed(2))
        assert session.job.slots.count == 2
        with pytest.raises(ms.MidstreamError, match=r"5 slots are outside of slots = 2\.\.4"):
            session.rescale(5)
        assert session.rescale(3)
        session.push("A", pushed(3))
        assert session.job.slots.count == 3


def test_jobs_move_groups_by_the_protocol_that_is_asked_for(tmp_path):
    wanted = [group % 2 for group in range(256)]
    with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as session:
        session.stream("A", pushed(0).schema)
        session.query("q", "SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k")
        session.start()
        session.push("A", pushed(1))
        with pytest.raises(ms.MigrationError, match="query q: ptlb cannot move groups of this plan: it contains"):
            session.rebalance(wanted, protocol="ptlb")
        assert session.rebalance(wanted, protocol="split_time")
        session.push("A", pushed(2))
        assert status_record(job_at(str(tmp_path)))["slots"]["moving"]["protocol"] == "split_time_balancing"
        with pytest.raises(ms.MigrationError, match="groups move by split_time_balancing since batch 1"):
            session.rebalance(protocol="mslb")
        session.drop("q")
        session.query("all", "SELECT k, count(*) AS n FROM A [UNBOUNDED] GROUP BY k")
        for number in range(3, 6):
            session.push("A", pushed(number))
        assert status_record(job_at(str(tmp_path)))["slots"]["moving"] is None
        with pytest.raises(ms.MigrationError, match=r"query all: split_time_balancing cannot move .*UNBOUNDED"):
            session.rebalance(protocol="split_time", routing=[0] * 256)
        assert session.rebalance([0] * 256, protocol="mslb")
        with pytest.raises(ms.MigrationError, match="unknown balancing protocol"):
            session.rebalance(protocol="best")


@pytest.mark.parametrize("slots", [0, -1, "0..2", "4..2", "2..", "x", "2..1000", True])
def test_slots_that_cannot_be_are_refused(slots, tmp_path):
    with pytest.raises(ms.MidstreamError):
        ms.Session(checkpoint=str(tmp_path), on="local", slots=slots)


def test_a_slot_that_waits_has_no_more_load(tmp_path):
    """Slots that wait for rows, for a core or for each other differ by the clock, not in their load."""
    inputs = skewed()
    question = ask(THREE, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=2)
    batch = chain.batch(chain.cut(question.tables, 200)[0])
    for report in batch.reports:
        report.processor = 0.5
    waiting, working = (report for report in batch.reports if report.stage == 0)
    waiting.seconds["kernel"], working.seconds["kernel"] = 3.0, 0.5
    seen = measured(batch, 1.0)
    loads = [sum(group.seconds for group in seen.groups if group.owner == slot) for slot in (0, 1)]
    assert loads[0] == pytest.approx(loads[1])
    assert slot_loads(batch.reports)[0] == slot_loads(batch.reports)[1]
    assert seconds_of(batch.reports, 4.0)["processor"] == max(slot_loads(batch.reports).values())
    assert seen.busy >= 3.0  # batches fall behind by the clock


def test_what_threads_write_for_a_slot_is_part_of_its_load(tmp_path):
    files = SideBySide(files_at(str(tmp_path)))
    assert files.processor == 0.0
    files.write_atomic("file", b"x" * 10_000_000, sync=False)
    files.wait()
    assert files.processor > 0.0
