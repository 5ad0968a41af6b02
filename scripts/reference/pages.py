"""Which pages are written from the program, and by what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.reference.command_line import command_line_page
from scripts.reference.errors import errors_page
from scripts.reference.python_api import python_api_page

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "python-api.md": python_api_page,
    "errors.md": errors_page,
    "command-line.md": command_line_page,
}


def write_pages() -> Iterator[Path]:
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
        yield REFERENCE / name
