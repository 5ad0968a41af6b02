"""`midstream bench simulation`: whole jobs on simulated machines, seed after seed, held against the oracle."""

from __future__ import annotations

import logging
import time

from midstream.lab.bench.figures import Report
from midstream.lab.simulation.run import SimulationFailure
from midstream.lab.simulation.simulate import simulate

log = logging.getLogger(__name__)


def bench_simulation(seeds: int = 100, seed: int = 0) -> Report:
    """How many of some seeds fail, from a first one on; each failing one can be run again by itself."""
    report = Report("simulation")
    failed: list[int] = []
    batches = drivers = requests = 0
    began = time.perf_counter()
    for number in range(seed, seed + seeds):
        try:
            run = simulate(number)
        except SimulationFailure as failure:
            failed.append(number)
            log.error("%s", failure)
            continue
        batches += len(run.seen)
        drivers += run.world.started
        requests += len(run.asked)
    report.add("seeds", float(seeds), "seeds")
    report.add("seeds that fail", float(len(failed)), "seeds", 0.0, "at most")
    report.add("batches", float(batches), "batches")
    report.add("driver processes", float(drivers), "processes")
    report.add("requests", float(requests), "requests")
    report.add("time of a seed", (time.perf_counter() - began) / max(seeds, 1), "s")
    return report
