"""What an adaptive query of a job has seen and decided, as its checkpoint tells it."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any

from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stored import Knowledge


def decided(checkpoint: str, name: str) -> dict[str, Any]:
    """A query's plan, adaptivity, statistics and decisions as of the newest batch."""
    job = StoredJob.open(checkpoint)
    query = job.query(name)
    known = query.adaptivity
    decisions = [{key: value for key, value in asdict(d).items() if key != "query"} for d in known.decisions]
    return {
        "query": name,
        "cql": query.cql,
        "batch": job.batch,
        "time": query.time,
        "plan": query.plan,
        "migrating_to": None if query.migration is None else query.migration.new_plan,
        "adaptivity": known.mode,
        "why": _why(query.plan, known),
        "statistics": known.statistics,
        "decisions": decisions,
        "history": [asdict(past) for past in query.history],
    }


def decided_text(told: dict[str, Any]) -> str:
    """All of it, for people."""
    moving = f", migrating to {told['migrating_to']}" if told["migrating_to"] else ""
    lines = [f"query {told['query']}, batch {told['batch']}, adaptivity {told['adaptivity']}"]
    lines += [f"plan {told['plan'] or 'without joins'}{moving}", "", told["why"]]
    streams = told["statistics"].get("streams", {})
    if streams:
        lines += ["", "Streams", ""]
        per, unit = (1_000_000, "second") if told["time"] == "timestamp" else (1, "tick")
        lines += [
            f"{a}: {s['rate'] * per:.4g} a {unit}, window holds {s['population']:.4g}" for a, s in streams.items()
        ]
    selected = told["statistics"].get("selectivities", {})
    lines += [f"{text}: selectivity {s['value']:.2g}" for text, s in selected.items()]
    keys = told["statistics"].get("keys", {})
    lines += [f"{text}: {k['heavy_hitters']} heavy values have {k['skew']:.0%} of rows" for text, k in keys.items()]
    if told["statistics"].get("operators"):
        lines += ["", "Operators, per tick", ""]
        lines += [_operator(operator) for operator in told["statistics"]["operators"]]
    if told["decisions"]:
        lines += ["", "Decisions, newest first", ""]
        lines += [
            f"at {_moment(d['moment'], told['time'])}, {d['action']}: {d['reason']}"
            for d in reversed(told["decisions"])
        ]
    return "\n".join(lines)


def _moment(tick: int, time: str) -> str:
    """An instant as people read it.

    >>> _moment(90_000_000, "timestamp")
    '1970-01-01 00:01:30'
    """
    if time != "timestamp":
        return str(tick)
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=tick)).isoformat(sep=" ")


def _operator(told: dict[str, Any]) -> str:
    seconds = told["seconds_per_row"]
    took = "" if seconds is None else f", {seconds * 1e6:.2g} µs a row"
    return (
        f"{told['label']}: {told['taken']:.3g} in, {told['given']:.3g} out, keeps {told['state_rows']:,} rows in "
        f"{told['state_bytes']:,} bytes{took}"
    )


def _why(plan: str, known: Knowledge) -> str:
    if known.decisions:
        return known.decisions[-1].reason
    if known.mode == "off":
        return f"The query runs by {plan or 'its only plan'} and is not adaptive: adaptivity is off."
    return f"The query runs by {plan or 'its only plan'}; nothing has been decided yet."
