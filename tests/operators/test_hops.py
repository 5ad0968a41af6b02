"""Boundaries of hopping windows against the definition, over clock changes in several zones."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from midstream.algebra.semantics.windows import boundaries_of
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.algebra.windows import Hop
from midstream.errors import InputError
from midstream.operators.clocks import clock_of
from midstream.operators.hops import beginning, boundary_after, boundary_at_or_before, last_boundary_reaching, validity

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "+05:30",
)


def tick(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * SECOND


def shown(ticks: int) -> str:
    return dt.datetime.fromtimestamp(ticks // SECOND, dt.UTC).isoformat(sep=" ", timespec="minutes")[:16]


def naive_boundaries(hop: Hop, low: int, high: int) -> list[int]:
    """Every boundary of a hop without a zone, by counting."""
    return [b for b in range(low, high) if (b - hop.offset) % hop.slide == 0]


@given(st.integers(-50, 50), st.integers(1, 12), st.integers(1, 40), st.integers(-15, 15))
def test_boundaries_without_a_zone_are_the_multiples(t: int, slide: int, size: int, offset: int) -> None:
    hop = Hop(size, slide, offset)
    boundaries = naive_boundaries(hop, -200, 200)
    ticks = np.array([t])
    assert boundary_after(ticks, hop)[0] == boundary_after(t, hop) == min(b for b in boundaries if b > t)
    assert boundary_at_or_before(ticks, hop)[0] == max(b for b in boundaries if b <= t)
    assert boundary_at_or_before(t, hop) == boundary_at_or_before(ticks, hop)[0]
    last = max(b for b in boundaries if b - size <= t)
    assert last_boundary_reaching(t, hop) == last


@given(st.integers(-50, 50), st.integers(1, 12), st.integers(1, 40), st.integers(-15, 15))
def test_a_tuple_is_valid_exactly_while_a_window_holds_it(t: int, slide: int, size: int, offset: int) -> None:
    hop = Hop(size, slide, offset)
    start, end = (int(a[0]) for a in validity(np.array([t]), hop))
    holding = {b + i for b in naive_boundaries(hop, -200, 200) if b - size <= t < b for i in range(slide)}
    assert set(range(start, end)) == holding


@st.composite
def instants_near_changes(draw: st.DrawFn) -> tuple[str, int]:
    zone = draw(st.sampled_from(ZONES))
    settings = clock_of(zone).settings
    recent = settings[(settings > tick("2005-01-01")) & (settings < tick("2040-01-01"))]
    near = draw(st.sampled_from(recent.tolist())) if len(recent) else tick("2020-01-01")
    return zone, near + draw(st.integers(-3 * DAY, 3 * DAY) | st.integers(-2 * HOUR, 2 * HOUR))


@given(
    instants_near_changes(),
    st.sampled_from([10 * MINUTE, 30 * MINUTE, HOUR, 90 * MINUTE, 6 * HOUR, DAY, 7 * DAY]),
    st.sampled_from([10 * MINUTE, HOUR, 2 * HOUR, DAY, 7 * DAY, 45 * MINUTE]),
    st.integers(0, 3 * HOUR),
)
def test_wall_clock_boundaries_are_the_oracles(where: tuple[str, int], slide: int, size: int, offset: int) -> None:
    zone, t = where
    hop = Hop(size, slide, offset, zone)
    oracle = boundaries_of(hop)
    start, end = (int(a[0]) for a in validity(np.array([t]), hop))
    assert boundary_after(t, hop) == oracle.after(t)
    expected = oracle.validity(t)
    assert (start, end) == expected or (start >= end and expected[0] >= expected[1])
    before = boundary_at_or_before(t, hop)
    assert before <= t < oracle.after(before)
    assert oracle.after(before - 1) == before


@given(
    instants_near_changes(),
    st.booleans(),
    st.integers(1, 13),
    st.integers(1, 5),
    st.integers(-3, 30),
    st.booleans(),
    st.integers(-60, 20),
)
def test_months_are_the_oracles(
    where: tuple[str, int], zoned: bool, slide: int, many: int, offset: int, cumulative: bool, years: int
) -> None:
    zone, t = where
    t += years * 365 * DAY
    hop = Hop(slide * many, slide, offset, zone if zoned else None, cumulative, months=True)
    oracle = boundaries_of(hop)
    start, end = (int(a[0]) for a in validity(np.array([t]), hop))
    assert (start, end) == oracle.validity(t)
    assert boundary_after(t, hop) == oracle.after(t)
    assert int(beginning(np.array([start]), hop)[0]) == oracle.beginning(start)
    assert end - start <= hop.longest_size + hop.longest_slide
    ends = np.array([BEGINNING, INFINITY])
    assert boundary_after(INFINITY, hop) == boundary_at_or_before(ends, hop)[1] == INFINITY
    assert boundary_at_or_before(ends, hop)[0] == BEGINNING


def test_a_local_day_holds_all_its_tuples_whatever_its_length() -> None:
    hop = Hop(DAY, DAY, zone="Europe/Berlin")
    for midnight, next_midnight in (
        ("2024-03-30 23:00", "2024-03-31 22:00"),
        ("2024-10-26 22:00", "2024-10-27 23:00"),
    ):
        ticks = np.arange(tick(midnight), tick(next_midnight), 10 * MINUTE)
        starts, ends = validity(ticks, hop)
        assert {shown(s) for s in starts.tolist()} == {next_midnight}
        assert (ends > starts).all()


def test_a_skipped_boundary_moves_to_the_end_of_the_gap() -> None:
    hop = Hop(30 * MINUTE, 30 * MINUTE, zone="Europe/Berlin")
    assert shown(boundary_after(tick("2024-03-31 00:45"), hop)) == "2024-03-31 01:00"
    assert shown(boundary_after(tick("2024-03-31 01:00"), hop)) == "2024-03-31 01:30"


def test_a_repeated_boundary_counts_the_first_time() -> None:
    hop = Hop(HOUR, HOUR, zone="Europe/Berlin")
    assert shown(boundary_after(tick("2024-10-26 23:59"), hop)) == "2024-10-27 00:00"
    assert shown(boundary_after(tick("2024-10-27 00:00"), hop)) == "2024-10-27 02:00"
    assert shown(boundary_at_or_before(tick("2024-10-27 01:30"), hop)) == "2024-10-27 00:00"


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize(("slide", "offset"), [(7, 3), (DAY, 0), (2**61, 5)])
def test_the_ends_of_time_neither_move_nor_overflow(zone: str | None, slide: int, offset: int) -> None:
    hop = Hop(slide * 2, slide, offset, zone)
    ends = np.array([BEGINNING, -5, 5, INFINITY])
    after, before, last = boundary_after(ends, hop), boundary_at_or_before(ends, hop), last_boundary_reaching(ends, hop)
    assert after[-1] == before[-1] == last[-1] == INFINITY
    assert boundary_after(INFINITY, hop) == boundary_at_or_before(INFINITY, hop) == INFINITY
    assert before[0] == boundary_at_or_before(BEGINNING, hop) == BEGINNING
    assert all(sorted(a.tolist()) == a.tolist() for a in (after, before, last))
    assert (after >= ends).all() and (before <= ends).all()
    assert [boundary_after(t, hop) for t in ends.tolist()] == after.tolist()
    start, end = validity(ends, hop)
    assert start[-1] == end[-1] == INFINITY


@given(st.integers(BEGINNING, INFINITY), st.integers(1, 2**62), st.integers(-(2**62), 2**62))
@example(INFINITY - 1, 10, 0)
@example(BEGINNING, 10, 0)
def test_far_ticks_agree_with_unbounded_integers(t: int, slide: int, offset: int) -> None:
    hop = Hop(slide, slide, offset)
    exact = t - (t - offset) % slide
    ticks = np.array([t], dtype=np.int64)
    assert boundary_after(ticks, hop)[0] == boundary_after(t, hop) == max(min(exact + slide, INFINITY), BEGINNING)
    if t < INFINITY:
        assert boundary_at_or_before(ticks, hop)[0] == boundary_at_or_before(t, hop) == max(exact, BEGINNING)


def test_no_ticks_have_no_boundaries() -> None:
    none = np.empty(0, dtype=np.int64)
    for hop in (Hop(10, 5), Hop(10, 5, zone="Europe/Berlin")):
        assert all(
            len(a) == 0 for a in (boundary_after(none, hop), boundary_at_or_before(none, hop), *validity(none, hop))
        )


def test_an_unknown_zone_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="Nowhere/Land"):
        boundary_after(0, Hop(10, 10, zone="Nowhere/Land"))
