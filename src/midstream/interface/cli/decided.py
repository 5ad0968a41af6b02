"""What an adaptive query of a job has seen and decided, as its checkpoint tells it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError, QueryError


def decided(checkpoint: str, query: str) -> dict[str, Any]:
    """A query's plan, adaptivity, statistics and decisions as of the newest batch."""
    store = CheckpointStore(checkpoint)
    manifest = store.latest()
    if manifest is None:
        raise JobError(f"there is no finished batch at {store.uri}", hint="is this the job's checkpoint?")
    entry = manifest.queries.get(query)
    if entry is None:
        known = ", ".join(manifest.queries) or "none"
        raise QueryError(f"the job has no query {query}", detail=f"its queries are {known}")
    kept = manifest.counters.get("adaptive", {}).get(query, {})
    moving = manifest.migration.get(query)
    return {
        "query": query,
        "cql": entry.cql,
        "batch": manifest.batch_id,
        "time": entry.time,
        "plan": entry.plan,
        "migrating_to": None if moving is None else moving["plan"],
        "adaptivity": kept.get("mode", "off"),
        "why": _why(entry.plan, kept),
        "statistics": kept.get("observed", {}),
        "decisions": kept.get("decisions", []),
        "history": manifest.counters.get("history", {}).get(query, []),
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


def _why(plan: str, kept: dict[str, Any]) -> str:
    decisions = kept.get("decisions", [])
    if decisions:
        return str(decisions[-1]["reason"])
    if kept.get("mode", "off") == "off":
        return f"The query runs by {plan or 'its only plan'} and is not adaptive: nobody weighs other plans."
    return f"The query runs by {plan or 'its only plan'}; nothing has been decided yet."
