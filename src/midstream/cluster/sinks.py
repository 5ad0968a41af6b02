"""Where results go besides the results table: each is called with the results that a batch released.

A call can be repeated after a crash, with the same number and the same results, so a sink that must not double anything
looks at the number, or has a method `deliver`, which is told more (`Delivery`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from midstream.connectors.digest import digest_of
from midstream.connectors.folder import Folder, folder
from midstream.connectors.registry import SINKS
from midstream.connectors.sink import Delivery, arrow
from midstream.terminal import visible_lines

__all__ = ["Delivery", "Folder", "MemorySink", "Results", "Sink", "connect", "console", "digest_of", "folder"]

Results: TypeAlias = Any
"""A table, or a DataFrame of Spark's."""

Sink = Callable[[Results, int], None]


def console(name: str, rows: int = 20) -> Sink:
    """Shows the first rows of each batch."""

    def show(results: Results, batch_id: int) -> None:
        print(f"{name}, batch {batch_id}", flush=True)
        first = results.slice(0, rows) if isinstance(results, pa.Table) else arrow(results.limit(rows))
        print(visible_lines(first.to_pandas().to_string(index=False)), flush=True)

    return show


class MemorySink:
    """Keeps the results of each batch in the driver; for tests and small jobs."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, results: Results, batch_id: int) -> None:
        """Takes the results of a batch; a repeated batch replaces itself."""
        self.batches[batch_id] = arrow(results)

    @property
    def table(self) -> pa.Table:
        """All results so far, in order."""
        return pa.concat_tables([self.batches[i] for i in sorted(self.batches)])


def connect(kind: str, **options: Any) -> Any:
    """A sink by its name in job files, such as `connect("sqlite", path="out.db", table="paid", form="current")`."""
    return SINKS.made(kind, options)
