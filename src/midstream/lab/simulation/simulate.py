"""A simulated job, run and judged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from midstream.lab.simulation.judge import judge
from midstream.lab.simulation.run import SimulatedRun
from midstream.lab.simulation.world import Troubles
from midstream.operators.state import sorted_state


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that troubles bring about."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def segments_of(seed: int) -> Iterator[None]:
    """With segments that are merged by ranges of hashes once they have a few rows, for two seeds of three."""
    before = sorted_state.MERGE_ROWS
    sorted_state.MERGE_ROWS = (before, 8, 0)[seed % 3]
    try:
        yield
    finally:
        sorted_state.MERGE_ROWS = before


def simulate(seed: int, troubles: Troubles | None = None) -> SimulatedRun:
    """Runs and judges a seed; raises a `SimulationFailure` that says what was wrong."""
    with quiet(), segments_of(seed):
        run = SimulatedRun(seed, troubles)
        try:
            run.run()
            judge(run)
        finally:
            run.sources.remove()
    return run
