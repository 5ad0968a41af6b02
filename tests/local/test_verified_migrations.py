"""Verified migrations of durable jobs: a copy migrates beside the query, over restarts, and wrong plans never count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.local.test_durable_sessions import SCHEMA, drawn
from tests.profiles import always

import midstream as ms
from midstream.algebra.plan import Distinct, Relation, rewrite_plan
from midstream.checkpoint.check import check
from midstream.cluster.listener import Listener
from midstream.job.queries.running_query import RunningQuery
from midstream.optimizer.plans import Plan

FROM = "FROM A [RANGE 30], B [RANGE 30], C [RANGE 30] WHERE A.k = B.k AND B.k = C.k"
JOIN = f"SELECT A.k, A.v AS a, C.v AS c {FROM}"
DISTINCT = f"SELECT DISTINCT A.k {FROM}"
COUNT = f"SELECT A.k, count(*) AS n {FROM} GROUP BY A.k"
BY_VALUE = f"SELECT A.v, count(*) AS n {FROM.replace('B.k = C.k', 'B.v = C.v')} GROUP BY A.v"
OLD, NEW = "((A B) C)", "(A (B C))"
STRATEGIES = (
    "auto",
    "moving_state",
    "moving_state_paced",
    "parallel_track",
    "genmig",
    "genmig_reference_point",
    "genmig_shortened",
)
BATCHES = 9


def parts(batches: int = BATCHES) -> dict[str, list[pa.Table]]:
    return {name: [drawn(ord(name) + i, i * 20, 12, 20) for i in range(batches)] for name in "ABC"}


def opened(folder: Path, cql: str = COUNT, **options: Any) -> Any:
    made = ms.Session(checkpoint=str(folder), on="local", slots=2, **options)
    for name in "ABC":
        made.stream(name, SCHEMA)
    made.query("q", cql, plan=OLD)
    made.start()
    return made


def expected(cql: str, rows: dict[str, list[pa.Table]]) -> pa.Table:
    return ms.reference(cql, {name: pa.concat_tables(rows[name]) for name in "ABC"})


def run(folder: Path, cql: str, strategy: str, restart: bool, verify: int = 40) -> tuple[pa.Table, Any, Any]:
    rows, given = parts(), []
    session = opened(folder, cql)
    for i in range(BATCHES):
        if restart and i:
            session.stop()
            session = opened(folder, cql)
        session.sink("q", lambda frame, batch: given.append((batch, frame))) if restart or i == 0 else None
        if i == 3:
            session.queries["q"].migrate(NEW, strategy, verify=verify)
            assert session.queries["q"].migrating == NEW
            assert session.queries["q"].history[-1].status == "verifying"
        session.push({name: rows[name][i] for name in "ABC"})
    session.finish()
    query = session.queries["q"]
    assert list(session.queries) == ["q"]
    assert ms.snapshot_equal(query.table(), expected(cql, rows))
    delivered = pa.concat_tables([frame for _, frame in sorted(given, key=lambda pair: pair[0])])
    assert delivered.num_rows == query.table().num_rows
    return query.table(), query.history[-1].record, session


RIGHT = [
    *((JOIN, strategy, False) for strategy in STRATEGIES),
    *((COUNT, strategy, True) for strategy in ("moving_state_paced", "genmig", "genmig_shortened")),
    *((BY_VALUE, strategy, True) for strategy in ("moving_state", "genmig")),
]


@pytest.mark.parametrize(("cql", "strategy", "restart"), always(4, RIGHT[::2] + RIGHT[1::2]))
def test_a_right_plan_takes_over(tmp_path: Path, cql: str, strategy: str, restart: bool) -> None:
    _, record, session = run(tmp_path, cql, strategy, restart, 20)
    assert record["status"] == "done" and record["verified"]["difference"] is None
    assert record["verified"]["compared_to"] >= record["verified"]["since"] + 20
    assert session.queries["q"].plan.text == NEW
    session.stop()
    stored = ms.open(tmp_path)
    assert list(stored.queries) == ["q"] and stored.queries["q"].plan == NEW
    assert not check(stored.store.files, stored.manifest)


def wrong(node: Relation) -> Relation:
    match node:
        case Distinct(inner):
            return inner
    return node


@pytest.fixture
def wrongly_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan (A (B C)) forgets DISTINCT."""
    right = RunningQuery.of

    def of(name: str, cql: str, plan: Plan, *rest: Any, **options: Any) -> RunningQuery:
        changed = replace(plan, logical=rewrite_plan(plan.logical, wrong)) if plan.text == NEW else plan
        return right(name, cql, changed, *rest, **options)

    monkeypatch.setattr(RunningQuery, "of", staticmethod(of))


