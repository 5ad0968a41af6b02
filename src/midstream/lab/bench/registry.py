"""The benchmarks by name: adding one is one line here.

They are found by module and function, so that naming them all costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from midstream.lab.bench.figures import Report

BENCHES: dict[str, str] = {
    "adaptivity": "adaptivity:bench_adaptivity",
    "adaptivity-on-spark": "adaptivity_spark:bench_adaptivity_on_spark",
    "calibration": "calibration:bench_calibration",
    "chaos": "chaos:bench_chaos",
    "connectors": "connectors:bench_connectors",
    "evolution": "evolution:bench_evolution",
    "fuzz": "fuzz:bench_fuzz",
    "language": "language:bench_language",
    "local": "local:bench_local",
    "multikey": "multikey:bench_multikey",
    "operators": "operators:bench_operators",
    "rescale": "rescale:bench_rescale",
    "silent-stream": "silent_stream:bench_silent_stream",
    "simulation": "simulation:bench_simulation",
    "skew": "skew:bench_skew",
    "soak": "soak:bench_soak",
    "scheduling": "scheduling:bench_scheduling",
    "sharing": "sharing:bench_sharing",
    "sharing-on-spark": "sharing_spark:bench_sharing_on_spark",
    "spark-floor": "local:bench_spark_floor",
    "spark-join": "spark_join:bench_spark_join",
}
"""Where each benchmark is: `module:function`, the module in this package."""

IN_PARTS = ("calibration", "connectors", "multikey", "spark-join")
"""The benchmarks that can be run in parts; their modules name them in `PARTS`."""


def bench_named(name: str) -> Callable[..., Report]:
    """A benchmark of this package."""
    module, function = BENCHES[name].split(":")
    found: Callable[..., Report] = getattr(import_module(f"midstream.lab.bench.{module}"), function)
    return found


def parts_of(name: str) -> Mapping[str, object]:
    """The parts of a benchmark that can be run by themselves: `only=` takes their names."""
    if name not in IN_PARTS:
        return {}
    module = BENCHES[name].split(":")[0]
    parts: Mapping[str, object] = import_module(f"midstream.lab.bench.{module}").PARTS
    return parts
