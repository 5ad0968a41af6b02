"""Operators: plans brought to life, columns in and columns out.

An operator takes batches of elements on its ports, keeps what it may still need in sorted state, and gives back the
elements that follow. It knows nothing of threads, clocks or Spark.
"""