WRONG = ("auto", "moving_state", "moving_state_paced", "genmig", "genmig_shortened")


@pytest.mark.parametrize("strategy", always(3, WRONG))
def test_a_wrong_plan_never_takes_over(tmp_path: Path, strategy: str, wrongly_rewritten: None) -> None:
    table, record, session = run(tmp_path, DISTINCT, strategy, restart=strategy == "genmig")
    assert record["status"] == "differs" and session.queries["q"].plan.text == OLD
    found = record["verified"]
    assert found["since"] <= found["instant"] and found["only_in_new"] and not found["only_in_old"]
    assert "snapshots differ first at" in found["difference"]
    session.stop()
    stored = ms.open(tmp_path)
    archive = record["new_results"]
    assert stored.queries[archive].status == "replaced"
    since = [row["valid_from"] >= found["since"] for row in table.to_pylist()]
    difference = ms.snapshot_equal(table.filter(pa.array(since)), stored.results(archive))
    assert difference.instant == found["instant"]
    assert stored.queries["q"].history[-1].verified == found
    assert not check(stored.store.files, stored.manifest)


def test_a_verification_can_be_cancelled_and_the_query_dropped(tmp_path: Path) -> None:
    rows = parts()
    with opened(tmp_path) as session:
        for i in range(6):
            if i in (2, 4):
                session.queries["q"].migrate(NEW, "genmig", verify=1000)
            session.push({name: rows[name][i] for name in "ABC"})
            if i == 3:
                with pytest.raises(ms.MigrationError, match="being verified"):
                    session.queries["q"].migrate(NEW)
                session.queries["q"].cancel_migration()
        assert [r.status for r in session.queries["q"].history] == ["cancelled", "verifying"]
        with pytest.raises(ms.QueryError, match="there is no query q~verify"):
            session.drop("q~verify")
        for command in ({"command": "drop"}, {"command": "cancel"}, {"command": "adapt", "mode": "auto"}):
            with pytest.raises(ms.InputError, match="'q~verify' cannot name a query"):
                Listener(session).answer({**command, "query": "q~verify"})
        session.drop("q")
        session.push({name: rows[name][6] for name in "ABC"})
        assert not session.job.queries


def test_another_verification_can_begin_where_one_was_cancelled(tmp_path: Path) -> None:
    rows = parts()
    with opened(tmp_path, BY_VALUE) as session:
        for i in range(BATCHES):
            if i == 2:
                session.queries["q"].migrate("((A C) B)", "genmig", verify=1000)
            if i == 3:
                session.queries["q"].cancel_migration()
                session.queries["q"].migrate(NEW, "genmig", verify=20)
            session.push({name: rows[name][i] for name in "ABC"})
        session.finish()
        assert [r.status for r in session.queries["q"].history] == ["cancelled", "done"]
        assert session.queries["q"].plan.text == NEW
        assert ms.snapshot_equal(session.queries["q"].table(), expected(BY_VALUE, rows))


def test_plans_that_give_out_differently_are_verified_and_then_migrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midstream.job.migrations.verifying.can_be_adopted", lambda *_: False)
    rows = parts()
    for i in range(BATCHES):
        with opened(tmp_path) as session:
            if i == 2:
                session.queries["q"].migrate(NEW, "moving_state", verify=20)
            session.push({name: rows[name][i] for name in "ABC"})
            if i == BATCHES - 1:
                session.finish()
                query = session.queries["q"]
                assert query.plan.text == NEW and len(query.history) == 1
                assert query.history[0].record["verified"]["difference"] is None
                assert ms.snapshot_equal(query.table(), expected(COUNT, rows))
                assert list(session.job.queries) == ["q"]


