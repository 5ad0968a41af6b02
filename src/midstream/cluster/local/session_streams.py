"""Streams of a session in this process: they also say on demand how far they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.local.embedded import StreamProgress, one_batch
from midstream.inputs import table_of
from midstream.job.task.ingest import TOO_FAR_AHEAD, believed, checked, in_range, reach_of, spans_of, ticks_of
from midstream.operators.elements import Ticks
from midstream.operators.vectors import column_of


class SessionStream(StreamProgress):
    """A stream of a session: it also says on demand how far it is.

    With internal timestamps (or latent ones, which exist only once somebody asks) rows are stamped when they are
    pushed. With external ones and a declared skew, no row is more than that behind the newest row that any stream had
    before a push in which it had none itself.
    """

    def __init__(self, declaration: StreamDeclaration, on_demand: bool) -> None:
        super().__init__(declaration)
        self.on_demand = on_demand
        self.doubted = False
        """Whether the last rows lay beyond the stream's reach."""
        self.came = 0
        """How many rows were pushed."""

    @property
    def stamped(self) -> bool:
        """Whether rows get their time here."""
        return self.declaration.timestamps != "external"

    def accept(self, rows: pa.RecordBatch, clock: int | None = None) -> tuple[pa.RecordBatch, Ticks]:
        """The usable rows; one behind what the stream has promised is late, one beyond its reach is not believed."""
        rows = self._believed(rows, clock)
        times, valid = ticks_of(rows.column(self.declaration.time), self.declaration.name)
        broken = times < self.register
        if valid is not None:
            broken &= valid
        if broken.any():
            self._bury(rows, broken, "late")
            rows = rows.take(pa.array(np.flatnonzero(~broken)))
        return super().accept(rows)

    def _believed(self, rows: pa.RecordBatch, clock: int | None) -> pa.RecordBatch:
        reach = reach_of(self.declaration, self.latest, clock)
        times, valid = ticks_of(rows.column(self.declaration.time), self.declaration.name)
        usable = in_range(times) if valid is None else in_range(times) & valid
        beyond = usable & (times > reach.until)
        if reach.step and usable.any():
            within = times[usable & ~beyond]
            latest = max([self.latest, *within.max(keepdims=True).tolist()]) if len(within) else self.latest
            spans = spans_of(times[beyond], reach.step)
            until, self.doubted = believed(reach, latest, len(within), spans, self.doubted)
            beyond &= times > until
        if not beyond.any():
            return rows
        self._bury(rows, beyond, TOO_FAR_AHEAD)
        return rows.take(pa.array(np.flatnonzero(~beyond)))

    def demand(self, now: int | None, newest: int) -> None:
        """Raises the register of a silent stream as far as it can promise; `newest` is how far streams were before."""
        if not self.on_demand or self.register == INFINITY:
            return
        value = now if self.stamped else (newest - self.declaration.skew if newest > BEGINNING else None)
        if value is not None:
            self.register = max(self.register, value)

    def batch(self, value: object, now: int) -> pa.RecordBatch:
        """Rows as the stream declares them, stamped here where it says so."""
        declaration = self.declaration
        table = table_of(declaration.name, value, declaration.visible)
        if self.stamped:
            # A clock may go backwards; time does not.
            times = np.full(table.num_rows, max(now, self.register, self.latest), np.int64)
            stamps = column_of(times, declaration.domain.output_type)
            if declaration.time in table.schema.names:
                table = table.drop_columns([declaration.time])
            table = table.append_column(declaration.time, stamps.cast(declaration.columns.field(declaration.time).type))
        self.came += table.num_rows
        return one_batch(checked(declaration, table, self.came - table.num_rows))
