"""What arrives decides whether a query that is added restarts Spark's stream."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.local.cluster import LocalCluster
from midstream.distribution.fragments import STAY, Route
from midstream.inputs import catalog_of
from midstream.job.commands.adding import Adding
from midstream.job.commands.arrival import Arrival, Carry
from midstream.job.commits import Commits
from midstream.job.events import QueryAdded
from midstream.job.job import Job
from midstream.job.state import JobState
from midstream.language import parse

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
CATALOG = catalog_of(dict.fromkeys("ABC", SCHEMA), "ts")
JOIN = "SELECT A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"


class Begun:
    """A session's arrival after its start with one query, without Spark."""

    def __init__(self, folder: Path, carry: Carry) -> None:
        store = CheckpointStore(str(folder))
        self.driver = Job(LocalCluster(store.files), Commits(store, 3), JobState(2))
        self.arrival = Arrival(self.driver, carry)
        self.inputs = list(CATALOG.streams.values())
        self.add("q", JOIN, streaming=False)
        self.arrival.begin(self.inputs)

    def add(self, name: str, cql: str, streaming: bool = True) -> bool:
        """Adds a query; whether it is served by what arrives."""
        routes_fixed = self.arrival.routes_fixed(streaming)
        query = Adding(self.driver, {}).query(name, cql, parse(cql, CATALOG), routes_fixed=routes_fixed)
        served = streaming and self.arrival.serves(query, self.inputs)
        self.driver.apply(QueryAdded(query))
        return served


@pytest.mark.parametrize(
    ("cql", "served"),
    [
        (JOIN, True),
        (f"{JOIN} AND A.v > 3", True),
        ("SELECT DISTINCT k FROM A [RANGE 9]", True),
        ("SELECT w FROM A [NOW]", False),
        ("SELECT v, count(*) AS n FROM A [RANGE 9] GROUP BY v", True),  # by another key: through an exchange
        ("SELECT k FROM C [NOW]", False),
        ("SELECT count(*) AS n FROM C [RANGE 9]", False),
    ],
)
def test_a_query_is_served_if_its_columns_arrive_where_it_needs_them(cql, served, tmp_path):
    assert Begun(tmp_path, "needed").add("new", cql) is served


@pytest.mark.parametrize(
    "cql",
    [
        "SELECT w FROM A [NOW]",
        "SELECT DISTINCT k FROM C [RANGE 9]",
        "SELECT count(*) AS n FROM C [RANGE 9]",
        "SELECT A.v FROM A [RANGE 9], C [RANGE 9] WHERE A.w = C.w",
    ],
)
def test_whoever_carries_all_serves_all(cql, tmp_path):
    begun = Begun(tmp_path, "all")
    before = dict(begun.driver.state.routes)
    assert begun.add("new", cql)
    assert begun.driver.state.routes == before == {"A": Route(("k",)), "B": Route(("k",)), "C": STAY}
