"""The benchmarks by name: adding one is one line here."""

from __future__ import annotations

from collections.abc import Callable

from midstream.interface.bench.figures import Report
from midstream.interface.bench.operators import bench_operators

BENCHES: dict[str, Callable[[], Report]] = {"operators": bench_operators}
