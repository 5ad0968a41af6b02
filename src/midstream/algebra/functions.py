"""The functions of the language: their names and result types, nothing about how they compute.

`SCALAR` and `AGGREGATE` map a name to a rule that takes argument types and gives the casts to apply and the result
type, or refuses. Both evaluators (the oracle's and the engine's) must know every name listed here; a test holds them
to it.
"""
