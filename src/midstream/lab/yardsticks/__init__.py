"""Spark's own operators on the same data, for benchmarks to compare with."""

from midstream.cluster.spark_version import require_spark

require_spark()
