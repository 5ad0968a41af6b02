"""The algebra: what a continuous query means, as values.

Schemas, time, expressions, logical and physical plans, statistics, and the oracle that evaluates a plan snapshot by
snapshot. Nothing here runs fast; everything here is true.
"""
