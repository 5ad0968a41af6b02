"""Windows that a migration brings to other sites pay for the links between."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.adaptation.migration_cost import moving_seconds, window_places
from midstream.algebra.declarations import Catalog
from midstream.algebra.statistics import Estimate, Statistics, StreamStatistics
from midstream.inputs import declare
from midstream.language import parse
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import plan_query
from midstream.optimizer.sites.links import Link
from midstream.optimizer.sites.topology import topology_of

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, C.v AS c FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.v = C.v"
HOMES = {"A": "eu", "B": "us", "C": "eu"}
STREAMS = {name: replace(declare(name, SCHEMA, "ts", 0), site=site) for name, site in HOMES.items()}
QUERY = parse(CHAIN, Catalog(STREAMS, {}))
TREE, AT_HOME = "((A B) C)", "A -> B -> C, B -> A -> C, C -> B -> A"
B_EVERYWHERE = "A <- B -> C, B -> A -> C, C <- B -> A"


def plan(text: str):
    return plan_query(QUERY, text).logical


def seconds(old: str, new: str) -> float:
    """With a hundred rows of 34 bytes in each window, two of three slots at eu, and a slow link from us."""
    links = {("us", "eu"): Link(2.0, 50.0), ("eu", "us"): Link(0.0, 1e9)}
    rates = {name: StreamStatistics(Estimate(10.0, 0.0), width=18.0) for name in "ABC"}
    topology = topology_of({"eu": [0, 1], "us": [2]}, 3, links)
    return moving_seconds(plan(old), plan(new), Estimator(Statistics(rates), spread=True, topology=topology))


def test_windows_are_where_the_plan_keeps_them():
    found = {next(iter(name)): set(places) for name, places in window_places(plan(B_EVERYWHERE)).items()}
    assert found == {"A": {"eu"}, "B": {frozenset({"eu"})}, "C": {"eu"}}
    assert {place for places in window_places(plan(TREE)).values() for place in places} == {None}


def test_a_window_that_is_copied_takes_the_link_for_each_slot_that_probes_it():
    assert seconds(AT_HOME, B_EVERYWHERE) == pytest.approx(2.0 + 2 * 100 * 34 / 50)


def test_what_is_there_already_takes_nothing():
    assert seconds(AT_HOME, AT_HOME) == 0.0
    assert seconds(B_EVERYWHERE, B_EVERYWHERE) == 0.0


def test_windows_by_key_in_all_slots_go_home():
    """A third of the windows of A and C comes from us."""
    assert seconds(TREE, AT_HOME) == pytest.approx(2.0 + 2 * 100 / 3 * 34 / 50, rel=1e-3)
