"""What the terminal shows: results as tables with readable times, errors in red, progress apart from results."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from midstream.algebra.time import amount
from midstream.interface.plain_values import is_number
from midstream.interface.tables import plain_table
from midstream.terminal import visible, visible_json, visible_lines

NOT_A_TERMINAL = 100_000
"""Columns wide: what is piped or written to a file is never folded."""


def show_table(table: pa.Table, limit: int) -> None:
    """The first `limit` rows as a table; all of them if the limit is 0."""
    console = _console(sys.stdout)
    shown = table if limit == 0 else table.slice(0, limit)
    drawn = plain_table()
    for field in table.schema:
        drawn.add_column(
            Text(visible(field.name)), justify="right" if is_number(field.type) else "left", overflow="fold"
        )
    columns = [[show_value(v, field.name) for v in shown.column(i).to_pylist()] for i, field in enumerate(table.schema)]
    for row in zip(*columns, strict=True):
        drawn.add_row(*row)
    console.print(drawn)
    hidden = table.num_rows - shown.num_rows
    rows = "1 row" if table.num_rows == 1 else f"{table.num_rows:,} rows"
    console.print(Text(f"{rows}, {hidden:,} not shown (--limit 0 shows all)" if hidden else rows, style="dim"))


def show_value(value: Any, column: str = "") -> Text:
    """A value as a person reads it.

    >>> show_value(dt.datetime(2024, 5, 1, 12, 30)).plain, show_value(None, "valid_to").plain
    ('2024-05-01 12:30:00', '∞')
    """
    match value:
        case None:
            return Text("∞" if column == "valid_to" else "NULL", style="dim")
        case dt.datetime():
            return Text(value.isoformat(sep=" "))
        case bytes():
            return Text(value.hex())
        case bool():
            return Text(str(value).lower())
        case _:
            return Text(visible(str(value)))


def show_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(visible_json(value, allow_nan=False) + "\n")


def show_text(text: str) -> None:
    """Lines of text, never folded or styled."""
    sys.stdout.write(visible_lines(text) + "\n")


_QUIET = [False]


def keep_quiet(wanted: bool) -> None:
    """Whether notes and progress are left out, so that only results and errors show."""
    _QUIET[0] = wanted


def note(text: str) -> None:
    """Something worth knowing that is not a result."""
    if _QUIET[0]:
        return
    _console(sys.stderr).print(Text(visible_lines(text), style="dim"))


def complain(text: str) -> None:
    """An error, in red on a terminal."""
    _console(sys.stderr).print(Text(visible_lines(text), style="red"), soft_wrap=True)


@contextmanager
def progress_bar(total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Counts rows on standard error while a long run goes on, with their rate and, of a known total, the time left.

    Only on a terminal, and gone at the end.
    """
    console = _console(sys.stderr)
    counted = "{task.completed:,.0f} rows" if total is None else "{task.completed:,.0f} of {task.total:,.0f} rows"
    columns = [SpinnerColumn(), TextColumn(counted), TextColumn("{task.fields[rate]}"), TimeElapsedColumn()]
    if total is not None:
        columns[1:1] = [BarColumn(bar_width=30)]
        columns += [TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, disable=_QUIET[0] or not console.is_terminal) as progress:
        task = progress.add_task("rows", total=total, rate="")

        def advance(rows: int) -> None:
            progress.advance(task, rows)
            speed = progress.tasks[0].speed
            progress.update(task, rate="" if speed is None else f"{amount(speed)} rows/s")

        yield advance


def _console(stream: Any) -> Console:
    return Console(file=stream, highlight=False, width=None if stream.isatty() else NOT_A_TERMINAL)
