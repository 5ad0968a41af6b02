"""A wall clock that is wrong for a while: nothing that cannot be taken back follows from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.process import CONFIRMED_AFTER, LONGEST_REST, TOLERANCE, BelievedTime, Process, this_process

ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
YEAR = 365 * 86400.0


@dataclass
class Clocks:
    """The clocks of a machine: time goes by on both, and somebody sets the wall clock."""

    wall: float = ZERO.timestamp()
    steady: float = 1000.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(Process, "now", lambda _: made.wall)
    monkeypatch.setattr(Process, "steady", lambda _: made.steady)
    return made


def test_a_clock_that_goes_on_is_believed_and_small_corrections_too(clocks):
    believed = BelievedTime()
    for correction in (0.0, 0.5, -1.0, TOLERANCE - 1, -2.0):
        clocks.pass_by(600)
        clocks.wall += correction
        assert believed.now() == clocks.wall


@pytest.mark.parametrize("step", [YEAR, -YEAR, 7200.0, -7200.0])
def test_a_step_is_not_believed_at_once_and_forgotten_if_it_is_taken_back(clocks, step):
    believed = BelievedTime()
    believed.now()
    clocks.wall += step
    clocks.pass_by(10)
    assert believed.now() == pytest.approx(clocks.wall - step)
    clocks.wall -= step
    clocks.pass_by(CONFIRMED_AFTER)
    assert believed.now() == clocks.wall
    clocks.wall += step
    assert believed.now() == pytest.approx(clocks.wall - step)


@pytest.mark.parametrize("step", [YEAR, -YEAR])
def test_a_clock_that_was_set_is_believed_once_it_has_gone_on_for_a_while(clocks, step):
    believed = BelievedTime()
    believed.now()
    clocks.wall += step
    for _ in range(4):
        assert believed.now() == pytest.approx(clocks.wall - step)
        clocks.pass_by(CONFIRMED_AFTER / 4)
    assert believed.now() == clocks.wall


def test_a_machine_that_has_slept_is_believed(clocks):
    believed = BelievedTime()
    believed.now()
    clocks.pass_by(8 * 3600)
    assert believed.now() == clocks.wall


def test_many_small_steps_within_a_moment_are_one_step(clocks):
    believed = BelievedTime()
    start = believed.now()
    for _ in range(100):
        clocks.wall += 4.0
        believed.now()
    assert abs(believed.now() - start) <= TOLERANCE


@pytest.mark.parametrize("away", [-3600.0, LONGEST_REST + 3600])
def test_a_clock_that_is_wrong_at_the_start_is_not_believed_against_the_checkpoint(clocks, away):
    believed = BelievedTime()
    believed.begin_after(clocks.wall - away)
    assert believed.now() == pytest.approx(clocks.wall - away)
    believed.begin_after(clocks.wall - 30 * 86400)
    assert believed.now() == clocks.wall


def test_what_another_clock_gives_is_believed_up_to_the_time_that_is_believed(clocks):
    believed = BelievedTime()
    now = int(believed.now() * 1e6)
    assert believed.at_most(now - 7_000_000) == now - 7_000_000
    assert believed.at_most(now + int(YEAR * 1e6)) == now + int(TOLERANCE * 1e6)


def rows_at(i: float) -> list[dict[str, Any]]:
    return [{"ts": ZERO + dt.timedelta(seconds=i), "k": int(i)}]


def opened(folder: Path, **options: Any) -> ms.Session:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])
    session = ms.Session(checkpoint=str(folder), on="local", **options)
    session.stream("A", schema, skew="5 seconds")
    session.query("q", "SELECT k FROM A [RANGE 5 SECONDS]")
    return session


def steps() -> Iterator[int | None]:
    yield from (0, 1, None, 3, 4, 60, 600)


def test_ticks_of_a_clock_that_was_wrong_once_make_no_row_late(tmp_path, clocks):
    session = opened(tmp_path).ticks().start()
    at = 0
    for i in steps():
        if i is None:
            clocks.wall += YEAR
            session.push("A", [])
            clocks.wall -= YEAR
            continue
        clocks.pass_by(i - at)
        at = i
        session.push("A", rows_at(i))
    assert session.dead_letters().num_rows == 0
    session.stop()


def test_retention_removes_nothing_by_a_clock_that_was_wrong_for_some_batches(tmp_path, clocks):
    session = opened(tmp_path, retention={"results": "30 days"}, retained=2).start()
    for i in range(24):
        clocks.wall += YEAR if i == 18 else -YEAR if i == 22 else 0
        clocks.pass_by(1)
        session.push("A", rows_at(i))
    assert session.job.manifest.account("q").removed is None
    session.stop()


def test_a_job_that_goes_on_with_a_clock_that_is_behind_its_checkpoint_goes_on_from_there(tmp_path, clocks):
    session = opened(tmp_path).ticks().start()
    session.push("A", rows_at(0))
    session.stop()
    clocks.wall, clocks.steady = 0.0, 5.0
    session = opened(tmp_path).ticks().start()
    session.push("A", rows_at(1))
    assert session.dead_letters().num_rows == 0
    assert session.job.manifest.outputs.recent[-1]["at"] >= ZERO.timestamp()
    session.stop()


def test_the_steady_clock_of_this_machine_goes_on():
    first = this_process().steady()
    assert this_process().steady() >= first
