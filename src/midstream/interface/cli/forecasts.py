"""Forecasts of requests, in words."""

from __future__ import annotations

from typing import Any


def migration_forecast(told: dict[str, Any]) -> str:
    """What each strategy is predicted to take from one plan to another; the one that `auto` would choose is marked."""
    part = f"; only {told['part']} migrates" if told["part"] else ""
    lines = [f"query {told['query']} would go over from {told['from']} to {told['to']}{part}"]
    lines.append(f"  {'strategy':24}{'ticks':>14}{'rows of work':>14}{'rows held':>14}{'ticks silent':>14}")
    for each in told["strategies"]:
        mark = "*" if each["strategy"] == told["strategy"] else " "
        if each["legal"]:
            numbers = "".join(f"{each[name]:14,.0f}" for name in ("duration", "work", "rows", "silence"))
            lines.append(f"{mark} {each['strategy']:24}{numbers}")
        else:
            lines.append(f"  {each['strategy']:24}refused: {each['why']}")
    if not told["observed"]:
        lines.append("  the query is not adaptive: its streams are not watched, so figures are rough")
    return "\n".join(lines)
