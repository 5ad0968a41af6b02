"""Forecasts of requests, in words."""

from __future__ import annotations

from typing import Any

from midstream.algebra.quantities import amount, length, plural, size
from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME


def rebalance_forecast(record: dict[str, Any]) -> str:
    """What dealing groups evenly would move, and which groups slots would share."""
    lines = []
    if record["groups"]:
        moved = f"{record['groups']} partition groups would move by {record['protocol']}"
        lines.append(f"{moved}, with about {size(record['state_bytes'])} of state")
    lines += [f"  {count} of them by {name}" for name, count in record.get("classes", {}).items()]
    for group in record["spread"]:
        by = f" by {group['by']}" if group.get("by") else ""
        lines.append(f"group {group['group']}{by} would be shared by {group['slots']} slots: {group['reason']}")
    for home in record["brought_home"]:
        named = f"{home[1]} by {home[0]}" if isinstance(home, list | tuple) else home
        lines.append(f"group {named} would come home to one slot")
    return "\n".join(lines) or "the load is balanced already"


def migration_forecast(record: dict[str, Any]) -> str:
    """What each strategy is predicted to take from one plan to another; the one that `auto` would choose is marked."""
    domain = TIMESTAMP_TIME if record["time"] == "timestamp" else INTEGER_TIME
    if record["from"] == record["to"]:
        return f"query {record['query']} runs by {record['to']} already: nothing would migrate"
    whole = f"{record['from']} to {record['to']}"
    part = f"; only {record['part']} migrates" if record["part"] not in (None, "", whole) else ""
    lines = [f"query {record['query']} would go over from {record['from']} to {record['to']}{part}"]
    lines.append(f"  {'strategy':24}{'takes':>14}{'rows of work':>14}{'rows held':>14}{'silent for':>14}")
    for each in record["strategies"]:
        mark = "*" if each["strategy"] == record["strategy"] else " "
        if each["legal"]:
            takes, silent = (length(each[name], domain) for name in ("duration", "silence"))
            lines.append(
                f"{mark} {each['strategy']:24}{takes:>14}{each['work']:14,.0f}{each['rows']:14,.0f}{silent:>14}"
            )
        else:
            lines.append(f"  {each['strategy']:24}refused: {each['why']}")
    lines.append("  takes and silent for are in stream time; work and rows held are beside what the query does anyway")
    return "\n".join([*lines, *_trust(record)])


def _trust(record: dict[str, Any]) -> list[str]:
    """What the figures rest on."""
    measured = {each["strategy"]: each["measured"] for each in record["strategies"] if each.get("measured")}
    named = ", ".join(f"{name} ({plural(count, 'migration')})" for name, count in measured.items())
    unwatched = "" if record["observed"] else ", and nobody watches how often keys meet (the query is not adaptive)"
    lines = [f"  corrected by what migrations of this job took: {named}"] if measured else []
    if any(each["legal"] and not each.get("measured") for each in record["strategies"]):
        others = "the other figures are" if measured else "these figures are"
        lines.append(
            f"  {others} a model's, not measured in this job yet{unwatched}: they may be off by ten times or more"
        )
    return lines


def links_text(record: dict[str, Any]) -> str:
    """The links between sites; in a forecast also what would change, and the plans that would be the best then."""
    lines = [f"link {ends}: {link}" for ends, link in record["links"].items()] or ["there are no links between sites"]
    for name, query in record.get("queries", {}).items():
        if query["best"] == query["plan"]:
            lines.append(f"query {name}: {query['plan']} would still be the best plan")
        else:
            costs = f"{amount(query['cost'])} against {amount(query['best_cost'])}"
            lines.append(f"query {name}: {query['best']} would be better than {query['plan']} ({costs} per tick)")
    return "\n".join(lines)
