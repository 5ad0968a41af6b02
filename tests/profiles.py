"""Which cases run always, and which in the longer profile only (`pytest -m slow`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def always(kept: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of which so many run always, and the others in the longer profile."""
    return [
        case if number < kept else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
