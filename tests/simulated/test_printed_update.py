"""Algorithm 3 as printed: it repairs what it looks at, counts what it sends, and misses what the protocol adds."""

from __future__ import annotations

import pytest

from midstream.lab.experiments.nos_workload import CHANGING, HIGH, LOW, setting, statistics
from midstream.lab.papers.node_operator_sets.cost import way_cost
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.printed_update import Reading, printed_update, readings


def updated(count: int, up: bool, reading: Reading):
    chosen = setting(count)
    old, new = (statistics(count, rate) for rate in ((LOW, HIGH) if up else (HIGH, LOW)))
    plan = greedy_plan(chosen.conditions, old, chosen.costs)
    return printed_update(plan, old, new, CHANGING, chosen, reading), greedy_plan(chosen.conditions, new, chosen.costs)


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("up", [True, False])
def test_other_heads_end_in_ways_as_good_as_greedy_ones_and_the_changed_ones_is_not_looked_at(count, up):
    known, costs = statistics(count, HIGH if up else LOW), setting(count).costs
    for reading in readings():
        found, greedy = updated(count, up, reading)
        assert found.plan is not None and found.swaps > 0
        dearer = {
            way.head
            for way in found.plan
            if way_cost(way, known, costs) > 1.000001 * way_cost(greedy.way(way.head), known, costs)
        }
        assert dearer == {CHANGING}


def test_a_relay_a_swap_and_two_phases_cost_what_the_paper_says():
    found, _ = updated(4, True, Reading())
    # Three ways of three streams: relays of two, one and no messages; two swaps on each way.
    assert found.swaps == 6 and found.messages["relay"] == 9 and found.messages["exchange"] == 12
    assert found.modification == sum(
        found.messages[k] for k in ("relay", "inform", "exchange", "neighbour", "placement")
    )
    assert found.migration - found.synchronisation == found.messages["request"] == 2 * 6 + found.messages["placement"]
    by_round, _ = updated(4, True, Reading(synchronised="round"))
    assert by_round.synchronisation == 2 * 2 * 4 * 3


def test_nothing_is_sent_but_relays_where_nothing_is_to_be_swapped():
    chosen, known = setting(4), statistics(4, LOW)
    plan = greedy_plan(chosen.conditions, known, chosen.costs)
    found = printed_update(plan, known, known, CHANGING, chosen, Reading(answered=False))
    assert found.plan == plan and found.swaps == 0 and set(k for k, n in found.messages.items() if n) == {"relay"}
