"""How the rows of a batch arrive: which streams, in which columns, by which routes, from which files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.file_entries import FilesRead
from midstream.distribution.fragments import STAY, Route
from midstream.job.arriving.reaching import Reaches
from midstream.job.task.layout import Layout


@dataclass(frozen=True, slots=True)
class Incoming:
    """The streams of a batch by port, laid out as `layout`; a stream that `routes` does not name may arrive anywhere.

    `read` are the columns of each stream that queries read; rows may arrive with more. `reaches` says up to which times
    rows are believed. `files` are those of folders that are streams. A batch without
    rows works with `registers` instead of the last manifest's, and leaves them as they are.
    """

    streams: Mapping[int, StreamDeclaration]
    layout: Layout
    files: FilesRead | None = None
    registers: Mapping[str, int] | None = None
    routes: Mapping[str, Route] = field(default_factory=dict)
    reaches: Reaches = field(default_factory=Reaches)
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether rows come; a batch of the job's own has none."""
        return self.registers is None

    @property
    def keys(self) -> dict[int, tuple[str, ...]]:
        """The columns by which rows of each port arrive, where they do by a key."""
        return {port: key for port, s in self.streams.items() if (key := self.routes.get(s.name, STAY).key)}

    def hashable(self, stream: str) -> tuple[pa.Field, ...]:
        """The columns of a stream as they travel, without those that cannot be hashed."""
        port = next(port for port, declaration in self.streams.items() if declaration.name == stream)
        columns = zip(self.layout.schemas[port], self.layout.places[port], strict=True)
        return tuple(self.layout.columns[place] for f, place in columns if not pa.types.is_nested(f.type))
