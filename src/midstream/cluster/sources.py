"""Where rows come from besides folders of files and Spark's own sources."""

from __future__ import annotations

from typing import Any

from midstream.connectors.registry import SOURCES
from midstream.connectors.source import Position, Positions, Source

__all__ = ["Position", "Positions", "Source", "connect"]


def connect(kind: str, **options: Any) -> Source:
    """A source by its name in job files, such as `connect("sqlite", path="in.db", table="paid", schema="id BIGINT")`.

    `session.open_stream("paid", source)` reads it.
    """
    source: Source = SOURCES.made(kind, options)
    return source
