"""A trace of each batch for OpenTelemetry: a span for the batch, and one for each part of it that took time.

Only OpenTelemetry's interface is used: without a provider that somebody sets up (as `opentelemetry-instrument` does),
spans go nowhere and cost nothing. Parts are measured by the longest slot, and shown one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

PARTS = ("transfer", "state", "kernel", "write", "watch", "spark", "commit", "decide", "sinks")
"""The parts of a batch, in the order in which they come."""


def batch_tracer(clock: Callable[[], int] = time.time_ns) -> Callable[[Mapping[str, Any]], None] | None:
    """What makes a trace of each batch, for a session's `on_progress`; None if OpenTelemetry is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    tracer = trace.get_tracer("midstream")

    def record(event: Mapping[str, Any]) -> None:
        seconds, end = event["seconds"], clock()
        start = end - int(1e9 * seconds.get("batch", seconds.get("job", 0.0)))
        batch = tracer.start_span("batch", start_time=start, attributes=attributes(event))
        inside, at = trace.set_span_in_context(batch), start
        for part in PARTS:
            if seconds.get(part):
                until = min(end, at + int(1e9 * seconds[part]))
                tracer.start_span(part, context=inside, start_time=at).end(until)
                at = until
        batch.end(end)

    return record


def attributes(event: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a batch."""
    record: dict[str, Any] = {"midstream.batch": event["batch_id"]}
    for kind in ("rows", "late", "unusable"):
        record[f"midstream.{kind}"] = sum(event[kind].values())
    record["midstream.results"] = sum(query["results"] for query in event["queries"].values())
    record["midstream.migrating"] = sorted(event["migrations"])
    return record
