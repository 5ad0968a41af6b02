"""Logs that programs read: one JSON object a line on standard error, for every batch and for every message."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from midstream.terminal import visible_json

LOGGER = "midstream"


class JsonLines(logging.Formatter):
    """A record as one line of JSON; what was given as `extra={"fields": ...}` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry: dict[str, Any] = {
            "at": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return visible_json(entry, default=str)


def log_as_json(stream: TextIO | None = None) -> logging.Handler:
    """Has all of Midstream's messages, and a line for each batch, written as JSON; gives the handler to remove."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.propagate = False
    logging.getLogger(f"{LOGGER}.batches").setLevel(logging.INFO)
    return handler


def log_batch(event: Mapping[str, Any]) -> None:
    """Writes down what a batch did; to be given to a session's `on_progress`."""
    fields = {
        "event": "batch",
        "batch": event["batch_id"],
        **{name: dict(event[name]) for name in ("rows", "late", "unusable", "plans", "migrations", "seconds")},
        "results": {name: query["results"] for name, query in event["queries"].items()},
        "decisions": {n: d["action"] for n, d in event["decisions"].items() if d is not None},
    }
    logging.getLogger(f"{LOGGER}.batches").info("batch %s", event["batch_id"], extra={"fields": fields})
