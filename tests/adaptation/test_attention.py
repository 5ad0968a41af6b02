"""When an adaptive query looks at its rows, and what makes it look."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from midstream.adaptation.drift import Alarm
from midstream.adaptation.observer import Observer
from midstream.adaptation.sampling_pace import Attention
from midstream.adaptation.smoothing import Smoothed
from midstream.inputs import catalog_of
from midstream.lab.bench.adaptivity_runs import Meter
from midstream.language import parse
from midstream.operators.base import Work
from midstream.operators.box import Box
from midstream.operators.elements import Elements
from midstream.optimizer.plans import plan_query

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
QUERY = parse(
    "SELECT A.k FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k", catalog_of({n: SCHEMA for n in "AB"}, "ts")
)


def box() -> Any:
    """All that the alarm wants to know of a box."""
    return SimpleNamespace(work=Work())


def test_the_alarm_rings_in_the_batch_in_which_the_work_has_changed():
    rng, running, alarm = np.random.default_rng(1), box(), Alarm()
    for _ in range(50):
        running.work.probed += int(1000 * (1 + 0.05 * rng.standard_normal()))
        assert not alarm.rings(running, 500)
    running.work.probed += 2000
    assert alarm.rings(running, 500)
    for _ in range(5):
        running.work.probed += 2000
        assert not alarm.rings(running, 500), "twice the work is usual by now"


def test_the_alarm_knows_that_more_rows_are_more_work_and_that_a_new_box_begins_anew():
    running, alarm = box(), Alarm()
    for rows in (500, 700, 300, 900, 500):
        running.work.probed += 2 * rows
        assert not alarm.rings(running, rows)
    other = box()
    other.work.probed = 10_000
    assert not alarm.rings(other, 500)


def fed(attention: Attention, batches: int, settle: bool) -> list[bool]:
    """Whether each batch was looked at."""
    observer, looked = Observer(QUERY, attention=attention), []
    for number in range(batches):
        ticks = np.arange(10, dtype=np.int64) + 10 * number
        looked.append(observer.pace.due)
        for alias in "AB":
            columns = pa.RecordBatch.from_arrays([pa.array(ticks % 7)], [f"{alias}.k"])
            observer.take(alias, Elements(columns, ticks, ticks + 100), ticks)
        observer.end_batch()
        if looked[-1] and settle:
            observer.pace.note_sample(nothing_new=True)
    return looked


def test_looks_become_rare_while_they_show_nothing_new():
    resting, always = Attention(resting=4), Attention()
    assert sum(fed(resting, 100, settle=True)) < 20
    assert sum(fed(resting, 100, settle=False)) == sum(fed(always, 100, settle=True)) > 45


def test_no_four_windows_pass_without_a_look():
    looked = fed(Attention(apart=(2, 2), resting=1000), 300, settle=True)
    places = [number for number, look in enumerate(looked) if look]
    assert max(b - a for a, b in pairwise(places)) == 40, "a window of 100 ticks is ten batches"


def test_a_batch_can_be_looked_at_after_it_has_come():
    observer = Observer(QUERY, attention=Attention(resting=4))
    observer.pace.due = False
    ticks = np.arange(50, dtype=np.int64)
    columns = pa.RecordBatch.from_arrays([pa.array(ticks % 7)], ["A.k"])
    observer.take("A", Elements(columns, ticks, ticks + 100), ticks)
    assert observer.keys["A.k"].rows == 0 and observer.batch_rows == 50
    observer.sample_at_once()
    assert observer.keys["A.k"].rows == 50 and observer.pace.due


@pytest.mark.parametrize("factor", [2.0, 0.5, 4.0])
@pytest.mark.parametrize("before", [4, 40])
def test_a_rate_that_doubles_is_noticed_in_three_steps_however_young_the_mean(factor, before):
    rng, found = np.random.default_rng(3), 0
    for _ in range(100):
        rate = Smoothed(0.85)
        for _ in range(before):
            rate.add(rng.poisson(100), 10)
        noticed = [rate.add(rng.poisson(100 * factor), 10) for _ in range(3)]
        found += any(noticed)
        if any(noticed):
            assert rate.value == pytest.approx(10 * factor, rel=0.3)
    assert found >= 95


def test_independent_noise_is_no_change():
    rng = np.random.default_rng(5)
    rate = Smoothed(0.85)
    assert not any(rate.add(rng.poisson(100), 10) for _ in range(5000))
    noisy = Smoothed(0.85)
    changes = sum(noisy.add(rng.poisson(100 * (0.7 + 0.6 * rng.random())), 10) for _ in range(5000))
    assert changes <= 10 and noisy.value == pytest.approx(10, rel=0.4)


def test_one_odd_step_is_a_hiccup():
    rate = Smoothed(0.85)
    for _ in range(20):
        rate.add(100, 10)
    assert not rate.add(0, 10) and not rate.add(100, 10) and not rate.add(900, 10) and not rate.add(100, 10)


def test_the_meter_counts_all_operators_that_are_built_while_it_is_open():
    plan = plan_query(QUERY, "(A B)")
    with Meter() as meter:
        first, second = Box(plan.physical), Box(plan.physical)
    outside = Box(plan.physical)
    for each in (first, second, outside):
        each.operators[0].work.probed += 7
    assert meter.read() == 14
