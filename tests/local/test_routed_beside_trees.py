"""Routed joins beside other joins of one query and of others: in unions, behind shared exchanges, in place of trees."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.profiles import always

import midstream as ms

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("j", pa.int64()), ("small", pa.int16()), ("v", pa.int64())])
SLOTS = 4
BATCHES, ROWS = 8, 6


def rows(stream: str) -> pa.Table:
    random = Random(stream)
    return pa.Table.from_pylist(
        [{"ts": i, **{name: random.randrange(3) for name in SCHEMA.names[1:]}} for i in range(BATCHES * ROWS)],
        schema=SCHEMA,
    )


TABLES = {name: rows(name) for name in "ABCD"}

PAIR = "SELECT D.v AS v, C.k AS k FROM D [RANGE 5], C [RANGE 5] WHERE D.k = C.k"
THREE = "SELECT B.v AS v, C.k AS k FROM B [RANGE 5], A [RANGE 5], C [RANGE 5] WHERE B.k = A.k AND A.j = C.j"
CAST = "SELECT B.v AS v, C.k AS k FROM B [RANGE 5], A [RANGE 5], C [RANGE 5] WHERE B.k = A.small AND A.j = C.j"
COUNTED = (
    "SELECT g.n AS v, g.k AS k FROM"
    " (SELECT B.k AS k, count(*) AS n FROM B [RANGE 5], A [RANGE 5] WHERE B.j = A.j GROUP BY B.k) AS g"
)
OF_TWO_TYPES = "SELECT B.v AS v, A.k AS k FROM B [RANGE 5], A [RANGE 5] WHERE B.k = A.small"
ROUTED_PAIR = ("D -> C, C -> D", "D <- C, C <- D")
ROUTED_THREE = "B -> A -> C_2, A -> B -> C_2, C_2 -> A -> B"
UNIONS = [
    *((f"{PAIR} UNION ALL {THREE}", f"{ROUTED_THREE}; {pair}") for pair in ROUTED_PAIR),
    *((f"{PAIR} UNION ALL {CAST}", f"((B A) C_2); {pair}") for pair in ROUTED_PAIR),
    *((f"{PAIR} UNION ALL {COUNTED}", f"(B A); {pair}") for pair in ROUTED_PAIR),
    (f"{PAIR} UNION ALL {OF_TWO_TYPES}", "D -> C, C -> D; B -> A, A -> B"),
    (f"SELECT v, count(*) AS n FROM ({PAIR} UNION ALL {THREE}) AS u GROUP BY v", f"{ROUTED_THREE}; D -> C, C -> D"),
]


def opened(folder: Path, at_site: str = "", slots: int = SLOTS) -> ms.Session:
    sites = {"us": list(range(slots))} if at_site else None
    session = ms.Session(checkpoint=str(folder), on="local", slots=slots, sites=sites)
    for name in "ABCD":
        session.stream(name, SCHEMA, site="us" if name in at_site else None)
    return session


def push(session: ms.Session, batch: int) -> None:
    session.push({name: table.slice(batch * ROWS, ROWS) for name, table in TABLES.items()})


def require_right(session: ms.Session, **texts: str) -> None:
    session.finish()
    for name, text in texts.items():
        same = ms.snapshot_equal(session.queries[name].table(), ms.reference(text, TABLES))
        assert same, f"{name}: {same}"


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("text", "plan"), UNIONS)
def test_a_routed_join_is_united_with_what_comes_later(text, plan, slots, tmp_path):
    with opened(tmp_path, slots=slots) as session:
        session.query("q", text, plan=plan)
        session.start()
        for batch in range(BATCHES):
            push(session, batch)
        require_right(session, q=text)


REPLACING = [
    (f"{PAIR} UNION ALL {THREE}", f"{ROUTED_THREE}; D -> C, C -> D", "((B A) C_2); D -> C, C -> D"),
    (f"{PAIR} UNION ALL {THREE}", "((A C_2) B); D -> C, C -> D", "((B A) C_2); D -> C, C -> D"),
    (f"{PAIR} UNION ALL {THREE}", "((B A) C_2); D -> C, C -> D", f"{ROUTED_THREE}; (D C)"),
    (f"{PAIR} UNION ALL {OF_TWO_TYPES}", "D -> C, C -> D; B -> A, A -> B", "(D C); B <- A, A <- B"),
]


@pytest.mark.parametrize("strategy", ["genmig", "moving_state"])
@pytest.mark.parametrize(("text", "old", "new"), REPLACING)
def test_a_join_of_a_union_with_a_routed_one_changes(text, old, new, strategy, tmp_path):
    with opened(tmp_path) as session:
        query = session.query("q", text, plan=old)
        session.start()
        for batch in range(BATCHES):
            if batch == 2:
                query.migrate(new, strategy)
            push(session, batch)
        require_right(session, q=text)


BOTH = (
    "SELECT A.v AS v, C.k AS k FROM A [RANGE 30], C [RANGE 4] WHERE A.j = C.j"
    " INTERSECT SELECT B.v AS v, A.k AS k FROM B [RANGE 6], A [RANGE 30] WHERE B.k = A.k"
)


@pytest.mark.parametrize("strategy", ["genmig", "moving_state"])
@pytest.mark.parametrize("at", always(2, [2, 6, 3, 4, 5, 7]))
def test_a_query_that_goes_leaves_another_its_rows_where_they_were(at, strategy, tmp_path):
    """A tree and a routed join read a stream by one key, but it comes to their slots by different hashes."""
    with opened(tmp_path, at_site="BC") as session:
        going = session.query("going", BOTH, plan="(A C); B <- A_2, A_2 <- B")
        session.query("staying", BOTH, plan="A <- C, C -> A; (B A_2)")
        session.start()
        for batch in range(BATCHES):
            if batch == at:
                going.migrate("A <- C, C <- A; (B A_2)", strategy, part="whole")
            push(session, batch)
        require_right(session, going=BOTH, staying=BOTH)


def test_a_stream_arrives_by_a_column_that_a_query_does_not_read(tmp_path):
    other = "SELECT A.v AS a, B.v AS b FROM A [RANGE 5], B [RANGE 5] WHERE A.j = B.j"
    text = "SELECT D.v AS v, A.k AS k FROM D [RANGE 5], A [RANGE 5] WHERE D.k = A.small"
    with opened(tmp_path) as session:
        session.query("other", other, plan="(A B)")
        query = session.query("q", text, plan="D -> A, A -> D")
        session.start()
        for batch in range(BATCHES):
            if batch == 2:
                query.migrate("(D A)", "moving_state")
            push(session, batch)
        assert query.plan.text == "(D A)"
        require_right(session, q=text, other=other)
