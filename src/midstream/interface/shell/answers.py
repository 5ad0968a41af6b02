"""Results as they come: a table whose heading is shown with the first rows and whose columns keep their widths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.interface.cli.output import show_value
from midstream.interface.plain_values import is_number
from midstream.terminal import visible

WIDEST = 40
"""How wide a column is at most; longer values stick out."""

Write = Callable[[str], None]


@dataclass(slots=True)
class ShellAnswer:
    """Writes rows until the limit, and counts all; a limit of 0 is none."""

    write: Write
    limit: int
    widths: list[int] = field(default_factory=list)
    rows: int = 0

    def take(self, table: pa.Table) -> None:
        """Some more rows."""
        room = table.num_rows if self.limit == 0 else max(0, self.limit - self.rows)
        shown = table.slice(0, room)
        columns = [
            [show_value(value, field.name).plain for value in shown.column(place).to_pylist()]
            for place, field in enumerate(table.schema)
        ]
        if not self.widths:
            self._head(table.schema, columns)
        for row in zip(*columns, strict=True):
            self.write(self._line(row, table.schema))
        self.rows += table.num_rows

    def end(self, empty: pa.Schema) -> None:
        """The number of rows; the heading too if there were none."""
        if not self.widths:
            self._head(empty, [[] for _ in empty])
        hidden = 0 if self.limit == 0 else max(0, self.rows - self.limit)
        text = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        self.write(f"{text}, {hidden:,} not shown (\\limit 0 shows all)" if hidden else text)

    def _head(self, schema: pa.Schema, columns: list[list[str]]) -> None:
        named = zip(schema, columns, strict=True)
        self.widths = [min(WIDEST, max(map(len, [f.name, *values]))) for f, values in named]
        self.write(self._line([visible(name) for name in schema.names], schema))
        self.write("─" * (sum(self.widths) + 2 * max(0, len(self.widths) - 1)))

    def _line(self, values: tuple[str, ...] | list[str], schema: pa.Schema) -> str:
        cells = zip(values, self.widths, schema, strict=True)
        return "  ".join(v.rjust(w) if is_number(f.type) else v.ljust(w) for v, w, f in cells).rstrip()
