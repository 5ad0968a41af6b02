"""Spark's own operators on the same data, for benchmarks to compare with."""
