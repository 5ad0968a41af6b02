"""Benchmarks, the papers' experiments and yardsticks; only the command line imports it."""
