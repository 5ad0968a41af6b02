"""Whatever the query, the input and the way it is run: the engine's snapshots are the oracle's.

A failing example prints the case as a program, and the drive: plan, schedule, steps and settings of the state.
"""

from __future__ import annotations

import warnings
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.engine import driving
from tests.generators import EVERYTHING, INNER_JOINS, INTERVAL_KEEPING, Case, cases, random_case

import midstream as ms
from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation
from midstream.algebra.semantics import evaluate
from midstream.algebra.snapshots import multiset_equal
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.local.live_query import LiveQuery

EXAMPLES = settings().max_examples
MANY, SOME = settings(max_examples=4 * EXAMPLES), settings(max_examples=EXAMPLES)
seeds = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.filterwarnings("ignore::midstream.errors.DeadLetterWarning")


def answer(case: Case) -> pa.Table | ms.MidstreamError:
    """The oracle's answer, or its refusal."""
    try:
        return ms.reference(case.query, case.inputs, time=case.time)
    except ms.MidstreamError as error:
        return error


def evaluated(relation: Relation, inputs: dict[str, pa.Table], catalog: Catalog) -> pa.Table | ms.MidstreamError:
    """The oracle's answer to a query that is bound already, or its refusal."""
    try:
        return evaluate(relation, inputs, catalog)
    except ms.MidstreamError as error:
        return error


def start_of(table: pa.Table) -> str:
    return "valid_from" if "valid_from" in table.column_names else "ts"


def is_ordered(table: pa.Table) -> bool:
    starts: list[int] = table[start_of(table)].cast(pa.int64()).to_pylist()
    return starts == sorted(starts)


def check(case: Case, random: Random) -> None:
    """One drive of a case against the oracle."""
    note(case.replay())
    inputs = driving.shuffled(random, case.inputs)
    relation, catalog = driving.question(case.query, inputs, case.time)
    expected = evaluated(relation, inputs, catalog)
    try:
        drive = driving.random_drive(random, relation, inputs)
        note(repr(drive))
        found = driving.run(drive, inputs, catalog)
    except ms.MidstreamError as error:
        assert type(error) is type(expected), error
        return
    assert not isinstance(expected, ms.MidstreamError), expected
    difference = ms.snapshot_equal(found, expected)
    assert difference, str(difference)
    assert is_ordered(found)


@MANY
@given(seeds)
def test_any_query_driven_in_any_way(seed: int) -> None:
    check(random_case(seed), Random(seed))


@SOME
@given(cases(EVERYTHING), st.randoms(use_true_random=False))
def test_any_query_driven_in_any_way_with_examples_that_shrink(case: Case, random: Random) -> None:
    check(case, random)


@SOME
@given(seeds, st.sampled_from([1, 2, 3, 7, 40, 10_000]), st.sampled_from(["dfs", "bfs", "rr"]))
def test_any_query_through_the_public_door(seed: int, batch_rows: int, strategy: str) -> None:
    case = random_case(seed)
    note(case.replay())
    expected = answer(case)
    inputs = driving.shuffled(Random(seed), case.inputs)
    try:
        found = ms.run(case.query, inputs, time=case.time, batch_rows=batch_rows, scheduling=strategy)
    except ms.MidstreamError as error:
        assert type(error) is type(expected), error
        return
    assert not isinstance(expected, ms.MidstreamError), expected
    difference = ms.snapshot_equal(found, expected)
    assert difference, str(difference)
    assert is_ordered(found)


@SOME
@given(seeds)
def test_intervals_do_not_depend_on_batches_or_plans_where_the_algebra_gives_them(seed: int) -> None:
    case, random = random_case(seed, INTERVAL_KEEPING - {"rows", "partitioned_rows"}), Random(seed)
    note(case.replay())
    expected = answer(case)
    assert isinstance(expected, pa.Table)
    relation, catalog = driving.question(case.query, case.inputs, case.time)
    for _ in range(2):
        drive = driving.random_drive(random, relation, case.inputs)
        note(repr(drive))
        difference = multiset_equal(driving.run(drive, case.inputs, catalog), expected)
        assert difference, str(difference)


