"""The experiments by name: adding one is a file and one line here.

Experiments are found by module and function, so that naming them all costs nothing.
"""

from __future__ import annotations

from importlib import import_module

from midstream.errors import JobError
from midstream.lab.experiments.report import Report

EXPERIMENTS: dict[str, str] = {
    "cape-length": "cape_length:cape_length",
    "cape-intermediate": "cape_intermediate:cape_intermediate",
    "genmig-example": "genmig_example:genmig_example",
    "genmig-rates": "genmig_rates:genmig_rates",
    "genmig-memory": "genmig_memory:genmig_memory",
    "genmig-total": "genmig_total:genmig_total",
    "mill-latency": "mill_latency:mill_latency",
    "mill-arcs": "mill_arcs:mill_arcs",
    "mill-burstiness": "mill_burstiness:mill_burstiness",
    "mill-registers": "mill_registers:mill_registers",
    "dcape-throughput": "dcape_throughput:dcape_throughput",
    "dcape-tuples": "dcape_throughput:dcape_tuples",
    "dcape-window-rate": "dcape_window_rate:dcape_window_rate",
    "dcape-length": "dcape_length:dcape_length",
    "dcape-falling": "dcape_falling:dcape_falling",
    "nos-adaptive": "nos_adaptive:nos_adaptive",
    "nos-overhead": "nos_overhead:nos_overhead",
    "nos-messages": "nos_messages:nos_messages",
    "nos-plans": "nos_plans:nos_plans",
}
"""Where each experiment is: `module:function`, the module in this package."""


ON_JOBS: dict[str, str] = {
    "dcape-throughput": "dcape_on_jobs:dcape_throughput_on_job",
    "dcape-tuples": "dcape_on_jobs:dcape_tuples_on_job",
}
"""Where those are that can also be run on a job; their functions take the place."""

SIMULATED, PLACES = "simulated", ("local", "spark")


def run_experiment(name: str, on: str = SIMULATED) -> Report:
    """Runs an experiment of this package, by name; on a job in this process or on Spark, if it can be."""
    if name not in EXPERIMENTS:
        raise JobError(f"there is no experiment {name!r}", hint=f"use all, or one of {', '.join(EXPERIMENTS)}")
    if on not in (SIMULATED, *PLACES):
        raise JobError(f"experiments do not run on {on!r}", hint=f"use one of {', '.join((SIMULATED, *PLACES))}")
    if on != SIMULATED and name not in ON_JOBS:
        raise JobError(f"{name} is not run on jobs", hint=f"those that are: {', '.join(ON_JOBS)}")
    module, function = (EXPERIMENTS if on == SIMULATED else ON_JOBS)[name].split(":")
    made = getattr(import_module(f"midstream.lab.experiments.{module}"), function)
    report: Report = made() if on == SIMULATED else made(on)
    return report
