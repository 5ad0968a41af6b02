"""Streams and results as Spark's DataFrames."""
