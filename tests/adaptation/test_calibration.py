"""Constants come from whatever the clock says."""

from __future__ import annotations

from itertools import count

from midstream.adaptation.calibration import LIMITS, calibrate
from midstream.optimizer.cost import Constants


def test_a_probe_is_the_unit_and_nothing_is_absurd():
    ticks = count()
    constants = calibrate(lambda: float(next(ticks)), Constants(state=0.5))
    assert constants.probe == 1.0 and constants.state == 0.5
    assert all(LIMITS[0] <= value <= LIMITS[1] for value in (constants.insert, constants.match, constants.evaluate))
