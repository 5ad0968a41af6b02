"""Chaos on real processes: a job is struck again and again, and judged from outside by DuckDB."""
