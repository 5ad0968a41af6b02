"""Streams of a session in this process: they also say on demand how far they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.cluster.local.embedded import Stream, one_batch
from midstream.inputs import table_of
from midstream.job.ingest import checked, ticks_of
from midstream.operators.elements import Ticks
from midstream.operators.vectors import column_of


class SessionStream(Stream):
    """A stream of a session: it also says on demand how far it is.

    With internal timestamps (or latent ones, which exist only once somebody asks) rows are stamped when they are
    pushed. With external ones and a declared skew, no row is more than that behind the newest row of all streams.
    """

    def __init__(self, declaration: StreamDeclaration, on_demand: bool) -> None:
        super().__init__(declaration)
        self.on_demand = on_demand

    @property
    def stamped(self) -> bool:
        """Whether rows get their time here."""
        return self.declaration.timestamps != "external"

    def accept(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ticks]:
        """The usable rows; a row behind what the stream has promised is late."""
        times, valid = ticks_of(rows.column(self.declaration.time), self.declaration.name)
        broken = times < self.register
        if valid is not None:
            broken &= valid
        if broken.any():
            self._bury(rows, broken, "late")
            rows = rows.take(pa.array(np.flatnonzero(~broken)))
        return super().accept(rows)

    def demand(self, now: int | None, newest: int) -> None:
        """Raises the register of a silent stream as far as it can promise."""
        if not self.on_demand or self.register == INFINITY:
            return
        value = now if self.stamped else (newest - self.declaration.skew if newest > BEGINNING else None)
        if value is not None:
            self.register = max(self.register, value)

    def batch(self, value: object, now: int) -> pa.RecordBatch:
        """Rows as the stream declares them, stamped here where it says so."""
        declaration = self.declaration
        table = table_of(declaration.name, value, declaration.columns)
        if self.stamped:
            times = np.full(table.num_rows, max(now, self.register), np.int64)
            stamps = column_of(times, declaration.domain.output_type)
            if declaration.time in table.schema.names:
                table = table.drop_columns([declaration.time])
            table = table.append_column(declaration.time, stamps.cast(declaration.columns.field(declaration.time).type))
        return one_batch(checked(declaration, table))
