"""Random streams and random queries over them, for every test that compares two ways of computing the same.

`cases(constructs)` is a hypothesis strategy of shrinkable cases, `random_case(seed, constructs)` the fast way for
long runs. A failing case prints itself as a program that runs it again (`case.replay()`).
"""

from tests.generators.cases import Case, cases, draw_case, random_case
from tests.generators.choices import Choices
from tests.generators.constructs import EVERYTHING, INNER_JOINS, INTERVAL_KEEPING, MONOTONE, RELATIONAL
from tests.generators.sources import Leaf, WindowChoice
from tests.generators.streams import ColumnSpec, StreamSpec, TimeSpec, draw_stream, draw_streams, draw_table

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
]
