"""What an adaptive query of a job has seen and decided, as its checkpoint tells it."""

from __future__ import annotations

from typing import Any

from midstream.adaptation.cost_corrections import costs_text
from midstream.algebra.time import TimeDomain, amount, instant, rate, share, size
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.status import query_record
from midstream.checkpoint.stored import Knowledge


def decided(checkpoint: str, name: str) -> dict[str, Any]:
    """A query's plan, adaptivity, statistics and decisions as of the newest batch."""
    job = StoredJob.open(checkpoint)
    query = job.query(name)
    costs = dict(job.manifest.settings.costs)
    return {**query_record(job, query), "batch": job.batch, "why": _why(query.plan, query.adaptivity), "costs": costs}


def decided_text(record: dict[str, Any]) -> str:
    """All of it, for people."""
    known = record["adaptivity"]
    measured = known["statistics"]
    moving = f", migrating to {record['migrating_to']}" if record["migrating_to"] else ""
    lines = [f"query {record['name']}, batch {record['batch']}, adaptivity {known['mode']}"]
    lines += [f"plan {record['plan'] or 'without joins'}{moving}", "", record["why"]]
    domain = TimeDomain.of_word(record["time"])
    streams = measured.get("streams", {})
    if streams:
        lines += ["", "Streams", ""]
        lines += [f"{a}: {rate(s['rate'], domain)}, window holds {amount(s['population'])}" for a, s in streams.items()]
    selected = measured.get("selectivities", {})
    lines += [f"{text}: selectivity {share(s['value'])}" for text, s in selected.items()]
    keys = measured.get("keys", {})
    lines += [f"{text}: {k['heavy_hitters']} heavy values have {k['skew']:.0%} of rows" for text, k in keys.items()]
    if measured.get("operators"):
        lines += ["", "Operators", ""]
        lines += [_operator(operator, domain) for operator in measured["operators"]]
    if record["costs"]:
        lines += ["", costs_text(record["costs"])]
    if known["decisions"]:
        lines += ["", "Decisions, newest first", ""]
        lines += [
            f"at {instant(d['moment'], domain)}, {d['action']}: {d['reason']}" for d in reversed(known["decisions"])
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
