"""The look of tables in the terminal: a bold head above a line, no frame."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table


def plain_table(title: str | None = None) -> Table:
    """A table that has no columns and rows yet."""
    return Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False
    )
