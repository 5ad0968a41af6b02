"""The papers' own examples, and the ones they should have had."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from tests.migration.drive import drive, in_order

import midstream as ms
from midstream.algebra.emission import emission_of
from midstream.algebra.plan import rewrite_plan
from midstream.algebra.snapshots import multiset_equal
from midstream.algebra.time import INFINITY
from midstream.api import ask
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run as run_embedded
from midstream.migration.coalesce import ReferencePoint
from midstream.migration.genmig import GenMig
from midstream.migration.genmig_shortened import GenMigShortened
from midstream.migration.parallel_track import ParallelTrack
from midstream.migration.registry import STRATEGIES
from midstream.migration.split import Split, split_after
from midstream.optimizer.plans import Plan, plan_query
from midstream.optimizer.rules.push_distinct_below_join import push_distinct_below_join

A = pa.table({"ts": [10, 50], "k": ["a", "a"]})
B = pa.table({"ts": [20, 70], "k": ["a", "a"]})
FROM = "FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"


def intervals(result: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(result["valid_from"].to_pylist(), result["valid_to"].to_pylist(), strict=True))


class TestDistinctPushedBelowAJoin:
    """GenMig, Example 1: window 100, migration at 40."""

    asked = ask(f"SELECT DISTINCT A.k {FROM}", {"A": A, "B": B})
    old = plan_query(asked.plan)
    new = Plan(asked.plan, rewrite_plan(old.logical, push_distinct_below_join), emission_of(asked.plan))
    at_40 = 2
    """Rows come one by one: before the third, time has not reached 40."""

    def migrated(self, strategy) -> pa.Table:
        return drive(self.asked, self.old, 1, [(self.at_40, lambda live: live.migrate(self.new, strategy))])[0]

    def test_the_tables_are_those_of_the_paper(self):
        joined = ms.run(f"SELECT A.k {FROM}", {"A": A, "B": B}, batch_rows=1)
        assert intervals(joined) == [(20, 111), (50, 121), (70, 111), (70, 151)]
        assert intervals(drive(self.asked, self.old, 1)[0]) == [(20, 111), (111, 121), (121, 151)]

    def test_parallel_track_refuses_it(self):
        with pytest.raises(ms.MigrationError, match="parallel_track cannot migrate this plan: it contains DISTINCT"):
            ParallelTrack().refuse(self.old, self.new, {})

    def test_parallel_track_would_double_it(self):
        found = self.migrated(ParallelTrack(force=True))
        assert intervals(found) == [(20, 111), (70, 151), (111, 121)]
        doubled = [t for t in range(200) if sum(start <= t < end for start, end in intervals(found)) > 1]
        assert doubled == list(range(70, 121))

    @pytest.mark.parametrize("name", ["genmig", "genmig_shortened", "moving_state", "moving_state_paced"])
    def test_others_do_not(self, name):
        found = self.migrated(name)
        assert ms.snapshot_equal(found, ms.reference(f"SELECT DISTINCT A.k {FROM}", {"A": A, "B": B}))
        assert in_order(found)


class TestReferencePointsUnderACount:
    """A count of the old box beyond the split does not know what starts after it."""

    text = "SELECT count(*) AS n FROM A [RANGE 100]"
    inputs = {"A": pa.table({"ts": [0, 10, 50, 120]})}
    asked = ask(text, inputs)
    plan = plan_query(asked.plan)

    class Unsound(GenMig):
        """Reference points for any plan, with the old box drained at the end as the paper's Algorithm 1 does."""

        def joint(self, box, other, split):
            return ReferencePoint(split)

        def open(self, old, new, decision):
            execution = super().open(old, new, decision)
            leave = execution.finish

            def drain_and_leave():
                execution.old.advance(INFINITY)
                return leave()

            setattr(execution, "finish", drain_and_leave)  # noqa: B010
            return execution

    def migrated(self, strategy) -> pa.Table:
        found, live = drive(self.asked, self.plan, 1, [(2, lambda live: live.migrate(self.plan, strategy))])
        assert live.history[0].split_time == 111.5
        return found

    def test_the_strategy_refuses(self):
        with pytest.raises(ms.MigrationError, match="it contains an aggregation") as caught:
            STRATEGIES["genmig_reference_point"].refuse(self.plan, self.plan, {})
        assert "genmig" in str(caught.value.hint)

    def test_without_the_refusal_two_counts_are_given_at_once(self):
        found = self.migrated(self.Unsound()).to_pylist()
        for instant in (120, 130, 150):
            assert sorted(row["n"] for row in found if row["valid_from"] <= instant < row["valid_to"]) == [1, 2]

    def test_with_coalesce_there_is_one(self):
        assert ms.snapshot_equal(self.migrated("genmig"), ms.reference(self.text, self.inputs))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_leaf_is_not_purged_by_a_sibling_that_is_ahead(name):
    """Window 10, a at 0, b at 5; A and B have come to 20 when C is still at 3: c at 6 meets a and b."""
    text = "SELECT A.k FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.k = B.k AND B.k = C.k"
    inputs = {
        "A": pa.table({"ts": [0, 20], "k": [1, 9]}),
        "B": pa.table({"ts": [5, 20], "k": [1, 9]}),
        "C": pa.table({"ts": [3, 6], "k": [9, 1]}),
    }
    asked = ask(text, inputs)
    found, live = _skewed(asked, "((A B) C)", "(A (B C))", name)
    assert live.frontier == INFINITY
    assert intervals(found) == [(6, 11)]


