"""Which cases run always, and which in the longer profile only (`pytest -m slow`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def mixed(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    """All pairs, begun with those in which each of the first has another of the second."""
    return [(one, second[(i + turn) % len(second)]) for turn in range(len(second)) for i, one in enumerate(first)]


def always(kept: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of which so many run always, and the others in the longer profile."""
    return [
        case if number < kept else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
