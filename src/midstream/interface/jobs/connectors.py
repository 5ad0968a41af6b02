"""Where rows come from and results go, as a job file says: a kind of source or sink, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midstream.connectors.registry import SINKS, SOURCES, Registry
from midstream.errors import JobError


@dataclass(frozen=True, slots=True)
class ConnectorSection:
    """A source or sink: its kind, its options as they are written, and the folder that their paths are relative to."""

    registry: Registry
    place: str
    kind: str
    options: Mapping[str, Any]
    folder: Path

    def made(self, query: str = "") -> Any:
        """The source, or the sink of a query, with the values of variables; it is connected to nothing yet."""
        if self.kind == "console":
            from midstream.cluster.sinks import console

            return console(query)
        return self.registry.made(self.kind, self.options, self.place, self.folder)

    def places(self) -> list[tuple[str, str]]:
        """The files and folders on this machine that it has."""
        if self.kind in self.registry.unconnected:
            return []
        return self.registry.places_of(self.kind, self.options, self.folder)


def sink_in(value: Any, place: str, folder: Path) -> ConnectorSection | None:
    """The sink that a query names, or describes in a table; None where there is nothing besides the results table."""
    sink = _section(SINKS, value or "table", place, folder)
    return None if sink.kind == "table" else sink


def source_in(value: Any, schema: str | None, place: str, folder: Path) -> ConnectorSection:
    """The source that a stream names, or describes in a table; a schema is one of its options."""
    return _section(SOURCES, value, place, folder, {} if schema is None else {"schema": schema})


def _section(
    registry: Registry, value: Any, place: str, folder: Path, more: Mapping[str, Any] | None = None
) -> ConnectorSection:
    options = {**(value if isinstance(value, dict) else {"kind": value}), **(more or {})}
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise JobError(f"{place} has no kind", hint='write for instance kind = "sqlite"')
    if kind not in registry.unconnected:
        registry.require_options(kind, options, place)
    return ConnectorSection(registry, place, kind, options, folder)
