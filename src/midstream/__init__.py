"""Midstream: continuous queries over streams, and a change of horses while they run."""

__version__ = "0.1.0"
