"""The experiments by name: adding one is a file and one line here.

Experiments are found by module and function, so that naming them all costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from midstream.errors import JobError
from midstream.lab.experiments.report import Report
from midstream.lab.experiments.stability import SEED, Axes, defaults, judged, parsed, run_trials, trials

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

MAPS: dict[str, str] = {
    "dcape-throughput": "dcape_throughput:MAP",
    "dcape-window-rate": "dcape_window_rate:MAP",
    "dcape-falling": "dcape_falling:MAP",
}
"""Where the settings are that an experiment is repeated in: `module:name` of the values of its arguments."""

MAP_ON_JOBS = "dcape_on_jobs:MAP"

SIMULATED, PLACES = "simulated", ("local", "spark")


def run_experiment(name: str, on: str = SIMULATED, settings: Sequence[str] = (), seed: int | None = None) -> Report:
    """One run of an experiment, by name; on a job in this process or on Spark, if it can be."""
    function = _function(name, on)
    return function(**_arguments(function, settings, seed))


def repeat_experiment(
    name: str,
    seeds: int,
    on: str = SIMULATED,
    settings: Sequence[str] = (),
    seed: int | None = None,
    processes: int = 1,
) -> Report:
    """Runs an experiment with several seeds, in every setting of its map too; each verdict says how stable it is."""
    function = _function(name, on)
    arguments = _arguments(function, settings, seed)
    axes = {axis: values for axis, values in _axes(name, on).items() if axis not in arguments}
    chosen = trials(function, arguments, seeds, axes)
    return judged(chosen, run_trials(chosen, processes))


def _function(name: str, on: str) -> Callable[..., Report]:
    if name not in EXPERIMENTS:
        raise JobError(f"there is no experiment {name!r}", hint=f"use all, or one of {', '.join(EXPERIMENTS)}")
    if on not in (SIMULATED, *PLACES):
        raise JobError(f"experiments do not run on {on!r}", hint=f"use one of {', '.join((SIMULATED, *PLACES))}")
    if on != SIMULATED and name not in ON_JOBS:
        raise JobError(f"{name} is not run on jobs", hint=f"those that are: {', '.join(ON_JOBS)}")
    return _found(EXPERIMENTS[name]) if on == SIMULATED else partial(_found(ON_JOBS[name]), on)


def _arguments(function: Callable[..., Report], settings: Sequence[str], seed: int | None) -> dict[str, Any]:
    """An experiment without a `seed` is the same with all of them."""
    seeded = {SEED: seed} if seed is not None and SEED in defaults(function) else {}
    return {**parsed(function, settings), **seeded}


def _axes(name: str, on: str = SIMULATED) -> Axes:
    place = MAPS.get(name) if on == SIMULATED else MAP_ON_JOBS
    return _found(place) if place else {}


def _found(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(f"midstream.lab.experiments.{module}"), name)
