"""Choosing a strategy: only legal ones, by what they are predicted to take and what the user prefers."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.migration.drive import drive

import midstream as ms
from midstream.api import ask
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local import embedded
from midstream.lab.experiments.cape_costs import NestedLoop
from midstream.migration.auto import Auto
from midstream.migration.costs import Predictor, stored_inputs
from midstream.migration.protocol import Situation
from midstream.migration.registry import STRATEGIES
from midstream.optimizer.plans import plan_query

WINDOW = 200


def four_way(rows: int = 800, last: int = 1000):
    """The left-deep plan joins the two streams with the fewest keys first; the right-deep one last."""
    rng = random.Random(5)
    inputs = {}
    for name, keys in (("A", 20), ("B", 20), ("C", 60), ("D", 60)):
        times = sorted(rng.randint(0, last) for _ in range(rows))
        inputs[name] = pa.table({"ts": times, "k": [rng.randint(0, keys) for _ in times]})
    from_ = ", ".join(f"{name} [RANGE {WINDOW}]" for name in inputs)
    asked = ask(f"SELECT A.k FROM {from_} WHERE A.k = B.k AND B.k = C.k AND C.k = D.k", inputs)
    return asked, plan_query(asked.plan, "(((A B) C) D)"), plan_query(asked.plan, "(A (B (C D)))")


class TestAFourWayJoin:
    asked, old, new = four_way()

    def at_half_time(self, action):
        return drive(self.asked, self.old, 50, [(32, action)])[1]

    def choice(self, preference, capacity=None):
        found = []

        def ask_for_it(live):
            found.append(Auto(STRATEGIES, preference).choice(live.situation(self.new), capacity))

        self.at_half_time(ask_for_it)
        return found[0]

    def test_all_strategies_are_legal_and_in_the_table(self):
        choice = self.choice("soonest")
        assert {p.strategy for p in choice.predictions} == set(STRATEGIES) - {"auto"} and not choice.refusals
        text = choice.explain()
        assert text.startswith("migration by ") and all(p.strategy in text for p in choice.predictions)

    def test_the_soonest_moves_state(self):
        assert self.choice("soonest").chosen == "moving_state"

    def test_the_cheapest_counts_what_the_old_plan_does_meanwhile(self):
        choice = self.choice("cheapest")
        totals = {p.strategy: p.work + p.delayed for p in choice.predictions}
        assert totals[choice.chosen] == min(totals.values())
        assert all((p.delayed > 0) == (p.duration > 0) for p in choice.predictions) or not choice.predictions[0].delayed

    def test_a_strategy_that_is_silent_for_too_long_comes_last(self):
        found = []

        def ask_for_it(live):
            found.append(Auto(STRATEGIES, "cheapest", 100.0).choice(live.situation(self.new), 1e-3))

        self.at_half_time(ask_for_it)
        silent = [p.silence > 100.0 for p in found[0].predictions]
        assert silent == sorted(silent) and silent[-1] and not silent[0]

    def test_on_a_slow_machine_the_least_silence_runs_boxes_side_by_side(self):
        choice = self.choice("least_silence", capacity=1e-3)
        assert choice.chosen in ("parallel_track", "genmig", "genmig_reference_point", "genmig_shortened")
        assert {p.strategy: p.silence > 0 for p in choice.predictions}["moving_state"]

    def test_the_least_memory_holds_the_fewest_rows(self):
        choice = self.choice("least_memory")
        assert choice.predictions[0].rows == min(p.rows for p in choice.predictions)

    @pytest.mark.slow
    def test_predictions_are_about_right(self):
        """Within a factor of three for what is held, and to the batch for how long it takes."""
        for name in ("moving_state", "genmig", "parallel_track"):
            record = self.at_half_time(lambda live, name=name: live.migrate(self.new, name)).history[0]
            predicted = next(p for p in self.choice("soonest").predictions if p.strategy == name)
            assert record.peak_extra_rows / 3 < predicted.rows < record.peak_extra_rows * 3, name
            assert abs(record.duration - predicted.duration) <= 40, name

    def test_auto_records_what_it_chose_and_what_it_predicted(self):
        record = self.at_half_time(lambda live: live.migrate(self.new, "auto")).history[0]
        assert record.strategy in STRATEGIES and record.strategy != "auto"
        assert record.predicted is not None and "predicted" in record.comparison()

    def test_an_unknown_preference_is_refused(self):
        with pytest.raises(ms.MigrationError, match="unknown preference 'fastest'"):
            self.choice("fastest")


def test_auto_takes_only_what_is_legal():
    rows = pa.table({"ts": [1, 2, 3], "k": [1, 2, 1]})
    query = "SELECT DISTINCT A.k FROM A [UNBOUNDED], B [RANGE 5] WHERE A.k = B.k"
    asked = ask(query, {"A": rows, "B": rows})
    old, new = (plan_query(asked.plan, shape) for shape in ("(A B)", "(B A)"))
    _, live = drive(asked, old, 1, [(2, lambda live: live.migrate(new, "auto"))])
    assert live.history[0].strategy.startswith("moving_state")


def test_auto_says_why_nothing_is_legal():
    one, other = (
        plan_query(ask(f"SELECT k FROM A [RANGE {w}]", {"A": pa.table({"ts": [1], "k": [1]})}).plan) for w in (5, 6)
    )
    with pytest.raises(ms.MigrationError, match="no strategy can migrate between these plans"):
        Auto(STRATEGIES).refuse(one, other, {})


def test_a_run_migrates_by_itself_if_no_strategy_is_named():
    asked, _, _ = four_way(rows=60, last=300)
    query = "SELECT A.k FROM A [RANGE 50], B [RANGE 50], C [RANGE 50] WHERE A.k = B.k AND B.k = C.k"
    inputs = {name: asked.tables[name] for name in "ABC"}
    found = ms.run(query, inputs, plan="((A B) C)", migrations=[ms.Migration(at=100, plan="(A (B C))")])
    assert ms.snapshot_equal(found, ms.reference(query, inputs))


def test_stored_inputs_have_one_name_in_every_join_order():
    asked, _, _ = four_way(rows=5)
    left, right = (stored_inputs(plan_query(asked.plan, s).logical) for s in ("(((A B) C) D)", "(((B A) D) C)"))
    both = {frozenset(names) for names, _ in left.keys() & right.keys()}
    assert both == {frozenset("A"), frozenset("B"), frozenset("C"), frozenset("D"), frozenset("AB")}


class TestCapesEquations:
    """Against sums over single tuples: one tuple of each stream per tick."""

    def test_the_first_window_of_a_new_operator_compares_half_of_what_a_full_one_does(self):
        window, rate = 50, 1
        joins = NestedLoop(window, compare=1, insert=0)
        counted = sum(2 * rate * rate * t for t in range(window))
        assert joins.new_operator(rate, rate) - joins.old_operator(rate, rate) / 2 == pytest.approx(counted, rel=0.03)

    def test_results_of_a_growing_operator_add_up(self):
        joins = NestedLoop(40)
        counted = sum(joins.growing_output_rate(2, 3, 0.1, t) for t in range(40))
        assert counted == pytest.approx(2 * 3 * 0.1 * 40**2, rel=0.03)

    def test_moving_state_grows_with_the_cube_of_the_window_and_tracks_with_the_window(self):
        factors = {frozenset("BC"): 0.1, frozenset("BCD"): 0.1}
        tree, rates = ("A", (("B", "C"), "D")), dict.fromkeys("ABCD", 1.0)
        lengths = [NestedLoop(w).moving_length(tree, factors, rates) for w in (100, 200)]
        assert 7 < lengths[1] / lengths[0] < 8
        assert NestedLoop(200).track_length(3) == 2 * NestedLoop(200).track_length(1) == 400


def test_a_prediction_needs_no_statistics():
    _, old, new = four_way(rows=5)
    predicted = Predictor(old, new, Situation(())).predict("moving_state", {})
    assert predicted.duration == 0 and predicted.rows > 0


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_migration_leaves_what_was_predicted_beside_what_was_measured(strategy):
    asked, old, new = four_way(200, 2000)
    change = ms.Migration(at=1000, plan=new, strategy=strategy)
    how = FiniteRun(old, [change], 40)
    embedded.run(asked.plan, asked.tables, asked.catalog, how)
    (record,) = how.told.history
    assert record.predicted["strategy"] == record.strategy and "predicted" in record.comparison()


@pytest.mark.parametrize("strategy", ["genmig", "parallel_track"])
def test_a_migration_that_starts_before_some_stream_has_come_lasts_from_when_it_came(strategy):
    inputs = {
        name: pa.table({"ts": range(first, 100), "k": [1] * (100 - first)}) for name, first in (("A", 0), ("B", 20))
    }
    change = ms.Migration(at=10, plan="(B A)", strategy=strategy)
    query = "SELECT A.k FROM A [RANGE 30], B [RANGE 30] WHERE A.k = B.k"
    (record,) = ms.run(query, inputs, plan="(A B)", migrations=[change], batch_rows=4, full=True).history
    assert 20 <= record.started_at < record.ended_at and 0 < record.duration <= 31
    assert record.predicted["duration"] < 100
