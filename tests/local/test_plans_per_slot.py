"""Plans per slot as a session's user sees them: asked for, shown, remembered over a restart, and moved between."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.local.test_durable_sessions import SCHEMA, drawn

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import Listener, status
from midstream.interface.plain_values import plain

JOIN = "SELECT A.k, C.v FROM A [RANGE 30], B [RANGE 30], C [RANGE 30] WHERE A.k = B.k AND B.k = C.k"


def opened(folder: object) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(folder), on="local", slots=3)
    for name in "ABC":
        session.stream(name, SCHEMA)
    session.query("q", JOIN, plan="((A B) C)")
    return session.start()


def test_a_session_shows_the_plans_of_its_slots_and_goes_on_with_them(tmp_path):
    parts = {name: [drawn(10 * i + n, i * 15, 10, 15) for i in range(8)] for n, name in enumerate("ABC")}

    def push(batch: int) -> None:
        session.push({name: parts[name][batch] for name in "ABC"})

    session = opened(tmp_path)
    query = session.queries["q"]
    push(0)
    assert isinstance(query.plan, ms.Plan)
    query.migrate("(A (B C))", "moving_state", slots=[1])
    assert query.migrating == "(A (B C))"
    push(1)
    push(2)
    both = "((A B) C) in slots 0, 2; (A (B C)) in slot 1"
    assert {slot: plan.text for slot, plan in query.plans.items()} == {0: "((A B) C)", 1: "(A (B C))", 2: "((A B) C)"}
    assert query.plan.text == both
    assert "in slot 1" in query._repr_html_()
    assert "Plan ((A B) C) in slots 0, 2\n" in query.explain() and "Plan (A (B C)) in slot 1\n" in query.explain()
    assert status(session)["queries"]["q"]["plans"] == "((A B) C); (A (B C)) in slot 1"
    assert [record.slots for record in query.history] == [(1,)]
    stored = session.job.query("q")
    assert (stored.plans, stored.history[0].slots) == ("((A B) C); (A (B C)) in slot 1", (1,))
    assert plain(stored.local) == {"1": "(A (B C))"}
    session.stop()
    session = opened(tmp_path)
    query = session.queries["q"]
    assert query.plan.text == both
    push(3)
    session.rescale(2)
    push(4)
    assert query.plan.text == "((A B) C) in slot 0; (A (B C)) in slot 1"
    Listener(session).answer(
        {"command": "migrate", "query": "q", "plan": "(A (B C))", "strategy": "moving_state", "slots": [0]}
    )
    push(5)
    push(6)
    assert isinstance(query.plan, ms.Plan) and query.plan.text == "(A (B C))"
    push(7)
    session.finish()
    inputs = {name: pa.concat_tables(parts[name]) for name in "ABC"}
    assert ms.snapshot_equal(query.table(), ms.reference(JOIN, inputs))
    session.stop()


def test_a_query_whose_slots_differ_keeps_its_text(tmp_path):
    session = opened(tmp_path)
    session.push({name: drawn(3, 0, 10, 15) for name in "ABC"})
    session.queries["q"].migrate("(A (B C))", "moving_state", slots=[1])
    session.push({name: drawn(4, 15, 10, 15) for name in "ABC"})
    session.push({name: drawn(5, 30, 10, 15) for name in "ABC"})
    with pytest.raises(ms.MidstreamError, match="its slots run by different plans"):
        session.query("q", JOIN.replace("C.v", "B.v"), replace=True)
    session.stop()
