"""Every rule of the protocols is needed: without it, some run is wrong, and the tests see it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.simulated.balanced_runs import MANAGER, Balanced
from tests.simulated.test_balancing_protocols import JOIN, KINDS, streams

from midstream.algebra.expressions import Literal
from midstream.algebra.time import BEGINNING
from midstream.lab.papers.partitioned_load_balancing import old_track, processing, rows, splitting, tracks
from midstream.lab.papers.partitioned_load_balancing.protocols import messages, processor, split
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import MoveRequest
from midstream.lab.simulated_cluster import SimulatedLink
from midstream.migration import marks

SHAPES = ["((A B) C)", "(A (B C))"]
SLOW_ORDERS, SLOW_ROWS = (MANAGER, "s1"), ("s1", "p0")
UNRELIABLE = SimulatedLink(latency=1, duplication=0.5, jitter=9, reordering=0.5)


def exact(
    protocol: str,
    query: str = JOIN,
    link: SimulatedLink | None = None,
    slow: tuple[str, str] | None = None,
    seeds: int = 2,
) -> bool:
    """Whether a few runs with moves are all right; one link may be slow."""
    shapes = SHAPES if query == JOIN else [None, None]
    for seed in range(seeds):
        run = Balanced(query, streams(seed), shapes, seed=seed, link=link or SimulatedLink(latency=1), step=2)
        if slow is not None:
            run.simulation.connect(*slow, SimulatedLink(latency=25))
        for at in (20, 45):
            run.move(at, MoveRequest(protocol, "p0", "p1", groups=(0, 2, 4)))
            run.move(at + 20, MoveRequest(protocol, "p1", "p0", groups=(0, 2, 4)))
        try:
            run.run(most=3_000)
            run.check_result()
        except AssertionError:
            return False
    return True


@pytest.mark.parametrize("protocol", ["ptlb", "mslb", "split_time_balancing"])
def test_the_runs_that_mutations_are_tried_on_are_right_without_them(protocol):
    assert exact(protocol)
    assert exact(protocol, link=UNRELIABLE, seeds=1)
    assert exact(protocol, slow=SLOW_ORDERS, seeds=1)
    assert exact(protocol, slow=SLOW_ROWS, seeds=1)
    if protocol != "ptlb":
        assert exact(protocol, KINDS["difference"][0])


def test_the_root_must_leave_out_results_of_new_parts_only(monkeypatch):
    usual = marks.marked_plan
    monkeypatch.setattr(old_track, "marked_plan", lambda plan: usual(plan, lambda _: Literal(True, pa.bool_())))
    assert not exact("ptlb")


def test_only_the_senders_copies_may_be_marked_new(monkeypatch):
    usual = rows.Rows
    monkeypatch.setattr(splitting, "Rows", lambda alias, part, new=False: usual(alias, part, False))
    assert not exact("ptlb")


def test_ptlbs_sender_must_wait_until_all_split_operators_duplicate(monkeypatch):
    usual = processor.receive

    def without_splits(state, message):
        waits = isinstance(message, messages.DuplicatePartitions) and message.marked
        return usual(state, replace(message, splits=()) if waits else message)

    monkeypatch.setattr(processor, "receive", without_splits)
    assert not exact("ptlb", slow=SLOW_ORDERS)


def test_ptlbs_sender_must_hold_groups_until_nothing_old_is_left(monkeypatch):
    monkeypatch.setattr(old_track.OldTrack, "holds_old", property(lambda self: False))
    assert not exact("ptlb")


def test_mslbs_sender_must_process_what_is_under_way_first(monkeypatch):
    usual = processor.receive

    def without_splits(state, message):
        waits = isinstance(message, messages.DeactivatePartitions)
        return usual(state, replace(message, splits=()) if waits else message)

    monkeypatch.setattr(processor, "receive", without_splits)
    assert not exact("mslb", slow=SLOW_ROWS)


def test_time_must_not_pass_rows_that_are_held_back(monkeypatch):
    monkeypatch.setattr(split.SplitState, "holds_back", property(lambda self: False))
    assert not exact("mslb", KINDS["difference"][0], slow=SLOW_ORDERS)


def test_states_must_be_installed_where_they_were_taken(monkeypatch):
    """A receiver that has not come so far yet would answer again for what the sender has answered."""
    usual = processing.Pending
    monkeypatch.setattr(
        processing, "Pending", lambda move, groups, shipped: usual(move, groups, replace(shipped, frontier=BEGINNING))
    )
    assert not exact("mslb", KINDS["difference"][0], slow=("s1", "p1"))


def test_copies_of_messages_must_not_be_acted_on_again(monkeypatch):
    usual = processor.receive

    def forgetful(state, message):
        part = state.parts.get(message.move)
        if part is not None and part.rank == message.rank:
            state = replace(state, parts={**state.parts, message.move: replace(part, rank=message.rank - 1)})
        return usual(state, message)

    monkeypatch.setattr(processor, "receive", forgetful)
    assert not exact("mslb", link=UNRELIABLE)


@pytest.mark.parametrize("query", [JOIN, KINDS["difference"][0]])
def test_the_split_time_must_lie_after_all_that_only_the_sender_has_seen(monkeypatch, query):
    usual = split.receive
    monkeypatch.setattr(split, "receive", lambda state, message, latest_end: usual(state, message, latest_end - 10))
    assert not exact("split_time_balancing", query)


def test_results_must_be_limited_to_a_side_of_the_split_time(monkeypatch):
    monkeypatch.setattr(tracks.Limited, "_limited", lambda self, batch, split_at: batch)
    assert not exact("split_time_balancing")
