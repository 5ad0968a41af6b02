"""Constants come from whatever the clock says."""

from __future__ import annotations

from itertools import count

import pyarrow as pa

from midstream.adaptation.calibration import LIMITS, calibrate
from midstream.adaptation.timings import Timings
from midstream.inputs import catalog_of
from midstream.job.sources import source_elements
from midstream.language import parse
from midstream.operators.box import Box, Output
from midstream.optimizer.cost import Constants
from midstream.optimizer.plans import plan_query
from midstream.scheduling.depth_first import DepthFirst


def test_a_probe_is_the_unit_and_nothing_is_absurd():
    ticks = count()
    constants = calibrate(lambda: float(next(ticks)), Constants(state=0.5))
    assert constants.probe == 1.0 and constants.state == 0.5
    assert all(LIMITS[0] <= value <= LIMITS[1] for value in (constants.insert, constants.match, constants.evaluate))


def test_operators_that_give_piece_by_piece_are_timed_too():
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    cql = "SELECT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
    box = Box(plan_query(parse(cql, catalog_of(dict.fromkeys("AB", schema), "ts"))).physical)
    ticking = iter(range(10_000))
    timings = Timings(lambda: float(next(ticking)))
    timings.attach(box)
    running = DepthFirst(box, Output())
    rows = pa.RecordBatch.from_pydict({"ts": [1, 2], "k": [1, 1]}, schema=schema)
    for source, wire in box.sources:
        running.feed(wire, source_elements(source, rows, rows.column("ts").to_numpy()))
    for operator in box.operators:
        assert timings.spent(operator).rows > 0
        assert timings.per_row(operator)
