"""Chaos on real Spark: a job in a process of its own is struck again and again, and judged from outside by DuckDB."""