def test_status_and_the_checkpoint_tell_of_a_verification(tmp_path: Path) -> None:
    from midstream.checkpoint.status import job_at, status_record
    from midstream.cluster.listener import status

    rows = parts()
    with opened(tmp_path) as session:
        for i in range(4):
            if i == 2:
                session.queries["q"].migrate(NEW, "genmig", verify=1000)
            session.push({name: rows[name][i] for name in "ABC"})
        told = status(session)["queries"]
        assert list(told) == ["q"] and told["q"]["verifying"] == NEW
        stored = ms.open(tmp_path)
        assert list(stored.queries) == ["q"]
        under_way = stored.queries["q"].migration
        assert under_way is not None and (under_way.status, under_way.new_plan) == ("verifying", NEW)
        at_rest = status_record(job_at(stored.store.uri))["queries"]
        assert list(at_rest) == ["q"] and at_rest["q"]["verifying"] == NEW


def test_a_verification_may_begin_right_before_a_batch(tmp_path: Path) -> None:
    rows = parts()
    with opened(tmp_path) as session:
        session.before_batch(lambda batch: session.queries["q"].migrate(NEW, verify=20) if batch == 3 else None)
        for i in range(BATCHES):
            session.push({name: rows[name][i] for name in "ABC"})
        assert [r.status for r in session.queries["q"].history] == ["done"]
        assert session.queries["q"].plan.text == NEW


def test_queries_that_share_come_go_and_move_while_one_is_verified(tmp_path: Path) -> None:
    rows = parts()
    with opened(tmp_path, JOIN) as session:
        session.query("twin", JOIN, plan=OLD)
        for i in range(BATCHES):
            if i == 2:
                session.queries["q"].migrate(NEW, "genmig", verify=40)
            if i == 3:
                session.rescale(3)
                session.query("late", JOIN, plan=OLD)
            if i == 5:
                session.queries["twin"].migrate(NEW, "moving_state")
            session.push({name: rows[name][i] for name in "ABC"})
        session.finish()
        want = expected(JOIN, rows)
        for name in ("q", "twin"):
            assert ms.snapshot_equal(session.queries[name].table(), want), name
        assert session.queries["q"].plan.text == NEW
        assert [r.status for r in session.queries["q"].history] == ["done"]
        assert set(session.job.queries) == {"q", "twin", "late"}


def test_a_request_from_elsewhere_may_ask_for_a_verification(tmp_path: Path) -> None:
    from midstream.checkpoint.commands import command_in
    from midstream.cluster.listener import Listener

    rows = parts()
    with opened(tmp_path) as session:
        session.push({name: rows[name][0] for name in "ABC"})
        asked = {"command": "migrate", "query": "q", "plan": NEW, "strategy": "genmig", "verify": "25"}
        request = command_in(asked).to_record()
        assert request["verify"] == 25 and command_in({**asked, "verify": None}).to_record()["verify"] is None
        with pytest.raises(ms.InputError, match="verify must be a duration"):
            command_in({**asked, "verify": 1.5})
        assert Listener(session).answer(request) == {"query": "q", "from": OLD, "to": NEW}
        session.push({name: rows[name][1] for name in "ABC"})
        assert session.queries["q"].history[-1].status == "verifying"
        with pytest.raises(ms.MigrationError, match="being verified with another plan"):
            session.queries["q"].migrate(NEW, slots=[0], verify=5)


@pytest.mark.parametrize("begun", [3, BATCHES - 1])
def test_the_end_of_all_streams_ends_a_verification(tmp_path: Path, begun: int) -> None:
    rows = parts()
    with opened(tmp_path) as session:
        for i in range(BATCHES):
            if i == begun:
                session.queries["q"].migrate(NEW, "genmig", verify=10_000)
            session.push({name: rows[name][i] for name in "ABC"})
        session.finish()
        query = session.queries["q"]
        assert [r.status for r in query.history] == ["done" if query.plan.text == NEW else "ended"]
        assert list(session.job.queries) == ["q"] and session.job.queries["q"].migration is None
        assert ms.snapshot_equal(query.table(), expected(COUNT, rows))
