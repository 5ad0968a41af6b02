"""Tasks that are run again: slots of the next stage may have their rows from different attempts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.test_two_drivers import STAGES, chain_on, rows

import midstream as ms
from midstream.checkpoint.local_files import LocalFiles
from midstream.cluster.slot_threads import Dealt, SlotThreads, Step, _owners
from midstream.errors import JobError
from midstream.job.task.exchange import NOTE
from midstream.job.task.reports import Report


class TwoAttempts(SlotThreads):
    """Runs every task of the first stage twice, the first time without storage in one slot.

    What that attempt gave reaches slot 1; slot 0, which reports go to, gets what the second one gave.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: int) -> None:
        super().__init__(threads=1, shuffle=np.random.default_rng(0))  # so reports travel with the rows
        self.monkeypatch = monkeypatch
        self.broken = broken

    def run(self, steps: Sequence[Step], slots: Dealt, count: int) -> list[Report]:
        for number, step in enumerate(steps):
            sent: Dealt = [[] for _ in range(count)]
            for slot in range(count):
                bad = self._without_storage(step, slot, slots, count) if (number, slot) == (0, self.broken) else None
                good = self._dealt(step, slot, slots, count)
                for target in range(count):
                    sent[target] += (bad if bad is not None and target == 1 else good)[target]
            slots = sent
        return [Report.from_bytes(note) for found in slots[0] for note in found.column(NOTE).to_pylist()]

    def _dealt(self, step: Step, slot: int, slots: Dealt, count: int) -> Dealt:
        dealt: Dealt = [[] for _ in range(count)]
        for found in step.run(slot, iter(slots[slot])):
            if found.num_rows:
                self.deal(found, _owners(found), dealt)
        return dealt

    def _without_storage(self, *arguments: Any) -> Dealt:
        def refuse(*_: Any, **__: Any) -> None:
            raise JobError("the storage is away")

        with self.monkeypatch.context() as patched:
            patched.setattr(LocalFiles, "write_atomic", refuse)
            return self._dealt(*arguments)


class TwoAttemptsTwice(TwoAttempts):
    """Slot 1 runs the second stage twice too: with what the failed attempt gave, and with what the other one gave.

    What the first of these gave reaches slot 0 of the third stage; slot 1 gets what the second one gave.
    """

    def run(self, steps: Sequence[Step], slots: Dealt, count: int) -> list[Report]:
        good = [self._dealt(steps[0], slot, slots, count) for slot in range(count)]
        bad = [*good]
        bad[self.broken] = self._without_storage(steps[0], self.broken, slots, count)
        received = [[found for dealt in good for found in dealt[slot]] for slot in range(count)]
        lacking = [[found for dealt in bad for found in dealt[slot]] for slot in range(count)]
        sent: Dealt = [*self._dealt(steps[1], 0, received, count)]
        first, second = self._dealt(steps[1], 1, lacking, count), self._dealt(steps[1], 1, received, count)
        sent = [sent[0] + first[0], sent[1] + second[1]]
        for step in steps[2:]:
            dealt = [self._dealt(step, slot, sent, count) for slot in range(count)]
            sent = [[found for one in dealt for found in one[slot]] for slot in range(count)]
        return [Report.from_bytes(note) for rows in sent for found in rows for note in found.column(NOTE).to_pylist()]


def fed(folder: Path) -> Chain:
    chain = chain_on(folder, STAGES, slots=2)
    chain.batch({name: rows(0, 10) for name in "ABC"})
    return chain


@pytest.mark.parametrize("broken", [0, 1])
def test_an_attempt_that_failed_is_heard_of_wherever_its_rows_are_missing(broken, tmp_path, monkeypatch):
    chain = fed(tmp_path)
    usual = chain.cluster._slots
    chain.cluster._slots = TwoAttempts(monkeypatch, broken)
    with pytest.raises(JobError, match="the storage is away"):
        chain.batch({name: rows(10, 10) for name in "ABC"})
    assert chain.driver.store.batch_ids() == [0]
    chain.cluster._slots = usual
    chain.batch({name: rows(10, 10) for name in "ABC"})
    chain.batch({}, end=True)
    _require_right_results(chain)


@pytest.mark.parametrize("broken", [0, 1])
def test_an_attempt_that_failed_is_heard_of_two_stages_later(broken, tmp_path, monkeypatch):
    chain = fed(tmp_path)
    assert chain.query.staged.stages == 3
    usual = chain.cluster._slots
    chain.cluster._slots = TwoAttemptsTwice(monkeypatch, broken)
    with pytest.raises(JobError, match="the storage is away"):
        chain.batch({name: rows(10, 10) for name in "ABC"})
    chain.cluster._slots = usual
    chain.batch({name: rows(10, 10) for name in "ABC"})
    chain.batch({}, end=True)
    _require_right_results(chain)


def _require_right_results(chain: Chain) -> None:
    inputs = {name: pa.Table.from_batches([rows(0, 20)]) for name in "ABC"}
    assert ms.snapshot_equal(chain.results(), ms.reference(STAGES, inputs))
