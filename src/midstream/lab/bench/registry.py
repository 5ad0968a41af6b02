"""The benchmarks by name: adding one is one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from midstream.lab.bench.adaptivity import bench_adaptivity
from midstream.lab.bench.adaptivity_spark import bench_adaptivity_on_spark
from midstream.lab.bench.chaos import bench_chaos
from midstream.lab.bench.figures import Report
from midstream.lab.bench.fuzz import bench_fuzz
from midstream.lab.bench.local import bench_local, bench_spark_floor
from midstream.lab.bench.multikey import PARTS as MULTIKEY_PARTS
from midstream.lab.bench.multikey import bench_multikey
from midstream.lab.bench.operators import bench_operators
from midstream.lab.bench.rescale import bench_rescale
from midstream.lab.bench.scheduling import bench_scheduling
from midstream.lab.bench.sharing import bench_sharing
from midstream.lab.bench.sharing_spark import bench_sharing_on_spark
from midstream.lab.bench.silent_stream import bench_silent_stream
from midstream.lab.bench.simulation import bench_simulation
from midstream.lab.bench.skew import bench_skew
from midstream.lab.bench.soak import bench_soak
from midstream.lab.bench.spark_join import PARTS, bench_spark_join

BENCHES: dict[str, Callable[..., Report]] = {
    "adaptivity": bench_adaptivity,
    "adaptivity-on-spark": bench_adaptivity_on_spark,
    "chaos": bench_chaos,
    "fuzz": bench_fuzz,
    "local": bench_local,
    "multikey": bench_multikey,
    "operators": bench_operators,
    "rescale": bench_rescale,
    "silent-stream": bench_silent_stream,
    "simulation": bench_simulation,
    "skew": bench_skew,
    "soak": bench_soak,
    "scheduling": bench_scheduling,
    "sharing": bench_sharing,
    "sharing-on-spark": bench_sharing_on_spark,
    "spark-floor": bench_spark_floor,
    "spark-join": bench_spark_join,
}

BENCH_PARTS: dict[str, Mapping[str, object]] = {"multikey": MULTIKEY_PARTS, "spark-join": PARTS}
"""The benchmarks that can be run in parts, and their parts: `only=` takes their names."""
