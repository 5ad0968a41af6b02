"""Windows at sites: what is copied, what is waited for, what is stored once."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from midstream.api import ask
from midstream.errors import InternalError, QueryError
from midstream.lab.papers.node_operator_sets.join_plan import parse_plan
from midstream.lab.papers.node_operator_sets.network import RESULTS, node_per_stream
from midstream.lab.papers.node_operator_sets.node_sets import Join, Ship, StreamId, Update, node_sets
from midstream.lab.papers.node_operator_sets.probing import Prober
from midstream.lab.papers.node_operator_sets.query import RoutedQuery
from midstream.lab.papers.node_operator_sets.routed_run import local_rows
from midstream.lab.papers.node_operator_sets.site import Ask, Copy, Fetch, Plans, Result, Rows, Site
from midstream.lab.papers.node_operator_sets.window import NEVER
from midstream.optimizer.sites.links import Link

TEXT = "SELECT A.v AS a, B.v AS b FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
TABLE = pa.table({"ts": list(range(8)), "k": [1, 2] * 4, "v": list(range(8))})
QUERY = RoutedQuery(ask(TEXT, {"A": TABLE, "B": TABLE}).plan)
NETWORK = node_per_stream(("A", "B"), Link(1, 1))


def rows(stream: str, batch: int):
    return local_rows(QUERY, stream, TABLE.slice(2 * batch, 2), "ts")


def site(node: str, plan: str) -> Site:
    sets = node_sets(parse_plan(plan, QUERY.conditions), NETWORK)
    kept = {s: tuple(n for n, o in sets.items() if Update(s) in o) for s in "AB"}
    found = Site(node, node, Prober(QUERY), NETWORK, Plans({0: sets[node]}, {0: kept[node]}))
    found.begin()
    return found


def installed(at: Site, sets, **others) -> None:
    at.plans = replace(at.plans, sets=sets, **others)


def batches(window) -> list[int]:
    state = window.by(())
    found = [np.asarray(s.elements.columns.column(s.elements.columns.num_columns - 1)) for s in state.segments]
    return sorted(np.concatenate(found).tolist()) if found else []


def test_a_probe_waits_for_the_batches_it_may_see():
    b = site("B", "A -> B, B -> A")
    sent = b.receive(Rows("B", "A", 1, 0, rows("A", 1)))
    assert sent == [] and len(b.waiting) == 1, "A's batch 1 may see B's batch 0, which has not come"
    (result,) = [m for m in b.arrive(0, rows("B", 0), 0) if isinstance(m, Result) and m.head == "A"]
    assert result.rows is not None and len(result.rows) == 2 and not b.waiting


def test_the_delta_rule_lets_one_of_two_rows_of_a_batch_find_the_pair():
    at_b = site("B", "A -> B, B <- A")
    found = []
    for batch in range(2):
        found += at_b.receive(Rows("B", "A", batch, 0, rows("A", batch)))
        found += at_b.arrive(batch, rows("B", batch), 0)
    sizes = {(m.head, m.batch): 0 if m.rows is None else len(m.rows) for m in found if isinstance(m, Result)}
    # B comes after A in the query: B's rows see A's of the same batch, A's rows do not see B's.
    assert sizes == {("A", 0): 0, ("B", 0): 2, ("A", 1): 2, ("B", 1): 4}


def test_a_window_that_is_needed_is_asked_for_and_copied_through_the_batches_before_the_feed():
    home, other = site("A", "A <- B, B -> A"), site("B", "A <- B, B -> A")
    for batch in range(2):
        home.arrive(batch, rows("A", batch), 0)
    installed(other, {**other.plans.sets, 1: frozenset({Update("A"), Join(StreamId("A"), "B")})})
    (ask_for,) = other.ask(7, 1)
    assert ask_for == Ask("A", "A", "B", NEVER, 7)
    (copy,) = home.receive(ask_for)
    assert isinstance(copy, Copy) and copy.through == 1 and len(copy.rows) == 4
    assert not other.full
    fed = [m for m in home.arrive(2, rows("A", 2), 0) if isinstance(m, Rows) and m.to == "B"]
    assert len(fed) == 1, "from the next batch on the home feeds the new keeper, although its own set says nothing yet"
    other.receive(fed[0])
    other.receive(copy)
    assert other.full and other.windows["A"].floor == 2 and batches(other.windows["A"]) == [0, 0, 1, 1, 2, 2]
    home.stop_feeding(7)
    assert not [m for m in home.arrive(3, rows("A", 3), 0) if isinstance(m, Rows)]


def test_only_the_part_that_is_missing_is_copied_again():
    home, other = site("A", "A <- B, B -> A"), site("B", "A <- B, B -> A")
    new = frozenset({Update("A")})
    home.arrive(0, rows("A", 0), 0)
    installed(other, {0: other.plans.sets[0], 1: new})
    for message in home.receive(other.ask(1, 1)[0]):
        other.receive(message)
    installed(other, {0: other.plans.sets[0]})
    home.stop_feeding(1)
    for batch in (1, 2):
        home.arrive(batch, rows("A", batch), 0)
    installed(other, {0: other.plans.sets[0], 2: new})
    (again,) = other.ask(2, 2)
    assert isinstance(again, Ask) and again.has == 0, "batch 0 is still here"
    (copy,) = home.receive(again)
    assert isinstance(copy, Copy) and len(copy.rows) == 4 and copy.through == 2
    other.receive(copy)
    assert batches(other.windows["A"]) == [0, 0, 1, 1, 2, 2]


def test_a_window_of_an_older_plan_is_completed_although_it_is_still_here():
    """Its rows have stopped to come, so a change that needs it again must not take it for complete."""
    other = site("B", "A <- B, B -> A")
    installed(other, {0: frozenset({Update("A")}), 1: frozenset(), 2: frozenset({Update("A")})}, epoch=1)
    assert [type(m) for m in other.ask(3, 2)] == [Ask] and not other.full


def test_rows_for_retired_plans_are_neither_sent_nor_stored():
    home = site("A", "A -> B, B -> A")
    installed(home, {**home.plans.sets, 1: frozenset({Update("A")})}, retired={1: 2})
    assert [m.to for m in home.arrive(1, rows("A", 1), 1) if isinstance(m, Rows)] == ["B"]
    assert [m.to for m in home.arrive(2, rows("A", 2), 1) if isinstance(m, Rows)] == []


def test_rows_that_come_twice_are_stored_once():
    b = site("B", "A -> B, B <- A")
    window = b.window("A")
    b.receive(Rows("B", "A", 1, 0, rows("A", 1)))
    b.receive(Rows("B", "A", 1, 0, rows("A", 1)))
    assert window.floor == NEVER and batches(window) == [1, 1]
    source = site("A", "A <- B, B -> A")
    for batch in range(2):
        source.arrive(batch, rows("A", batch), 0)
    window.copy(source.windows["A"].part(NEVER, 1, 0), 1)
    assert window.floor == 1 and batches(window) == [0, 0, 1, 1]


def test_a_home_without_its_window_sends_the_request_on_to_a_keeper():
    home = site("A", "A -> B, B <- A")
    home.arrive(0, rows("A", 0), 0)
    assert "A" not in home.windows
    installed(home, home.plans.sets, keepers={0: ("B", "C")})
    assert home.receive(Ask("A", "A", "C", NEVER, 3)) == [Fetch("B", "A", "C", NEVER, 0)]


def test_a_keeper_answers_when_it_has_the_batches():
    keeper = site("B", "A -> B, B <- A")
    assert keeper.receive(Fetch("B", "A", "C", NEVER, 0)) == []
    sent = keeper.receive(Rows("B", "A", 0, 0, rows("A", 0)))
    assert [m.through for m in sent if isinstance(m, Copy)] == [0]


def test_partial_results_without_an_operator_are_an_error_and_not_lost():
    b = site("B", "A -> B, B <- A")
    installed(b, {0: frozenset({Update("B"), Join(StreamId("A"), "B")})})
    b.arrive(0, rows("B", 0), 0)
    with pytest.raises(InternalError, match="no operator"):
        b.receive(Rows("B", "A", 1, 0, rows("A", 1)))


def test_a_site_survives_being_written_down():
    random, b = Random(1), site("B", "A -> B, B <- A")
    for batch in range(3):
        b.receive(Rows("B", "A", batch, 0, rows("A", batch)))
        if random.random() < 0.5:
            b.arrive(batch, rows("B", batch), 0)
    copy = site("B", "A -> B, B <- A")
    copy.restore(b.stored())
    assert batches(copy.windows["A"]) == batches(b.windows["A"]) and copy.waiting == b.waiting
    assert copy.windows["A"].floor == 2


def test_queries_that_routed_joins_cannot_do_are_refused():
    tables = {"A": TABLE, "B": TABLE}
    with pytest.raises(QueryError, match="not Aggregate"):
        RoutedQuery(ask("SELECT COUNT(*) AS n FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k", tables).plan)
    with pytest.raises(QueryError, match="at one place"):
        RoutedQuery(ask("SELECT A.v FROM A [RANGE 5]", tables).plan)


def test_results_go_to_the_node_that_asked():
    assert Ship(StreamId("B", "A"), RESULTS) in site("B", "A -> B, B <- A").plans.sets[0]
