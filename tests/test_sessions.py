"""A session is one thing with one name, wherever it runs, and tells what happened in the values of `ms.open`."""

import inspect
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.cluster.options import SessionOptions

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
JOIN = "SELECT A.k FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k"


def rows(start: int, end: int) -> list[dict[str, int]]:
    return [{"ts": ts, "k": ts % 3} for ts in range(start, end)]


def opened(tmp_path, kind: str) -> ms.Session:
    session: ms.Session = ms.Session() if kind == "memory" else ms.Session(checkpoint=tmp_path / "job", on="local")
    for name in "ABC":
        session.stream(name, SCHEMA)
    return session


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_every_kind_is_a_session_and_tells_its_history_as_a_stored_job_does(tmp_path, kind):
    with opened(tmp_path, kind) as session:
        assert isinstance(session, ms.Session) and repr(session).startswith("Session(")
        query = session.query("q", JOIN, plan="((A B) C)")
        session.start()
        session.push(dict.fromkeys("ABC", rows(0, 20)))
        query.migrate("(A (B C))", "moving_state")
        for start in (20, 40, 60):
            session.push(dict.fromkeys("ABC", rows(start, start + 20)))
        (done,) = [change for change in query.history if change.strategy]
        assert (done.old_plan, done.new_plan, done.status) == ("((A B) C)", "(A (B C))", "done")
        assert done.actual is not None
        assert session.history == query.history
        assert session.decisions == query.decisions == ()
        assert done.trigger == "asked for"
        if kind == "local":
            assert ms.open(tmp_path / "job").query("q").history == query.history
            told, stored = session.metrics(), ms.open(tmp_path / "job").metrics()
            assert told.schema == stored.schema and told.column("rows") == stored.column("rows")
    assert query.table().num_rows > 0 and query.to_pandas().shape[0] == query.to_polars().shape[0]
    assert pa.table(query).equals(query.table())


def test_what_only_a_checkpoint_makes_possible_is_refused_by_name():
    with pytest.raises(ms.JobError, match="a session in memory has no slots"):
        ms.Session().rescale(2)
    with pytest.raises(ms.InputError, match="needs a checkpoint"):
        ms.Session(object())


def test_help_tells_how_to_open_a_session_and_what_it_can_do():
    told = inspect.getdoc(ms.Session) or ""
    assert "Session(checkpoint=" in told and "Session()" in told
    public = [name for name in dir(ms.Session) if not name.startswith("_")]
    assert {"stream", "query", "push", "history", "rescale", "job"} <= set(public)
    assert all(inspect.getdoc(getattr(ms.Session, name)) for name in public)


def test_the_signature_has_every_option_and_each_comes_through():
    class Noted(ms.Session):
        def _prepare(self, options, spark, checkpoint, on):
            self.noted = options

    said: dict[str, Any] = {name: object() for name in (f.name for f in fields(SessionOptions))}
    said |= {"changed_functions": "accept", "metrics_retained": 5}
    assert list(inspect.signature(ms.Session).parameters) == ["spark", "checkpoint", "on", *said]
    assert vars(Noted(**said).noted) == said
    assert Noted().noted == SessionOptions()


def test_options_of_another_kind_of_session_are_refused_by_name(tmp_path):
    with pytest.raises(ms.InputError, match="a session in memory has no slots, rebalancing"):
        ms.Session(slots=2, rebalancing=True)
    with pytest.raises(ms.InputError, match="a session on a checkpoint has no clock"):
        ms.Session(checkpoint=tmp_path, on="local", clock=lambda: 1)
    session = opened(tmp_path, "memory")
    with pytest.raises(ms.JobError, match="in memory has no queries that adapt"):
        session.query("q", JOIN, adaptive="auto")
    with opened(tmp_path, "local") as session:
        with pytest.raises(ms.QueryError, match="keep is an option of queries in memory"):
            session.query("q", JOIN, keep=False)
        with pytest.raises(ms.InputError, match="on_demand is an option of streams in memory"):
            session.stream("D", SCHEMA, on_demand=False)


def test_scheduling_has_one_name_and_its_old_one_warns():
    inputs = {"A": rows(0, 9), "B": rows(0, 9), "C": rows(0, 9)}
    wanted = ms.run(JOIN, inputs, scheduling="bfs")
    assert ms.snapshot_equal(ms.run(JOIN, inputs, strategy="bfs"), wanted)
    with pytest.raises(ms.InputError, match="two names of one setting"):
        ms.run(JOIN, inputs, strategy="bfs", scheduling="dfs")


def test_a_warning_of_dead_letters_names_the_line_of_whoever_called(tmp_path):
    late = [{"ts": 9, "k": 1}, {"ts": None, "k": 2}]
    query = "SELECT k FROM A [NOW]"
    with pytest.warns(ms.DeadLetterWarning) as warned:
        ms.run(query, {"A": late})
        for kind in ("memory", "local"):
            with opened(tmp_path, kind) as session:
                session.query("q", query)
                session.start()
                session.push("A", late)
    assert [told.filename for told in warned] == [__file__] * 3
