"""How a slot reads the rows of streams in the first stage: which of them count, and what is noted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING
from midstream.checkpoint.process import this_process
from midstream.job.task.exchange import GROUP, Addressing, Layout
from midstream.job.task.in_place import Copy
from midstream.job.task.ingest import Reach
from midstream.job.task.intake import Intake
from midstream.job.task.reports import SampleRequest, add_samples, sampled
from midstream.job.task.sorted_runs import Accepted
from midstream.operators.vectors import gather_rows


@dataclass(frozen=True, slots=True)
class StreamReading:
    """The streams by port, with what they had promised and up to which times their rows are believed.

    `keys` are the columns by which rows of each port arrive, where they do by a key. `samples` are what is sampled.
    """

    streams: Mapping[int, StreamDeclaration]
    registers: Mapping[str, int]
    reaches: Mapping[str, Reach] = field(default_factory=dict)
    keys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    samples: tuple[SampleRequest, ...] = ()
    deliveries: Mapping[int, Addressing] = field(default_factory=dict)
    """How rows of each port go to slots that share groups; copies of these count for all queries then."""
    again: Mapping[int, Copy] = field(default_factory=dict)
    """Rows of streams that arrive once more, by port, for fragments that read them in place."""
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The columns of streams that queries read, where rows may come with more."""

    @property
    def ports(self) -> tuple[int, ...]:
        """By which ports rows arrive, in the order in which they are fed."""
        return (*self.streams, *self.again)

    @property
    def spread(self) -> set[str]:
        """The streams whose rows are spread over slots that share groups."""
        return {self.streams[port].name for port, delivery in self.deliveries.items() if delivery.spread}

    def name_of(self, port: int) -> str:
        """The stream whose rows arrive by a port."""
        return self.streams[self._stream(port)].name

    def _stream(self, port: int) -> int:
        return self.again[port].stream if port in self.again else port

    def accepted(self, layout: Layout, parts: Mapping[int, pa.RecordBatch], intake: Intake) -> dict[int, Accepted]:
        """What counts of each port's rows."""
        return {
            port: self._accepted(
                layout, self._stream(port), rows, intake.unaccounted() if port in self.again else intake
            )
            for port, rows in parts.items()
        }

    def accepted_with_copies(
        self, layout: Layout, parts: Mapping[int, pa.RecordBatch], intake: Intake, slot: int, routing: tuple[int, ...]
    ) -> dict[int, Accepted]:
        """What counts of each port's rows; copies of rows that other slots account for are under `~port`."""
        found: dict[int, Accepted] = {}
        for port, rows in parts.items():
            owned = self.deliveries.get(port, Addressing(routing)).owned(rows.column(GROUP).to_numpy(), slot)
            found[port] = self._accepted(layout, port, gather_rows(rows, np.flatnonzero(owned)), intake)
            if not owned.all():
                copies = gather_rows(rows, np.flatnonzero(~owned))
                found[~port] = self._accepted(layout, port, copies, intake.unaccounted())
        return found

    def _accepted(self, layout: Layout, port: int, rows: pa.RecordBatch, intake: Intake) -> Accepted:
        declaration, report = self.streams[port], intake.report
        groups = rows.column(GROUP).to_numpy()
        report.traffic.count_groups(groups, declaration.name)
        register = self.registers.get(declaration.name, BEGINNING)
        reach = self.reaches.get(declaration.name, Reach())
        payload = layout.payload(port, rows)
        report.traffic.hot_keys.update(hot_key(groups, payload, self.keys.get(port, ())))
        accepted = intake.accept(declaration, payload, register, reach, self.read.get(declaration.name))
        if self.samples and len(accepted[1]) and not intake.discards:
            at = this_process().monotonic()
            add_samples(report.samples, sampled(self.samples, declaration.name, *accepted))
            report.lap("watch", at)
        return accepted


MUCH = 1 / 8
"""Which part of a stream's rows in a slot makes a group worth a look."""

ENOUGH = 16
"""How many rows it must be."""

LOOKED_AT = 4096
"""At how many of them one looks."""


def hot_key(
    groups: npt.NDArray[np.integer], rows: pa.RecordBatch, key: tuple[str, ...]
) -> dict[int, tuple[str, float]]:
    """The largest group of a stream's rows, if it is large: its commonest key, and that key's part of its rows.

    >>> rows = pa.RecordBatch.from_pydict({"k": [7] * 90 + [8] * 10})
    >>> hot_key(np.full(100, 3), rows, ("k",))
    {3: ('k = 7', 0.9)}
    >>> hot_key(np.full(100, 3), rows, ("a column that no query reads",))
    {}
    """
    if not key or not {*key} <= {*rows.schema.names} or rows.num_rows < ENOUGH or int(groups.min()) < 0:
        return {}
    counts = np.bincount(groups)
    group = int(counts.argmax())
    if counts[group] < max(ENOUGH, MUCH * rows.num_rows):
        return {}
    chosen = np.flatnonzero(groups == group)[:LOOKED_AT]
    table = pa.table({name: rows.column(name).take(pa.array(chosen)) for name in key})
    found = (
        table.group_by(list(key), use_threads=False)
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending")])
    )
    most = found.slice(0, 1).to_pylist()[0]
    text = ", ".join(f"{name} = {most[name]!s:.40}" for name in key)
    return {group: (text, round(most["count_all"] / len(chosen), 3))}
