"""A time far ahead makes a dead letter and moves no register, and a stream that was silent for long goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.job.chain import Chain
from tests.job.test_dead_letters import dead_rows

import midstream as ms
from midstream.algebra.declarations import MaxAhead
from midstream.algebra.time import FARTHEST
from midstream.api import ask
from midstream.cluster.sessions import Session
from midstream.job.task.ingest import DAY, ENOUGH, Reach, believed, merged, spans_of

QUERY = "SELECT k FROM A [NOW]"
STEP = 100
TIMES = st.lists(st.integers(0, 2_000), max_size=30)


def rows(*times: int, kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(times), "ts": pa.array(times, kind or pa.int64())})


def chain_of(
    folder: Path, max_ahead: MaxAhead, kind: pa.DataType | None = None, slots: int = 3, seed: int = 0
) -> Chain:
    question = ask(QUERY, {"A": pa.Table.from_batches([rows(0, kind=kind)])})
    stream = replace(question.catalog.streams["A"], max_ahead=max_ahead)
    return Chain(question.plan, replace(question.catalog, streams={"A": stream}), folder, slots=slots, seed=seed)


def taken(chain: Chain) -> list[int]:
    chain.batch({}, end=True)
    found: list[int] = chain.results()["k"].to_pylist()
    return found


def reasons(chain: Chain) -> dict[str, int]:
    return dict(Counter(row["reason"] for row in dead_rows(chain)))


@given(TIMES, st.integers(1, 5), st.integers(0, 99))
def test_spans_of_slots_are_the_spans_of_all_rows(times, slots, seed):
    dealt = np.random.default_rng(seed).integers(0, slots, len(times))
    ticks = np.array(times, np.int64)
    parts = [span for slot in range(slots) for span in spans_of(ticks[dealt == slot], STEP)]
    assert merged(parts, STEP) == spans_of(ticks, STEP)


@given(TIMES.filter(bool), st.integers(0, 500), st.booleans())
def test_rows_that_hang_together_with_the_latest_are_believed_and_a_few_others_are_not(times, latest, doubted):
    ticks = np.array(times)
    within = ticks[ticks <= latest + STEP]
    start = max([latest, *within.tolist()])
    beyond = spans_of(ticks[ticks > latest + STEP], STEP)
    until, doubt = believed(Reach(latest, latest + STEP, STEP), start, len(within), beyond, doubted)
    reached = start
    for time in sorted(times):
        reached = max(reached, time) if time - reached <= STEP else reached
    far = int((ticks > reached).sum())
    assert until >= reached
    if 2 * far <= len(times):
        assert not (ticks[ticks > reached] <= until).any() and not doubt
    elif doubted or far >= ENOUGH:
        assert 2 * int(((ticks > reached) & (ticks <= until)).sum()) >= far
    else:
        assert doubt


@pytest.mark.parametrize("time", [FARTHEST, 2**63 - 50, -FARTHEST])
def test_times_beyond_the_range_are_dead_letters(time, tmp_path):
    chain = chain_of(tmp_path, "any")
    chain.batch({"A": rows(1, time)})
    chain.batch({"A": rows(2)})
    assert taken(chain) == [1, 2] and reasons(chain) == {"time out of range": 1}
    assert chain.manifest.streams.unusable == {"A": 1} and chain.manifest.streams.late == {}


@pytest.mark.parametrize("batch", [(1_000_000,), (12, 1_000_000), (12, 1_000_000, 1_000_000)])
def test_a_row_far_ahead_does_not_make_others_late(batch, tmp_path):
    chain = chain_of(tmp_path, STEP)
    chain.batch({"A": rows(10, 11, 12)})
    chain.batch({"A": rows(*batch)})
    chain.batch({"A": rows(13, 14)})
    assert [k for k in taken(chain) if k != 12] == [10, 11, 13, 14]
    assert chain.manifest.streams.late == {} and set(reasons(chain)) == {"too far ahead"}


def test_the_first_batch_is_believed_around_its_median(tmp_path):
    chain = chain_of(tmp_path, STEP)
    chain.batch({"A": rows(1, 50, 120, 10_000)})
    chain.batch({"A": rows(130)})
    assert taken(chain) == [1, 50, 120, 130] and reasons(chain) == {"too far ahead": 1}


def test_a_batch_that_spans_much_is_believed_as_far_as_it_hangs_together(tmp_path):
    chain = chain_of(tmp_path, STEP)
    chain.batch({"A": rows(0)})
    times = [*range(0, 1000, 90), 5_000]
    chain.batch({"A": rows(*times)})
    assert taken(chain) == [0, *times[:-1]] and reasons(chain) == {"too far ahead": 1}


def test_a_busy_stream_that_was_silent_goes_on_and_loses_nothing(tmp_path):
    chain = chain_of(tmp_path, STEP)
    chain.batch({"A": rows(0, 1)})
    later = [10_000 + i for i in range(ENOUGH)]
    chain.batch({"A": rows(*later, 90_000)})
    chain.batch({"A": rows(10_050)})
    assert taken(chain) == [0, 1, *later, 10_050] and reasons(chain) == {"too far ahead": 1}


def test_a_slow_stream_that_was_silent_goes_on_with_its_second_batch(tmp_path):
    chain = chain_of(tmp_path, STEP)
    for time in (0, 10_000, 20_000, 30_000):
        chain.batch({"A": rows(time)})
    assert taken(chain) == [0, 20_000, 30_000] and reasons(chain) == {"too far ahead": 1}


def test_a_doubt_ends_with_rows_where_the_stream_was(tmp_path):
    chain = chain_of(tmp_path, STEP)
    for times in ((0,), (10_000,), (1,), (10_001,), (2, 3)):
        chain.batch({"A": rows(*times)})
    assert taken(chain) == [0, 1, 2, 3] and reasons(chain) == {"too far ahead": 2}


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 3_000), max_size=12), max_size=5), st.integers(0, 9))
def test_what_is_believed_does_not_depend_on_slots_or_order(tmp_path_factory, batches, seed):
    found = []
    for slots, order in ((1, 0), (3, seed)):
        chain = chain_of(tmp_path_factory.mktemp("reach"), STEP, slots=slots, seed=order)
        for times in batches:
            chain.batch({"A": rows(*times)})
        found.append((sorted(taken(chain)), reasons(chain), dict(chain.manifest.streams.latest)))
    assert found[0] == found[1]


NOW = 1_700_000_000_000_000


def test_timestamps_are_believed_up_to_a_day_after_the_clock(tmp_path):
    kind = pa.timestamp("us")
    chain = chain_of(tmp_path, "clock", kind)
    times = [NOW - 30 * DAY, NOW, NOW + DAY, NOW + DAY + 1, NOW + 10**12]
    cluster: Any = chain.driver.cluster
    cluster.clocks = {0: NOW, 1: NOW}
    chain.batch({"A": rows(*times[:1], kind=kind)})
    chain.batch({"A": rows(*times[1:], kind=kind)})
    chain.batch({"A": rows(NOW + 10**13, kind=kind)})  # no clock is known
    assert taken(chain) == [*times[:3], NOW + 10**13] and reasons(chain) == {"too far ahead": 2}


def session_of(max_ahead: Any, kind: pa.DataType | None = None, clock: Any = None) -> Any:
    session = Session(clock=clock)
    session.stream("A", rows(0, kind=kind).schema, max_ahead=max_ahead)
    session.query("q", QUERY)
    return session


def pushed(session: Any, *batches: tuple[int, ...], kind: pa.DataType | None = None) -> list[int]:
    for times in batches:
        session.push("A", pa.Table.from_batches([rows(*times, kind=kind)]))
    session.stop()
    return list(session.queries["q"].results()["k"].to_pylist())


@pytest.mark.filterwarnings("ignore::midstream.DeadLetterWarning")
class TestInThisProcess:
    def test_a_row_far_ahead_does_not_make_others_late(self):
        session = session_of(STEP)
        assert pushed(session, (10,), (10**9,), (11, 10**9), (12,)) == [10, 11, 12]
        assert [letters.reason for letters in session.dead_letters] == ["too far ahead"] * 2

    def test_a_silent_stream_goes_on(self):
        later = tuple(range(10_000, 10_000 + ENOUGH))
        assert pushed(session_of(STEP), (10,), later) == [10, *later]
        assert pushed(session_of(STEP), (10,), (10_000,), (20_000,)) == [10, 20_000]

    def test_timestamps_are_believed_up_to_a_day_after_the_clock(self):
        kind = pa.timestamp("us", "UTC")
        session = session_of("clock", kind, clock=lambda: NOW)
        assert pushed(session, (NOW,), (NOW + 2 * DAY,), (NOW + 1,), kind=kind) == [NOW, NOW + 1]
        assert pushed(session_of("any", kind), (NOW,), (NOW * 100,), kind=kind) == [NOW, NOW * 100]

    @settings(max_examples=25)
    @given(st.lists(st.lists(st.integers(0, 3_000), min_size=1, max_size=12), max_size=4))
    def test_it_is_as_in_slots(self, tmp_path_factory, batches):
        chain = chain_of(tmp_path_factory.mktemp("reach"), STEP)
        session = session_of(STEP)
        for times in batches:
            chain.batch({"A": rows(*times)})
            session.push("A", pa.Table.from_batches([rows(*times)]))
            far = sum(len(letters) for letters in session.dead_letters if letters.reason == "too far ahead")
            assert far == reasons(chain).get("too far ahead", 0)


@pytest.mark.parametrize("wrong", [0, -1, "soon", "1 day"])
def test_a_bound_that_is_none_is_refused(wrong):
    with pytest.raises(ms.MidstreamError):
        Session().stream("A", rows(0).schema, max_ahead=wrong)
