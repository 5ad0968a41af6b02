"""What an adaptive query of a job has seen and decided, as its checkpoint tells it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from midstream.adaptation.cost_corrections import costs_text
from midstream.algebra.time import TimeDomain, amount, instant, rate, share, size
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stored import Knowledge


def decided(checkpoint: str, name: str) -> dict[str, Any]:
    """A query's plan, adaptivity, statistics and decisions as of the newest batch."""
    job = StoredJob.open(checkpoint)
    query = job.query(name)
    known = query.adaptivity
    decisions = [_without(asdict(d), "query", "record") for d in known.decisions]
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
        "costs": dict(job.manifest.settings.costs),
        "history": [_without(past.values(), "time") for past in query.history],
    }


def _without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


def decided_text(record: dict[str, Any]) -> str:
    """All of it, for people."""
    moving = f", migrating to {record['migrating_to']}" if record["migrating_to"] else ""
    lines = [f"query {record['query']}, batch {record['batch']}, adaptivity {record['adaptivity']}"]
    lines += [f"plan {record['plan'] or 'without joins'}{moving}", "", record["why"]]
    domain = TimeDomain.of_word(record["time"])
    streams = record["statistics"].get("streams", {})
    if streams:
        lines += ["", "Streams", ""]
        lines += [f"{a}: {rate(s['rate'], domain)}, window holds {amount(s['population'])}" for a, s in streams.items()]
    selected = record["statistics"].get("selectivities", {})
    lines += [f"{text}: selectivity {share(s['value'])}" for text, s in selected.items()]
    keys = record["statistics"].get("keys", {})
    lines += [f"{text}: {k['heavy_hitters']} heavy values have {k['skew']:.0%} of rows" for text, k in keys.items()]
    if record["statistics"].get("operators"):
        lines += ["", "Operators", ""]
        lines += [_operator(operator, domain) for operator in record["statistics"]["operators"]]
    if record["costs"]:
        lines += ["", costs_text(record["costs"])]
    if record["decisions"]:
        lines += ["", "Decisions, newest first", ""]
        lines += [
            f"at {instant(d['moment'], domain)}, {d['action']}: {d['reason']}" for d in reversed(record["decisions"])
        ]
    return "\n".join(lines)


def _operator(record: dict[str, Any], domain: TimeDomain) -> str:
    spent = record["seconds_per_row"]
    took = "" if spent is None else f", {amount(spent * 1e6)} µs a row"
    return (
        f"{record['label']}: {rate(record['taken'], domain)} in, {rate(record['given'], domain)} out, "
        f"keeps {record['state_rows']:,} rows in {size(record['state_bytes'])}{took}"
    )


def _why(plan: str, known: Knowledge) -> str:
    if known.decisions:
        return known.decisions[-1].reason
    if known.mode == "off":
        return f"The query runs by {plan or 'its only plan'} and is not adaptive: adaptivity is off."
    return f"The query runs by {plan or 'its only plan'}; nothing has been decided yet."
