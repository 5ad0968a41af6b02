"""Benchmarks: ratios taken in one run on the same data, so that they hold on any machine."""
