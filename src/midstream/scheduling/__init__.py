"""Scheduling: in which order the operators of a box run."""
