"""Streams arrive by other keys once the plans at work need them so, and nothing is lost or doubled by it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.many import Many
from tests.profiles import always, mixed

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.distribution.fragments import STAY, Route
from midstream.inputs import catalog_of
from midstream.job.queries.running_query import Cutting, RunningQuery
from midstream.job.slots.rerouting import Rerouter, rerouting
from midstream.language import parse
from midstream.optimizer.plans import plan_query

WINDOWS = "A [RANGE 30], B [RANGE 30], C [RANGE 30]"
ON_TWO_KEYS = f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {WINDOWS} WHERE A.x = B.x AND B.y = C.y"
COUNTED = f"SELECT A.x, count(*) AS n FROM {WINDOWS} WHERE A.x = B.x AND B.y = C.y GROUP BY A.x"
FIRST, SECOND = "((A B) C)", "(A (B C))"


def inputs(seed: int = 3, rows: int = 150) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        columns = {name: random.integers(0, 12, rows) for name in ("x", "y", "v")}
        return pa.table({**columns, "ts": np.sort(random.integers(0, 160, rows))})

    return {name: table() for name in "ABC"}


CATALOG = catalog_of({name: table.schema for name, table in inputs().items()}, "ts")


def chain(folder, cql: str, **options) -> Chain:
    return Chain(parse(cql, CATALOG), CATALOG, folder, **{"slots": 3, "plan": FIRST, **options})


def query(plan: str, routes: dict[str, Route], settled: bool = True) -> RunningQuery:
    return RunningQuery.of("q", "", plan_query(parse(ON_TWO_KEYS, CATALOG), plan), {}, Cutting(routes, settled))


def test_routes_follow_the_plan():
    old = query(FIRST, {}, settled=False)
    assert old.staged.routes == {"A": Route(("x",)), "B": Route(("x",)), "C": STAY}
    assert rerouting({"q": old}, old.staged.routes) is None
    new = query(SECOND, old.staged.routes)
    found = rerouting({"q": new}, old.staged.routes)
    assert found is not None and len(found.queries["q"].staged.fragments) < len(new.staged.fragments)
    assert found.routes["B"] == found.routes["C"] == Route(("y",))
    assert "B arrives by y" in found.trigger


def test_nothing_is_looked_for_again_while_plans_and_routes_stay():
    new = query(SECOND, {"A": Route(("x",)), "B": Route(("x",)), "C": STAY})
    rerouter, routes = Rerouter(), dict(new.staged.routes)
    found = rerouter.better({"q": new}, routes, None)
    assert found is not None and rerouter.better({"q": new}, dict(routes), None) is found
    assert rerouter.better(dict(found.queries), dict(found.routes), None) is None


@pytest.mark.parametrize(("cql", "strategy"), always(2, mixed([ON_TWO_KEYS, COUNTED], ["genmig", "moving_state"])))
def test_a_migration_to_other_arrival_keys_changes_nothing_in_the_answer(cql, strategy, tmp_path):
    tables = inputs()
    ran = chain(tmp_path, cql)
    got = ran.run(tables, 40, {4: (SECOND, strategy)})
    assert ms.snapshot_equal(got, ms.reference(cql, tables, time="ts"))
    assert ran.driver.state.routes["B"] == Route(("y",)) == ran.query.staged.routes["B"]
    told = [move for move in ran.manifest.slots.moves if "arrives" in str(move)]
    assert len(told) == 1


@pytest.mark.parametrize("strategy", always(1, ["genmig", "moving_state"]))
def test_a_restart_after_every_batch_changes_nothing(strategy, tmp_path):
    tables = inputs(5)
    parts = chain(tmp_path, ON_TWO_KEYS).cut(tables, 40)
    for number, rows in enumerate(parts):
        ran = chain(tmp_path, ON_TWO_KEYS, seed=number)
        if number == 3:
            ran.migrate(SECOND, strategy)
        if number == len(parts) - 3 and ran.query.migration is None:
            ran.migrate(FIRST, strategy)
        ran.batch(rows)
    ran.batch({}, end=True)
    assert ms.snapshot_equal(ran.results(), ms.reference(ON_TWO_KEYS, tables, time="ts"))


def test_a_batch_that_fails_leaves_the_routes_as_they_were(tmp_path):
    tables = inputs(7)
    ran = chain(tmp_path, ON_TWO_KEYS)
    parts = ran.cut(tables, 60)
    ran.batch(parts[0])
    ran.migrate(SECOND, "moving_state")
    before = dict(ran.driver.state.routes)
    made = ran.made()  # and is never committed
    assert made.changes.recut and ran.driver.state.routes == before and ran.query.staged.routes == before
    for rows in parts[1:]:
        ran.batch(rows)
    ran.batch({}, end=True)
    assert ran.driver.state.routes != before
    assert ms.snapshot_equal(ran.results(), ms.reference(ON_TWO_KEYS, tables, time="ts"))


def test_other_queries_are_cut_another_way_along_with_the_one_that_migrated(tmp_path):
    tables = inputs(9)
    others = {
        "by_x": "SELECT x, count(*) AS n FROM B [RANGE 30] GROUP BY x",
        "sum": "SELECT y, sum(v) AS s FROM B [RANGE 30] GROUP BY y",
    }
    ran = Many(catalog=CATALOG, folder=tmp_path, slots=3)
    ran.add("join", ON_TWO_KEYS, wanted=FIRST)
    for name, cql in others.items():
        ran.add(name, cql)
    for number, rows in enumerate(ran.cut(tables, 40)):
        if number == 4:
            ran.migrate_query("join", SECOND, "genmig")
        ran.batch(rows)
    ran.batch({}, end=True)
    assert ran.driver.state.routes["B"] == Route(("y",))
    for name, cql in {"join": ON_TWO_KEYS, **others}.items():
        assert ms.snapshot_equal(ran.table(name), ms.reference(cql, tables, time="ts")), name


def test_a_new_query_gives_no_stream_a_route_by_which_a_running_one_would_be_cut_otherwise(tmp_path):
    """Its state would lie elsewhere than a restart looks for it."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
    own = "SELECT x.k, SUM(x.v) AS s FROM A [RANGE 45] AS x, A [RANGE 45] AS y WHERE x.v = y.k GROUP BY x.k"
    new = "SELECT k, v, COUNT(*) AS n FROM A [RANGE 30] GROUP BY k, v"
    random = np.random.default_rng(1)
    rows = [
        pa.table({"k": random.integers(0, 6, 20), "v": random.integers(0, 6, 20), "ts": np.arange(at, at + 20)}, schema)
        for at in range(0, 120, 20)
    ]

    def opened(slots: int | None, **queries: str) -> CheckpointSession:
        session = CheckpointSession(None, checkpoint=str(tmp_path), on="local", slots=slots)
        session.stream("A", schema)
        for name, cql in queries.items():
            session.query(name, cql, plan="(x y)" if name == "q" else None)
        return session.start()

    with opened(3, q=own) as session:
        session.push({"A": rows[0]})
    with opened(None, q=own) as session:
        session.push({"A": rows[1]})
        session.queries["q"].migrate("(x/grouped y/grouped)", strategy="moving_state_paced")
        session.push({"A": rows[2]})
        session.query("n", new)
        session.push({"A": rows[3]})
        before = session._job.queries["q"].staged.fragments
    with opened(None, q=own, n=new) as session:
        assert len(session._job.queries["q"].staged.fragments) == len(before)
        session.push({"A": rows[4]})
        session.push({"A": rows[5]})
        session.finish()
        assert ms.snapshot_equal(session.results("q"), ms.reference(own, {"A": pa.concat_tables(rows)}))
