"""Whole jobs on simulated machines under a seed, with everything going wrong that can, held against the oracle."""
