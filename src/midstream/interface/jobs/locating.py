"""Where in a job file a mistake is: the line of its key, and the column of the part that is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midstream.errors import QueryError
from midstream.interface.jobs.sections import Mistake

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")


@dataclass(frozen=True, slots=True)
class LocatedMistake:
    """A mistake with its place in the text, lines and columns counted from one; no line if it cannot be found."""

    mistake: Mistake
    line: int | None = None
    column: int | None = None
    source: str = ""

    def words(self, path: Path) -> str:
        """The mistake as a person reads it: file, place, the line with a caret, detail and hint."""
        error = self.mistake.error
        where = str(path) if self.line is None else f"{path}:{self.line}"
        lines = [f"{where}: {self.mistake.sentence}"]
        if self.column is not None:
            start = max(0, self.column - 61)
            lines += [f"  {self.source[start : start + 100]}", f"  {' ' * (self.column - 1 - start)}^"]
        lines += [f"  {word}: {text}" for word, text in (("detail", error.detail), ("hint", error.hint)) if text]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The mistake as a program reads it."""
        error = self.mistake.error
        record = {"place": self.mistake.place, "line": self.line, "column": self.column}
        return {**record, "message": error.message, "detail": error.detail, "hint": error.hint}


def locate(mistake: Mistake, text: str) -> LocatedMistake:
    """The mistake with its place in a job file's text."""
    lines = text.split("\n")
    at = _line_of(mistake.place, lines)
    if at is None:
        return LocatedMistake(mistake)
    error = mistake.error
    if isinstance(error, QueryError) and error.text is not None and error.line is not None and error.column is not None:
        return _within(mistake, lines, at, error.text.split("\n")[error.line - 1], error.column, error.line)
    if mistake.part:
        return _within(mistake, lines, at, mistake.part, 1, 1)
    return LocatedMistake(mistake, at + 1)


def _within(mistake: Mistake, lines: list[str], start: int, found: str, column: int, line: int) -> LocatedMistake:
    """The place of a piece of a value: at the key's line or below, where multi-line texts go on."""
    likely = range(min(start + line - 1, len(lines) - 1), len(lines))
    for number in likely:
        after = lines[number].find("=") + 1 if number == start else 0
        place = lines[number].find(found, after)
        if place >= 0:
            return LocatedMistake(mistake, number + 1, place + column, lines[number])
        if number > start and _HEADER.match(lines[number]):
            break
    return LocatedMistake(mistake, start + 1)


def _line_of(place: str, lines: list[str]) -> int | None:
    """The line of a key, else of the table that it should be in."""
    table, _, key = place.rpartition(".")
    inside, header = not table, None
    for number, line in enumerate(lines):
        found = _HEADER.match(line)
        if found:
            name = ".".join(part.strip().strip("\"'") for part in found[1].split("."))
            inside = name == table
            if name in (place, table) and header is None:
                header = number
            if name == place:
                return number
        elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return header
