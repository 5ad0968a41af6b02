"""The constants of the cost model, measured on the machine at hand.

A probe that finds nothing, an insert, and a match are timed on the operators that will do them; a probe is the unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from midstream.algebra.windows import Hop
from midstream.operators.aggregate import AggregateSpec, GroupAggregate
from midstream.operators.elements import Elements
from midstream.operators.join import SymmetricJoin, prepare
from midstream.operators.state.sorted_state import SortedState
from midstream.optimizer.cost import Constants

ROWS = 4096
BATCHES = 12
SPAN = 1_000_000
"""How long rows are valid: nothing expires while it is measured."""

FEW_KEYS, MANY_KEYS = 2048, 1 << 40

LIMITS = (0.02, 20.0)
"""A constant outside of these is a hiccup of the machine, not a measurement."""


def calibrate(clock: Callable[[], float], constants: Constants | None = None) -> Constants:
    """Constants as measured with a clock; those that are not about time stay as they are."""
    insert = _inserting(clock)
    apart = _joining(clock, MANY_KEYS)
    probe = max(apart - insert, 1e-9)
    partners = BATCHES * ROWS / 2 / FEW_KEYS
    match = max(_joining(clock, FEW_KEYS) - apart, 0.0) / partners
    evaluate = _evaluating(clock)
    measured = {"insert": insert / probe, "match": match / probe, "evaluate": evaluate / probe}
    return replace(constants or Constants(), probe=1.0, **{name: _sane(value) for name, value in measured.items()})


def _sane(value: float) -> float:
    return min(max(value, LIMITS[0]), LIMITS[1])


def _batches(keys: int, side: str) -> list[Elements]:
    rng = np.random.default_rng(1)
    found = []
    for number in range(BATCHES):
        starts = np.arange(ROWS, dtype=np.int64) + number * ROWS
        columns = pa.RecordBatch.from_arrays([pa.array(rng.integers(0, keys, ROWS))], [f"{side}.k"])
        found.append(Elements(columns, starts, starts + SPAN))
    return found


def _state(side: str) -> SortedState:
    return SortedState(side, (f"{side}.k",), pa.schema([(f"{side}.k", pa.int64())]), SPAN)


def _inserting(clock: Callable[[], float]) -> float:
    """Seconds to store a row."""
    state, batches = _state("A"), [prepare(b, ("A.k",), False) for b in _batches(MANY_KEYS, "A")]
    start = clock()
    for batch, hashes in batches:
        state.append(batch, hashes)
        state.compact(0, len(batch))
    return (clock() - start) / (BATCHES * ROWS)


def _joining(clock: Callable[[], float], keys: int) -> float:
    """Seconds to join a row, with as many partners as so many keys give."""
    schema = pa.schema([("A.k", pa.int64()), ("B.k", pa.int64())])
    join = SymmetricJoin(schema, _state("A"), _state("B"))
    both = list(zip(_batches(keys, "A"), _batches(keys, "B"), strict=True))
    start = clock()
    for left, right in both:
        join.process(0, left)
        join.process(1, right)
    return (clock() - start) / (2 * BATCHES * ROWS)


def _evaluating(clock: Callable[[], float]) -> float:
    """Seconds to look at a row in a slice of an aggregation."""
    schema = pa.schema([("A.k", pa.int64()), ("n", pa.int64())])
    operator = GroupAggregate(schema, _state("A"), ["A.k"], [AggregateSpec("count", (), pa.int64())], Hop(ROWS, ROWS))
    operator.process(0, _batches(1000, "A")[0])
    start = clock()
    operator.advance(ROWS)
    return (clock() - start) / ROWS
