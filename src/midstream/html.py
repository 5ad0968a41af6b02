"""HTML for notebooks: tables, trees and plans side by side, without scripts and in the page's own colours.

Everything that is shown is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Mark = Literal["", "shared", "old", "new"]

_STYLES: dict[Mark, str] = {
    "": "",
    "shared": "opacity:.65",
    "old": "color:#b3261e;font-weight:600",
    "new": "color:#1a7f37;font-weight:600",
}
_CELL = "text-align:left;padding:.15em .8em .15em 0;vertical-align:top"


def escaped(value: Any) -> str:
    """A value as text that is safe within HTML.

    >>> escaped("a < b"), escaped(None), escaped(0.5), escaped(1234567)
    ('a &lt; b', '', '0.5', '1,234,567')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def table(headings: Iterable[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """A table.

    >>> table(["a_b"], [[1]]).count("<td")
    1
    """
    head = "".join(f'<th scope="col" style="{_CELL}">{escaped(name.replace("_", " "))}</th>' for name in headings)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{escaped(v)}</td>' for v in row) + "</tr>" for row in rows)
    record = f"<caption>{escaped(caption)}</caption>" if caption else ""
    return f"<table>{record}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def rows_html(rows: Any, most: int = 20) -> str:
    """The first rows of an Arrow table, and how many there are."""
    shown = rows.slice(0, most).to_pylist()
    hidden = rows.num_rows - len(shown)
    caption = f"{rows.num_rows:,} rows" + (f", {hidden:,} not shown" if hidden > 0 else "")
    return table(rows.column_names, [list(row.values()) for row in shown], caption)


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree with what is below it. `mark` says which of two plans has it."""

    label: str
    below: tuple[Branch, ...] = ()
    mark: Mark = ""


def tree(root: Branch) -> str:
    """A tree as nested lists."""
    style = f' style="{_STYLES[root.mark]}"' if root.mark else ""
    title = {"": "", "shared": " title='both plans compute this'", "old": " title='only the old plan'", "new": ""}
    label = f"<span{style}{title[root.mark]}>{escaped(root.label)}</span>"
    below = "".join(tree(branch) for branch in root.below)
    nested = f'<ul style="margin:0;padding-left:1.2em;list-style:none">{below}</ul>' if below else ""
    return f"<li>{label}{nested}</li>"


def trees(roots: Iterable[Branch]) -> str:
    """Trees below each other."""
    inner = "".join(tree(root) for root in roots)
    return f'<ul style="margin:0;padding:0;list-style:none;font-family:monospace;line-height:1.5">{inner}</ul>'


def side_by_side(*parts: tuple[str, str]) -> str:
    """Pieces of HTML next to each other, each below its title."""
    cells = "".join(
        f'<div style="padding-right:2em"><div><strong>{escaped(title)}</strong></div>{inner}</div>'
        for title, inner in parts
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:1em">{cells}</div>'


def section(title: str, *parts: str) -> str:
    """Pieces of HTML below a title."""
    return f"<div><div><strong>{escaped(title)}</strong></div>{''.join(parts)}</div>"


def preformatted(text: str) -> str:
    """Text as it is."""
    return f'<pre style="margin:.3em 0;line-height:1.35;white-space:pre-wrap">{escaped(text)}</pre>'


class Records(tuple[T, ...]):
    """Values of one kind, oldest first; in a notebook a table of what their class names in `COLUMNS`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        if not self:
            return "<p>none</p>"
        columns = getattr(type(self[0]), "COLUMNS", ("value",))
        return table(columns, ([getattr(value, name, value) for name in columns] for value in self))
