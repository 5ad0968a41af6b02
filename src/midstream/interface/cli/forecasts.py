"""Forecasts of requests, in words."""

from __future__ import annotations

from typing import Any

from midstream.algebra.quantities import length
from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME


def migration_forecast(told: dict[str, Any]) -> str:
    """What each strategy is predicted to take from one plan to another; the one that `auto` would choose is marked."""
    domain = TIMESTAMP_TIME if told["time"] == "timestamp" else INTEGER_TIME
    whole = f"{told['from']} to {told['to']}"
    part = f"; only {told['part']} migrates" if told["part"] not in (None, "", whole) else ""
    lines = [f"query {told['query']} would go over from {told['from']} to {told['to']}{part}"]
    lines.append(f"  {'strategy':24}{'takes':>14}{'rows of work':>14}{'rows held':>14}{'silent for':>14}")
    for each in told["strategies"]:
        mark = "*" if each["strategy"] == told["strategy"] else " "
        if each["legal"]:
            takes, silent = (length(each[name], domain) for name in ("duration", "silence"))
            lines.append(
                f"{mark} {each['strategy']:24}{takes:>14}{each['work']:14,.0f}{each['rows']:14,.0f}{silent:>14}"
            )
        else:
            lines.append(f"  {each['strategy']:24}refused: {each['why']}")
    if not told["observed"]:
        lines.append("  the query is not adaptive: its streams are not watched, so figures are rough")
    return "\n".join(lines)
