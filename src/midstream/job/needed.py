"""The columns of streams that a job's queries need."""

from __future__ import annotations

from collections.abc import Mapping

from midstream.algebra.declarations import StreamDeclaration
from midstream.job.queries.running_query import RunningQuery
from midstream.job.watchers import Watchers


def needed_columns(
    queries: Mapping[str, RunningQuery], declaration: StreamDeclaration, watchers: Watchers | None = None
) -> list[str]:
    """The columns of a stream that queries read or that are watched, and its time."""
    wanted = {declaration.time} | (set() if watchers is None else watchers.columns(declaration.name))
    for query in queries.values():
        for source in query.sources_read:
            if source.stream.name == declaration.name:
                wanted.update(name.removeprefix(f"{source.stream.alias}.") for name in source.schema.names)
    return [name for name in declaration.columns.names if name in wanted]
