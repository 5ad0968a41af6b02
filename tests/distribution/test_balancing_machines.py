"""The protocols' machines by themselves: the paper's messages in the paper's order, refusals, and what is forgotten."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from tests.simulated.balanced_runs import MANAGER, Balanced

from midstream.errors import MigrationError
from midstream.inputs import catalog_of
from midstream.lab.papers.partitioned_load_balancing.legality import legal_protocols, memory, require_movable
from midstream.lab.papers.partitioned_load_balancing.protocols import manager, messages, processor, split
from midstream.lab.papers.partitioned_load_balancing.protocols.manager import REMEMBERED, ManagerState, MoveRequest
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import Facts, ProcessorState
from midstream.lab.papers.partitioned_load_balancing.protocols.split import split_state
from midstream.language import parse
from midstream.optimizer.plans import plan_query

WINDOW = 40
CATALOG = catalog_of({n: pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())]) for n in "ABC"}, "ts")
THREE_WAY = "SELECT A.k FROM A [RANGE 40], B [RANGE 40], C [RANGE 40] WHERE A.k = B.k AND B.k = C.k"
TWO_WAY = "SELECT A.k FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"


def streams(names: str, end: int = 320) -> dict[str, pa.Table]:
    rng = random.Random(5)
    tables = {}
    for name in names:
        times = list(range(0, end))
        columns = {"ts": times, "k": [rng.randint(0, 3) for _ in times], "v": times}
        tables[name] = pa.table({n: pa.array(column, pa.int64()) for n, column in columns.items()})
    return tables


def traced(
    protocol: str, query: str = THREE_WAY, by_intervals: bool = True
) -> tuple[list[tuple[float, str, str, Any]], Balanced]:
    names = "ABC" if query == THREE_WAY else "AB"
    shapes = ["((A B) C)", "(A (B C))"] if query == THREE_WAY else ["(A B)", "(A B)"]
    run = Balanced(query, streams(names), shapes, groups=4, splits=1, by_intervals=by_intervals)
    sent: list[tuple[float, str, str, Any]] = []

    def note(now, sender, to, message):
        payload = getattr(message, "payload", message)
        if isinstance(payload, messages.Message):
            sent.append((now, sender, to, payload))

    run.simulation.on_send = note
    run.move(100, MoveRequest(protocol, "p0", "p1", amount=300))
    run.run()
    return sent, run


def names(sent: list[tuple[float, str, str, Any]]) -> list[str]:
    return list(dict.fromkeys(type(message).__name__ for *_, message in sent))


def test_ptlb_sends_the_five_messages_of_the_paper_and_its_flag():
    sent, _ = traced("ptlb")
    own = ("Acknowledged", "StartOfDuplicates")
    assert [name for name in names(sent) if name not in own] == [
        "ComputePartitionsToMove",
        "PartitionsToMove",
        "DuplicatePartitions",
        "AllOldPurged",
        "DeletePartitions",
        "EndOfPartitions",
    ]


def test_mslb_sends_the_eight_messages_of_the_paper_and_its_flag():
    sent, _ = traced("mslb")
    assert [name for name in names(sent) if name != "Acknowledged"] == [
        "ComputePartitionsToMove",
        "PartitionsToMove",
        "DeactivatePartitions",
        "EndOfPartitionInput",
        "Deactivated",
        "SendPartitions",
        "ReceivePartitions",
        "Received",
        "ReactivatePartitions",
    ]


@pytest.mark.parametrize(
    ("query", "by_intervals", "windows"),
    [(TWO_WAY, False, 1), (THREE_WAY, False, 2), (TWO_WAY, True, 1), (THREE_WAY, True, 1)],
)
def test_ptlb_takes_one_window_and_two_above_one_level_of_joins_by_the_papers_purging(query, by_intervals, windows):
    sent, run = traced("ptlb", query, by_intervals)
    begun, purged = (next(now for now, *_, m in sent if type(m).__name__ == kind) for kind in LENGTH)
    assert purged - begun == pytest.approx(windows * WINDOW, abs=2.5 * run.step)


LENGTH = ("DuplicatePartitions", "AllOldPurged")


def test_mslb_takes_as_long_as_its_messages_travel():
    sent, _ = traced("mslb")
    assert sent[-1][0] - sent[0][0] < 20


def plan(query: str, shape: str | None = None):
    return plan_query(parse(query, CATALOG), shape).physical


@pytest.mark.parametrize(
    ("query", "protocol", "what"),
    [
        ("SELECT DISTINCT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "ptlb", "DISTINCT"),
        ("SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k", "ptlb", "an aggregation"),
        ("SELECT k FROM A [RANGE 9] EXCEPT ALL SELECT k FROM B [RANGE 9]", "ptlb", "EXCEPT"),
        ("SELECT ISTREAM A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "ptlb", "into a stream"),
        ("SELECT A.k FROM A [UNBOUNDED], B [RANGE 9] WHERE A.k = B.k", "ptlb", "UNBOUNDED"),
        ("SELECT A.k FROM A [UNBOUNDED], B [RANGE 9] WHERE A.k = B.k", "split_time_balancing", "UNBOUNDED"),
        ("SELECT A.k FROM A FOLLOWED BY B CHRONICLE ON A.k = B.k WITHIN 9", "split_time_balancing", "a sequence"),
        ("SELECT A.k FROM A FOLLOWED BY B ON A.k = B.k", "split_time_balancing", "a sequence"),
        ("SELECT k FROM A [PARTITION BY k ROWS 3]", "split_time_balancing", "a ROWS window"),
        ("SELECT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k < B.k", "mslb", "different groups meet"),
        (THREE_WAY, "flux", "unknown balancing protocol"),
    ],
)
def test_a_protocol_refuses_plans_for_which_it_is_not_exact(query, protocol, what):
    with pytest.raises(MigrationError, match=what):
        require_movable(protocol, plan(query), plan(query))


def test_mslb_refuses_a_plan_whose_states_do_not_follow():
    rewritten = plan("SELECT A.k, A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    narrow = plan("SELECT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    assert "mslb" not in legal_protocols(narrow, rewritten)
    assert "mslb" in legal_protocols(rewritten, narrow)


def test_memory_adds_up_along_sequences():
    chain = "SELECT A.k FROM A FOLLOWED BY B ON A.k = B.k WITHIN 9 FOLLOWED BY C ON B.k = C.k WITHIN 5"
    assert memory(plan(chain)) == 1 + 9 + 5
    assert memory(plan("SELECT k FROM A [RANGE 9]")) == 10
    assert memory(plan("SELECT k FROM A [UNBOUNDED]")) is None


START = ManagerState(("p0", "p0", "p1"), ("s",))


def test_a_move_leaves_out_groups_that_are_under_way_or_not_the_senders():
    state, sends = manager.begin(START, MoveRequest("mslb", "p0", "p1", groups=(0, 2)))
    assert state.moves[0].groups == (0,) and {send.to for send in sends} == {"s", "p0"}
    again, sends = manager.begin(state, MoveRequest("ptlb", "p0", "p1", groups=(0,)))
    assert again == state and sends == ()
    state, _ = manager.begin(state, MoveRequest("ptlb", "p0", "p1", amount=3.0))
    state, sends = manager.receive(state, "p0", messages.PartitionsToMove(2, (0,)))
    assert [move.number for move in state.moves] == [1] and sends == ()


def test_what_no_manager_can_do_is_refused():
    for request, what in (
        (MoveRequest("mslb", "p0", "p0"), "to itself"),
        (MoveRequest("mslb", "p0", "p1", groups=(7,)), "no partition group 7"),
        (MoveRequest("other", "p0", "p1"), "unknown balancing protocol"),
    ):
        with pytest.raises(MigrationError, match=what):
            manager.begin(START, request)
    state, _ = manager.begin(START, MoveRequest("mslb", "p0", "p1", amount=1))
    for _ in range(REMEMBERED - 1):
        state, _ = manager.begin(state, MoveRequest("mslb", "p0", "p1", amount=1))
    with pytest.raises(MigrationError, match="moves are under way"):
        manager.begin(state, MoveRequest("mslb", "p0", "p1", amount=1))


def test_late_and_foreign_answers_change_nothing():
    state, _ = manager.begin(START, MoveRequest("mslb", "p0", "p1", groups=(0,)))
    for sender, message in (
        ("p0", messages.Received(1)),
        ("p1", messages.Deactivated(1, drained=True)),
        ("p0", messages.Deactivated(9, drained=True)),
        ("s", messages.Acknowledged(1, "ReactivatePartitions", "split")),
    ):
        assert manager.receive(state, sender, message) == (state, ())


def test_only_what_is_unanswered_is_asked_again():
    state, sends = manager.begin(START, MoveRequest("mslb", "p0", "p1", groups=(0,)))
    assert manager.resend(state) == sends and len(sends) == 2
    state, _ = manager.receive(state, "s", messages.Deactivated(1, drained=False))
    assert [send.to for send in manager.resend(state)] == ["p0"]


def test_machines_forget_moves_that_are_long_over():
    table, worker = split_state("s", ("p0", "p1")), ProcessorState("p0", MANAGER)
    for number in range(1, 3 * REMEMBERED):
        message = messages.DeactivatePartitions(number, (0,), "p0", "p1", ("s",))
        table, _ = split.receive(table, message)
        worker, _ = processor.receive(worker, message)
    assert len(table.ranks) <= REMEMBERED and len(worker.parts) <= REMEMBERED
    old = messages.ReactivatePartitions(1, (1,), "p0", "p1", ("s",))
    assert split.receive(table, old) == (table, ())
    assert processor.receive(worker, old) == (worker, ())


def test_a_processor_answers_when_what_it_waits_for_has_come():
    state = ProcessorState("p0", MANAGER)
    state, actions = processor.receive(state, messages.ComputePartitionsToMove(1, 5.0))
    assert actions == ()
    state, (answer,) = processor.observe(state, Facts({0: 4.0, 1: 9.0}))
    assert answer == messages.Send(MANAGER, messages.PartitionsToMove(1, (0,)))
    # The choice stands, also where loads have changed when the question comes again.
    state, (again,) = processor.receive(state, messages.ComputePartitionsToMove(1, 5.0))
    assert again == answer
    duplicate = messages.DuplicatePartitions(1, (0,), "p0", "p1", ("s", "t"), marked=True)
    state, actions = processor.receive(state, duplicate)
    for flagged in ("s", "t"):
        assert processor.observe(state, Facts())[1] == ()
        state, _ = processor.flag(state, flagged, messages.StartOfDuplicates(1, (0,), "p0", marked=True))
    assert processor.observe(state, Facts(old=frozenset({0})))[1] == ()
    state, (purged,) = processor.observe(state, Facts())
    assert purged == messages.Send(MANAGER, messages.AllOldPurged(1))


@pytest.mark.parametrize("kind", messages._KINDS.values(), ids=lambda kind: kind.__name__)
def test_messages_can_be_written_down(kind):
    sample = {"move": 3, "amount": 2.5, "groups": (1, 2), "sender": "a", "receiver": "b", "splits": ("s", "t")}
    sample |= {"marked": True, "time": 7, "drained": False, "contents": None, "step": "x", "role": "split"}
    sample |= {"latest_end": 4}
    message = kind(**{name: sample[name] for name in kind.__dataclass_fields__ if name != "rank"})
    assert messages.message_from_json(json.loads(json.dumps(messages.message_to_json(message)))) == message