def _skewed(asked, old, new, name):
    """Feeds A and B to their end and C up to 3, migrates, and then feeds the rest of C."""
    from midstream.cluster.local.embedded import StreamProgress
    from midstream.cluster.local.live_query import LiveQuery

    live = LiveQuery(plan_query(asked.plan, old))
    streams = {s: StreamProgress(asked.catalog.streams[s]) for s in "ABC"}
    released = []

    def feed(stream, start, count):
        rows = asked.tables[stream].slice(start, count).to_batches()[0]
        live.feed(stream, *streams[stream].accept(rows))
        streams[stream].raise_register()
        released.append(live.advance({s: streams[s].register for s in streams}))

    feed("A", 0, 2), feed("B", 0, 2), feed("C", 0, 1)
    live.migrate(plan_query(asked.plan, new), name)
    feed("C", 1, 1)
    for stream in streams.values():
        stream.close()
    released.append(live.advance({s: streams[s].register for s in streams}))
    tables = [live.table(part) for part in released if part is not None]
    return pa.concat_tables(tables), live


def test_coalesce_never_releases_60_before_50():
    """Results leave by registers: one that is whole early must not overtake one that is still to be mended."""
    text = "SELECT A.v FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
    inputs = {
        "A": pa.table({"ts": [0, 50, 60, 200], "k": [0, 1, 2, 3], "v": [0, 1, 2, 3]}),
        "B": pa.table({"ts": [0, 40, 60, 200], "k": [0, 1, 2, 3]}),
    }
    for rows in range(1, 8):
        change = ms.Migration(at=30, plan="(B A)", strategy="genmig")
        found = ms.run(text, inputs, plan="(A B)", migrations=[change], batch_rows=rows)
        assert in_order(found) and ms.snapshot_equal(found, ms.reference(text, inputs))
        assert multiset_equal(found, ms.run(text, inputs, plan="(A B)"))


def test_a_genuine_end_at_the_split_is_not_joined_to_a_genuine_start_there():
    """Equal tuples that only touch at the split stay two, whichever tick of the two beside it they touch at."""
    text = "SELECT k FROM A [RANGE 9] UNION ALL SELECT k FROM B [RANGE 9]"
    for second in (9, 10, 11, 12):
        inputs = {
            "A": pa.table({"ts": [0, 1, 30], "k": [0, 1, 2]}),
            "B": pa.table({"ts": [1, second, 30], "k": [0, 1, 2]}),
        }
        base = ms.run(text, inputs, batch_rows=1)
        for name in ("genmig", "genmig_reference_point"):
            plan = ms.plans(text, inputs)[0]
            change = ms.Migration(at=2, plan=plan, strategy=name)
            assert multiset_equal(ms.run(text, inputs, migrations=[change], batch_rows=1), base)


