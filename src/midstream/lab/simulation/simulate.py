"""A simulated job, run and judged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from midstream.lab.simulation.judge import judge
from midstream.lab.simulation.run import SimulatedRun
from midstream.lab.simulation.world import Troubles


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that troubles bring about."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(seed: int, troubles: Troubles | None = None) -> SimulatedRun:
    """Runs and judges a seed; raises a `SimulationFailure` that says what was wrong."""
    with quiet():
        run = SimulatedRun(seed, troubles)
        try:
            run.run()
            judge(run)
        finally:
            run.sources.remove()
    return run
