"""Which cases run always, and which only in the longer profiles (`pytest -m slow`, `--hypothesis-profile long`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings


def mixed(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    """All pairs, begun with those in which each of the first has another of the second."""
    return [(one, second[(i + turn) % len(second)]) for turn in range(len(second)) for i, one in enumerate(first)]


def always(kept: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of which so many run always, and the others in the longer profile."""
    return [
        case if number < kept else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def examples(count: int) -> settings:
    """As many examples as fit into the default run; the long profile draws its own number."""
    chosen = settings.get_profile(settings.get_current_profile_name())
    return settings(
        max_examples=chosen.max_examples if chosen.max_examples > 100 else count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