def test_the_split_lies_half_a_tick_after_the_last_end_given():
    asked = ask("SELECT A.k FROM A [RANGE 10], B [HOP 8, 4] WHERE A.k = B.k", {"A": A, "B": B})
    sources = tuple(source for source in _sources(plan_query(asked.plan)))
    assert split_after(sources, {"A": 7, "B": 5}, {}) == 18
    assert split_after(sources, {"A": 1, "B": 5}, {}) == 16
    assert split_after(sources, {"A": 1}, {"B": 5}) == 16, "a silent input's register stands in for its start"
    assert Split(18).first == 19


def _sources(plan):
    from midstream.algebra.physical import SourceNode, walk_physical

    return [node for node in walk_physical(plan.physical) if isinstance(node, SourceNode)]


def test_genmig_takes_no_longer_than_the_longest_validity_one_tick_and_the_skew():
    text = "SELECT A.k FROM A [RANGE 100], B [RANGE 40], C [RANGE 70] WHERE A.k = B.k AND B.k = C.k"
    names = ("A", "B", "C")
    inputs = {
        name: pa.table({"ts": list(range(i, 500, 3)), "k": [1] * len(range(i, 500, 3))}) for i, name in enumerate(names)
    }
    asked = ask(text, inputs)
    change = ms.Migration(at=200, plan="(A (B C))", strategy="genmig")
    how = FiniteRun("((A B) C)", [change], 9)
    run_embedded(asked.plan, asked.tables, asked.catalog, how)
    starts = [max(t for t in range(i, 200, 3)) for i in range(3)]
    skew = max(starts) - min(starts)
    assert how.told.history[0].split_time - min(starts) <= 101 + 1 + skew


def test_the_shortened_split_is_earlier_where_nothing_long_lived_is_left():
    text = "SELECT A.k, B.k AS l FROM A [RANGE 1000], B [RANGE 10] WHERE A.k = B.k AND A.v > 5"
    inputs = {
        "A": pa.table({"ts": [0, 5, 10], "k": [1, 1, 1], "v": [0, 0, 9]}),
        "B": pa.table({"ts": [0, 5, 10], "k": [1, 1, 1]}),
    }
    asked = ask(text, inputs)
    plans = [plan_query(asked.plan, shape) for shape in ("(A B)", "(B A)")]
    for strategy, split in ((GenMig(), 1006.5), (GenMigShortened(), 16.5)):
        act = (2, lambda live, strategy=strategy: live.migrate(plans[1], strategy, part="whole"))
        found, live = drive(asked, plans[0], 2, [act])
        assert live.history[0].split_time == split
        assert ms.snapshot_equal(found, ms.reference(text, inputs))


def test_a_migration_starts_at_a_moment_of_wall_clock_time_where_time_is_a_timestamp():
    zone = dt.timezone(dt.timedelta(hours=2))
    times = [dt.datetime(2024, 5, 1, 12, 0, s, tzinfo=dt.UTC) for s in (0, 20, 40)]
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": [1, 1, 1]})
    query = "SELECT A.k FROM A [RANGE '1 minute'], B [RANGE '1 minute'] WHERE A.k = B.k"
    asked = ask(query, {"A": rows, "B": rows})
    change = ms.Migration(at=dt.datetime(2024, 5, 1, 14, 0, 30, tzinfo=zone), plan="(B A)", strategy="moving_state")
    how = FiniteRun("(A B)", [change], 1)
    found = run_embedded(asked.plan, asked.tables, asked.catalog, how)
    assert how.told.history[0].started_at == int(times[1].timestamp() * 1_000_000)
    assert ms.snapshot_equal(found, ms.reference(query, {"A": rows, "B": rows}))
