"""The Spark runtime: continuous queries on Structured Streaming, exactly once. The only place that imports pyspark.

Workers import the step alone; what drivers need loads when first used. Whoever imports anything of it where Spark is
missing or too old is told so here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from midstream.cluster.spark_version import require_spark

if TYPE_CHECKING:
    from midstream.cluster.spark.environment import spark_session
    from midstream.cluster.spark.finite import run_on_spark

__all__ = ["run_on_spark", "spark_session"]

_HOMES = {
    "run_on_spark": "midstream.cluster.spark.finite",
    "spark_session": "midstream.cluster.spark.environment",
}

require_spark()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
