"""What strategies refuse, and what they say about it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.migration.drive import drive

import midstream as ms
from midstream.algebra.emission import emission_of
from midstream.algebra.plan import rewrite_plan
from midstream.api import ask
from midstream.migration.registry import STRATEGIES
from midstream.optimizer.plans import Plan, plan_query
from midstream.optimizer.rules.push_selection_down import push_selection_down

ROWS = pa.table({"ts": [1, 2, 3], "k": [1, 1, 2], "v": [1, 2, 3]})
INPUTS = {"A": ROWS, "B": ROWS, "C": ROWS}
SPLITTING = ("genmig", "genmig_shortened")
KEEPING = ("genmig_reference_point", "parallel_track")


def refusal(name: str, query: str) -> ms.MigrationError:
    plan = plan_query(ask(query, INPUTS).plan)
    with pytest.raises(ms.MigrationError) as caught:
        STRATEGIES[name].refuse(plan, plan, {})
    return caught.value


@pytest.mark.parametrize("name", SPLITTING)
@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT k FROM A [UNBOUNDED]", r"an \[UNBOUNDED\] window"),
        ("SELECT k FROM A [ROWS 2]", "a ROWS window"),
        ("SELECT A.k FROM A FOLLOWED BY B ALL ON A.k = B.k", "a sequence"),
        ("SELECT x.k FROM (SELECT k FROM A [NOW]) [RANGE 2] AS x", "a window over a sub-query"),
    ],
)
def test_no_split_time_no_genmig(name, query, what):
    error = refusal(name, query)
    assert error.message == f"{name} cannot migrate this plan: it contains {what}".replace("\\", "")
    assert "moving_state" in str(error.hint) and error.detail


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT DISTINCT k FROM A [RANGE 5]", "DISTINCT"),
        ("SELECT count(*) AS n FROM A [RANGE 5]", "an aggregation"),
        ("SELECT A.k FROM A [RANGE 5] LEFT JOIN B [RANGE 5] ON A.k = B.k", "a left outer join"),
        ("SELECT k FROM A [RANGE 5] EXCEPT ALL SELECT k FROM B [RANGE 5]", "EXCEPT"),
        ("SELECT A.k FROM A [RANGE 5] WHERE A.k IN (SELECT k FROM B [RANGE 5])", "DISTINCT"),
        ("SELECT A.k FROM A [RANGE 5] WHERE NOT EXISTS (SELECT 1 FROM B [RANGE 5] WHERE B.k = A.k)", "an anti join"),
    ],
)
def test_stateful_operators_but_inner_joins_are_not_for_everyone(name, query, what):
    error = refusal(name, query)
    assert error.message == f"{name} cannot migrate this plan: it contains {what}"
    assert "genmig" in str(error.hint) and error.detail


def test_parallel_track_refuses_windows_that_never_end():
    assert "[UNBOUNDED]" in refusal("parallel_track", "SELECT A.k FROM A [UNBOUNDED], B [NOW] WHERE A.k = B.k").message


def test_moving_state_refuses_what_the_old_plan_has_not_kept():
    """Only tuples that passed the selection were kept, without the column it reads."""
    query = "SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k AND A.v > 1"
    asked = ask(query, INPUTS)
    above = Plan(asked.plan, asked.plan, emission_of(asked.plan))
    below = Plan(asked.plan, rewrite_plan(asked.plan, push_selection_down), emission_of(asked.plan))
    for name in ("moving_state", "moving_state_paced"):
        STRATEGIES[name].refuse(above, below, {})
        with pytest.raises(ms.MigrationError, match="the window of A, which the old plan has not kept") as caught:
            STRATEGIES[name].refuse(below, above, {})
        assert "genmig" in str(caught.value.hint)


def test_another_query_is_refused_by_all():
    one, other = (plan_query(ask(f"SELECT k FROM A [RANGE {w}]", INPUTS).plan) for w in (5, 6))
    for strategy in STRATEGIES.values():
        with pytest.raises(ms.MigrationError, match="another query"):
            strategy.refuse(one, other, {})


def test_a_refused_migration_stops_a_run_before_it_starts():
    query = "SELECT DISTINCT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
    with pytest.raises(ms.MigrationError, match="it contains DISTINCT"):
        ms.run(query, INPUTS, migrations=[ms.Migration(at=10**9, plan="(B A)", strategy="parallel_track")])


@pytest.mark.parametrize("at", [1.5, "2024"])
def test_a_migration_needs_a_time(at):
    with pytest.raises(ms.MigrationError):
        ms.Migration(at=at, plan="(A B)", strategy="genmig")


def test_a_time_of_another_kind_is_refused():
    import datetime

    with pytest.raises(ms.MigrationError, match="starts at an integer"):
        change = ms.Migration(at=datetime.datetime(2024, 1, 1), plan="(B A)", strategy="genmig")
        ms.run("SELECT A.k FROM A [NOW], B [NOW] WHERE A.k = B.k", INPUTS, migrations=[change])


def test_one_migration_at_a_time_unless_queued():
    asked = ask("SELECT A.k FROM A [RANGE 50], B [RANGE 50] WHERE A.k = B.k", INPUTS)
    old, new = (plan_query(asked.plan, shape) for shape in ("(A B)", "(B A)"))
    other = plan_query(ask("SELECT k FROM A [NOW]", INPUTS).plan)

    def twice(live):
        live.migrate(new, "genmig")
        with pytest.raises(ms.MigrationError, match="another migration of this query is running"):
            live.migrate(old, "genmig")
        with pytest.raises(ms.MigrationError, match="another query"):
            live.migrate(other, "genmig", queue=True)
        live.migrate(old, "genmig", queue=True)

    _, live = drive(asked, old, 1, [(2, twice)])
    assert [record.new_plan for record in live.history] == [new.text, old.text]


def test_there_must_be_something_to_cancel():
    asked = ask("SELECT k FROM A [RANGE 5]", INPUTS)
    _, live = drive(asked, None, 1)
    with pytest.raises(ms.MigrationError, match="no migration of this query is running"):
        live.cancel_migration()


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize(
    "query",
    ["SELECT k FROM A [ROWS 2]", "SELECT count(*) AS n FROM A [UNBOUNDED]", "SELECT A.k FROM A FOLLOWED BY B ALL"],
)
def test_a_refusal_does_not_hint_at_what_would_be_refused_too(name, query):
    hint = str(refusal(name, query).hint)
    assert "moving_state" in hint and "genmig" not in hint
