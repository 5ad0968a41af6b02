"""The migration experiments' instruments: what is charged, what is observed, and that verdicts follow from it."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from midstream.lab.experiments.arrivals import poisson
from midstream.lab.experiments.cape_length import crossing
from midstream.lab.experiments.cape_workload import COSTS, configuration
from midstream.lab.experiments.genmig_split import split_margins
from midstream.lab.experiments.migration_run import Change, Observed, Run, Sample, Workload, every
from midstream.lab.experiments.plots import Plot, Series, svg
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.experiments.virtual_processor import Costs, Counts, VirtualProcessor, combined, values
from midstream.lab.papers.parallel_track import ParallelTrackPaper
from midstream.migration.genmig import GenMig
from midstream.migration.moving_state import MovingState
from midstream.migration.moving_state_paced import MovingStatePaced

WINDOW, START, STEP = 400, 800, 20
LEFT, RIGHT = "((A B) C)", "(A (B C))"


def small_workload(end: int = 2000) -> Workload:
    rng = np.random.default_rng(7)
    streams = {}
    for name in "ABC":
        times = poisson(rng, 8, end)
        streams[name] = pa.table({"ts": times, "x": rng.integers(0, 10, len(times))})
    sources = ", ".join(f"{name} [RANGE {WINDOW}]" for name in streams)
    query = f"SELECT A.x AS a, B.x AS b, C.x AS c FROM {sources} WHERE A.x = B.x AND B.x = C.x"
    return Workload(query, streams, every(STEP, end))


GENMIG, TRACK, MOVING, PACED = GenMig(), ParallelTrackPaper(), MovingState(), MovingStatePaced()


@cache
def observe(strategy=None, costs=COSTS, pace="application") -> tuple[Observed, VirtualProcessor]:
    processor = VirtualProcessor(costs)
    change = None if strategy is None else Change(START, RIGHT, strategy)
    return Run(small_workload(), LEFT, processor, pace, change).run(), processor


def at(**columns) -> pa.Table:
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def test_a_join_is_charged_for_every_row_alive_on_the_other_side_and_not_for_matches():
    streams = {"A": at(ts=[1, 2, 3], x=[1, 2, 3]), "B": at(ts=[15, 115], x=[9, 9])}
    query = "SELECT A.x AS a, B.x AS b FROM A [RANGE 50], B [RANGE 50] WHERE A.x = B.x"
    processor = VirtualProcessor(Costs(compare=10, insert=1))
    observed = Run(Workload(query, streams, every(10, 120)), "(A B)", processor, "saturated").run()
    # The first B meets three rows that it does not match; the second comes when all of them have ended.
    assert processor.counts == Counts(pairs=3, inserts=5)
    assert processor.now == 35
    assert observed.answer() == []


def test_arrivals_wait_for_a_slow_processor_and_a_fast_one_waits_for_arrivals():
    slow, _ = observe(costs=Costs(1, 1), pace="virtual")
    fast, _ = observe(costs=Costs(1e-6, 1e-6), pace="virtual")
    assert slow.samples[-1].virtual > 2 * slow.samples[-1].application
    assert max(s.waiting for s in slow.samples) > 50
    assert fast.samples[-1].virtual == pytest.approx(2000, abs=1)
    assert slow.answer() == fast.answer() != []


def test_paced_moving_state_is_charged_for_what_it_moves():
    """It joins what moving state joins, and what comes meanwhile, on the processor that the old box runs on."""
    paced, processor = observe(PACED)
    moving, _ = observe(MOVING)
    assert paced.migration is not None and moving.migration is not None
    done, at_once = paced.migration.moved, moving.migration.recomputed
    assert at_once.pairs <= done.pairs <= 2 * at_once.pairs
    assert at_once.inserts <= done.inserts
    assert 0 < paced.migration.moved_in_a_step <= COSTS.of(done) < processor.now
    end = paced.migration.started + paced.migration.duration
    begun, ended = (next(s for s in paced.samples if s.application >= t) for t in (START, end))
    assert ended.virtual - begun.virtual >= COSTS.of(done)


def test_moving_state_stands_still_for_the_nested_loops_of_its_unmatched_states():
    observed, _ = observe(MOVING)
    migration = observed.migration
    assert migration is not None
    streams = small_workload().streams
    alive = {name: sum(t < START < t + WINDOW + 1 for t in table["ts"].to_pylist()) for name, table in streams.items()}
    assert migration.recomputed.pairs == alive["B"] * alive["C"]
    assert 0 < migration.recomputed.inserts < migration.recomputed.pairs
    assert migration.standstill == pytest.approx(COSTS.of(migration.recomputed))
    assert migration.duration == 0


@pytest.mark.parametrize("strategy", [MOVING, PACED, GENMIG, TRACK])
def test_every_strategy_gives_what_a_run_without_a_migration_gives(strategy):
    assert observe(strategy)[0].answer() == observe()[0].answer() != []


def test_genmig_takes_a_window_and_the_papers_parallel_track_two():
    genmig, track = observe(GENMIG)[0].migration, observe(TRACK)[0].migration
    assert genmig is not None and track is not None
    assert abs(genmig.duration - WINDOW) <= STEP
    assert abs(track.duration - 2 * WINDOW) <= 0.05 * 2 * WINDOW


def test_only_parallel_track_falls_silent_and_ends_with_a_burst():
    def during(run: Observed) -> list[int]:
        return [s.released for s in run.samples if START + WINDOW + STEP < s.application < START + 1.9 * WINDOW]

    usual, genmig, track = observe()[0], observe(GENMIG)[0], observe(TRACK)[0]
    assert sum(during(track)) == 0
    assert min(during(genmig)) > 0
    assert [s.released for s in genmig.samples] == [s.released for s in usual.samples]
    assert max(s.released for s in track.samples) > 5 * max(s.released for s in usual.samples)


def test_what_is_held_back_counts_as_memory_and_marks_do_not():
    genmig, track = observe(GENMIG)[0], observe(TRACK)[0]
    pairs = list(zip(genmig.samples, track.samples, strict=True))
    assert all(mine.values == its.values for mine, its in pairs if mine.application <= START)
    assert max(its.extra for _, its in pairs) > max(mine.extra for mine, _ in pairs)
    assert pairs[-1][0].values == pairs[-1][1].values


def test_values_count_columns_and_combined_counts_rows_of_several_streams():
    processor = VirtualProcessor(COSTS)
    run = Run(small_workload(100), LEFT, processor, "application")
    run.run()
    states = list(run.execution.states())
    rows = {tuple(state.schema.names): state.rows for state in states}
    assert values(states, 100) == sum(len(names) * count for names, count in rows.items())
    assert combined(states, 100) == rows["A.x", "B.x"]


def test_the_longest_silence_is_between_results_or_up_to_an_edge():
    observed = Observed([Sample(t, float(t), released, 0, 0, 0, 0) for t, released in ((10, 1), (20, 0), (40, 2))])
    assert observed.longest_silence("application", 0, 50) == 30
    assert observed.longest_silence("application", 0, 90) == 50


def test_equation_8_is_the_polynomial_of_the_paper():
    c = configuration(1000, (100, 100, 100, 100), (0.1, 0.05, 0.02))
    expected = 100 * (0.1 + 0.1 * 0.05) + 2 * 1000 * (0.1 * 0.05 + 0.1 * 0.05 * 0.02)
    assert c.estimated_moving_state(COSTS) == pytest.approx(expected)


def test_a_crossing_is_found_only_if_there_is_one():
    assert crossing([1, 2, 3], [-1.0, -1.0, 1.0]) == 2.5
    assert crossing([1, 2, 3], [1.0, 2.0, 3.0]) is None
    assert crossing([1, 2, 3], [-1.0, 2.0, -3.0]) is None


def test_poisson_arrivals_have_their_rate_and_order():
    times = poisson(np.random.default_rng(3), 10, 100_000)
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert (np.diff(times) >= 0).all() and times[-1] < 100_000


def test_the_split_time_keeps_within_its_bound_on_every_plan():
    margins = split_margins()
    assert min(margins.values()) >= 0
    assert max(margins.values()) < 100


def test_a_claim_that_does_not_hold_stays_in_the_report_with_its_reason():
    report = Report("name", "Title", {"w": 1})
    report.verdict("claim", "published", "measured", False, "because of <this>")
    report.figures.append(Figure(Plot("plot", "x", "y", [Series("line", [0, 1], [2, 3])]), "Figure 1", ["a fact"]))
    found = json.loads(json.dumps(report.to_json()))
    assert set(found) == {"experiment", "settings", "verdicts"}
    assert found["verdicts"] == [
        {
            "claim": "claim",
            "published": "published",
            "measured": "measured (because of <this>)",
            "holds": False,
            "kind": "published",
        }
    ]
    page = report.to_html()
    assert "because of &lt;this&gt;" in page and "a fact" in page and page.count("<svg") == 2


def test_a_plot_draws_every_series_inside_its_frame():
    xs = list(range(5000))
    drawn = svg(Plot("p", "x", "y", [Series("a", xs, [x % 7 for x in xs]), Series("b", [0, 4999], [-5, 40])]))
    lines = re.findall(r'points="([^"]+)"', drawn)
    places = [tuple(map(float, place.split(","))) for line in lines for place in line.split()]
    assert len(lines) == 2 and len(places) < 2000
    assert all(64 <= x <= 624 and 16 <= y <= 276 for x, y in places)