@SOME
@given(seeds)
def test_every_plan_of_a_join_gives_the_same(seed: int) -> None:
    case = random_case(seed, INNER_JOINS, most_rows=20)
    note(case.replay())
    expected = answer(case)
    assert isinstance(expected, pa.Table)
    plans = [plan.text for plan in ms.plans(case.query, case.inputs)]
    for plan in [*Random(seed).sample(plans, min(len(plans), 6)), *probe_orders(case, Random(seed))]:
        note(f"plan {plan}")
        difference = multiset_equal(ms.run(case.query, case.inputs, plan=plan, batch_rows=5), expected)
        assert difference, str(difference)


def probe_orders(case: Case, random: Random) -> list[str]:
    """A multi-way join with any probe order for each of the query's streams."""
    aliases = [leaf.alias for leaf in case.leaves]
    if len(aliases) < 3:
        return []
    routes = []
    for alias in aliases:
        others = [a for a in aliases if a != alias]
        routes.append(f"{alias}: {' '.join(random.sample(others, len(others)))}")
    return [", ".join(routes)]


@SOME
@given(seeds)
def test_what_has_been_released_is_final_and_complete_up_to_where_the_query_has_passed(seed: int) -> None:
    case, random = random_case(seed, EVERYTHING), Random(seed)
    note(case.replay())
    expected = answer(case)
    if isinstance(expected, ms.MidstreamError):
        return
    relation, catalog = driving.question(case.query, case.inputs, case.time)
    drive = driving.random_drive(random, relation, case.inputs)
    note(repr(drive))

    def watch(query: LiveQuery, released: pa.Table) -> None:
        passed = min(query.frontier, query.execution.passed)
        difference = ms.snapshot_equal(before(released, passed), before(expected, passed))
        assert difference, f"up to {passed}: {difference}"
        starts = released[start_of(released)].cast(pa.int64()).to_pylist()
        assert not starts or starts[-1] < passed

    driving.run(drive, case.inputs, catalog, watch)


def before(table: pa.Table, instant: int) -> pa.Table:
    """The part of a result that lies before an instant."""
    start = start_of(table)
    kind = table.schema.field(start).type
    starts = table[start].cast(pa.int64())
    if instant in (BEGINNING, INFINITY):
        return table.slice(0, 0) if instant == BEGINNING else table
    kept = table.filter(pc.less(starts, instant))
    if start == "ts":
        return kept
    ends = pc.min_element_wise(kept["valid_to"].cast(pa.int64()), pa.scalar(instant), skip_nulls=True)
    return kept.set_column(kept.num_columns - 1, "valid_to", ends.cast(kind))


@SOME
@given(seeds)
def test_rows_later_than_allowed_are_dead_letters_and_the_rest_is_answered(seed: int) -> None:
    random = Random(seed)
    case = random_case(seed, EVERYTHING - {"timestamp_time", "zoned_time"})
    note(case.replay())
    inputs = driving.shuffled(random, case.inputs)
    lateness = random.choice([0, 1, 3, 10])
    late = {name: _late_rows(table["ts"].to_pylist(), lateness) for name, table in inputs.items()}
    on_time = {name: _without(table, late[name]) for name, table in inputs.items()}
    expected = answer(Case(case.query, on_time, None, (), case.time))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = ms.run(case.query, inputs, lateness=lateness, batch_rows=random.choice([1, 3, 100]), full=True)
    except ms.MidstreamError as error:
        assert type(error) is type(expected), error
        return
    assert isinstance(expected, pa.Table)
    difference, dead = ms.snapshot_equal(result.table, expected), result.dead_letters
    assert difference, str(difference)
    assert bool(dead) == any(issubclass(w.category, ms.DeadLetterWarning) for w in caught)
    for name in {letters.stream for letters in dead}:
        assert sum(len(letters) for letters in dead if letters.stream == name) == len(late[name])


def _late_rows(times: list[int | None], lateness: int) -> list[int]:
    """The rows without a time, and those further behind the latest before them than allowed."""
    latest, found = None, []
    for i, time in enumerate(times):
        if time is None or (latest is not None and time < latest - lateness):
            found.append(i)
        else:
            latest = time if latest is None else max(latest, time)
    return found


def _without(table: pa.Table, rows: list[int]) -> pa.Table:
    return table.take(pa.array([i for i in range(table.num_rows) if i not in rows], pa.int64()))
