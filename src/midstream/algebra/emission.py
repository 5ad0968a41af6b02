"""When results may leave: a property of the query and its input, never of the plan that computes them.

A monotone query emits everything it knows. Any other emits what is final: all that lies below the last multiple of
`emit_every` that no register can fall behind, and cuts rows only at those multiples. So plans of one query can replace
each other at any batch boundary: what has been emitted does not depend on which of them did it.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.algebra.plan import Relation, Window, is_monotone, walk_plan
from midstream.algebra.time import LONGEST
from midstream.algebra.windows import Hop, Range, SessionGap
from midstream.errors import QueryError

PIECES_PER_WINDOW = 8
DEFAULT_TICKS = 100
DEFAULT_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Emission:
    """How a query emits: at once if monotone, else below grid points `offset + i * every` (a `Hop`'s boundaries)."""

    monotone: bool
    grid: Hop


def emission_of(plan: Relation, emit_every: int | None = None) -> Emission:
    """The emission rule of a query, from its windows."""
    return Emission(is_monotone(plan), _grid(plan, emit_every))


def _grid(plan: Relation, emit_every: int | None) -> Hop:
    if emit_every is not None:
        if not 0 < emit_every <= LONGEST:
            raise QueryError(f"emit_every must be positive and no longer than a window, not {emit_every}")
        return Hop(emit_every, emit_every)
    windows = [node.spec for node in walk_plan(plan) if isinstance(node, Window)]
    hops = [w.grid for w in windows if isinstance(w, Hop)]
    if hops:
        return min(hops, key=lambda h: h.longest_slide)
    sizes = [w.size for w in windows if isinstance(w, Range) and w.size > 0]
    sizes += [w.gap for w in windows if isinstance(w, SessionGap)]
    if sizes:
        every = max(1, min(sizes) // PIECES_PER_WINDOW)
    else:
        every = DEFAULT_TICKS if plan.domain.is_integer else DEFAULT_MICROSECONDS
    return Hop(every, every)
