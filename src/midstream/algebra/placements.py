"""Where a one-way join takes place: the partial results travel to the window, or the window is where they are."""

from __future__ import annotations

from enum import Enum


class Placement(Enum):
    """Where a one-way join takes place; the values are the paper's."""

    SOURCE = 0
    DESTINATION = 1


ARROWS = {Placement.DESTINATION: "->", Placement.SOURCE: "<-"}
"""How plans are written: an arrow shows which way rows travel."""
