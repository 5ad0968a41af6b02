"""Random streams and random queries over them, for every test that compares two ways of computing the same.

They are drawn by `midstream.lab.fuzz`. `cases(constructs)` is a hypothesis strategy of shrinkable cases,
`random_case(seed, constructs)` the fast way for long runs. A failing case prints itself as a program that runs it again
(`case.replay()`).
"""

from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from midstream.lab.fuzz.cases import Case, draw_case, random_case
from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.constructs import EVERYTHING, INNER_JOINS, INTERVAL_KEEPING, MONOTONE, RELATIONAL
from midstream.lab.fuzz.sources import Leaf, WindowChoice
from midstream.lab.fuzz.streams import ColumnSpec, StreamSpec, TimeSpec, draw_stream, draw_streams, draw_table

__all__ = [
    "EVERYTHING",
    "INNER_JOINS",
    "INTERVAL_KEEPING",
    "MONOTONE",
    "RELATIONAL",
    "Case",
    "Choices",
    "ColumnSpec",
    "Leaf",
    "StreamSpec",
    "TimeSpec",
    "WindowChoice",
    "cases",
    "draw_case",
    "draw_stream",
    "draw_streams",
    "draw_table",
    "random_case",
    "shrinkable",
]

_integers = lru_cache(st.integers)


def shrinkable(draw: st.DrawFn) -> Choices:
    """Decisions that hypothesis can shrink."""
    return Choices(lambda low, high: draw(_integers(low, high)))


def cases(constructs: frozenset[str] = EVERYTHING, **limits: Any) -> st.SearchStrategy[Case]:
    """Cases for hypothesis, which shrinks them; takes what `draw_case` takes."""

    @st.composite
    def strategy(draw: st.DrawFn) -> Case:
        return draw_case(shrinkable(draw), constructs, **limits)

    return strategy()
