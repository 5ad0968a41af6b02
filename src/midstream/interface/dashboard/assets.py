"""The page's files, which are built ahead and come with the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@cache
def asset(name: str) -> bytes:
    """The content of one of the page's files."""
    return files(__package__).joinpath("static", name).read_bytes()
