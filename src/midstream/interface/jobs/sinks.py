"""Where the results of a query go besides the results table, as its job file says: a kind of sink, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midstream.connectors.registry import NOT_CONNECTED, places_of, require_options, sink_of
from midstream.errors import JobError


@dataclass(frozen=True, slots=True)
class SinkSection:
    """A sink: its kind, its options as they are written, and the folder that their paths are relative to."""

    place: str
    kind: str
    options: Mapping[str, Any]
    folder: Path

    def made(self, query: str) -> Any:
        """The sink of a query, with the values of variables; it is connected to nothing yet."""
        if self.kind == "console":
            from midstream.cluster.sinks import console

            return console(query)
        return sink_of(self.kind, self.options, place=self.place, folder=self.folder)

    def places(self) -> list[tuple[str, str]]:
        """The files and folders on this machine that it writes to."""
        return [] if self.kind in NOT_CONNECTED else places_of(self.kind, self.options, self.folder)


def sink_in(value: Any, place: str, folder: Path) -> SinkSection | None:
    """The sink that a query names, or describes in a table; None where there is nothing besides the results table."""
    options = dict(value) if isinstance(value, dict) else {"kind": value or "table"}
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise JobError(f"{place} has no kind", hint='write for instance kind = "sqlite"')
    if kind == "table":
        return None
    if kind not in NOT_CONNECTED:
        require_options(kind, options, place)
    return SinkSection(place, kind, options, folder)
