"""Lines become statements: a query ends with a semicolon, a command of the shell (`\\stream …`) with its line.

A semicolon within quotes or a comment ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

QUOTES = "'\"`"


@dataclass(frozen=True, slots=True)
class Statement:
    """What is to be done, and the line on which it begins, counted from one."""

    text: str
    line: int

    @property
    def is_command(self) -> bool:
        """Whether it is for the shell itself."""
        return self.text.startswith("\\")


@dataclass(slots=True)
class Splitter:
    """Takes lines and gives the statements that they complete."""

    lines: int = 0
    begun: int = 0
    waiting: list[str] = field(default_factory=list)
    within: str = ""
    """What is open at the end of the last line: a quote, a comment, or nothing."""

    @property
    def is_waiting(self) -> bool:
        """Whether a statement has begun and not ended."""
        return bool(self.waiting)

    def take(self, line: str) -> Iterator[Statement]:
        """The statements that a line completes."""
        self.lines += 1
        if not self.waiting and line.lstrip().startswith("\\"):
            yield Statement(line.strip(), self.lines)
            return
        start = 0
        for end in self._ends(line):
            yield from self._ended(line[start:end])
            start = end + 1
        rest = line[start:]
        if self.waiting or rest.strip():
            self.begun = self.begun if self.waiting else self.lines
            self.waiting.append(rest)

    def rest(self) -> Iterator[Statement]:
        """A last statement without a semicolon, at the end of a file."""
        yield from self._ended("")
        self.within = ""

    def forget(self) -> None:
        """Leaves what has begun."""
        self.waiting, self.within = [], ""

    def _ended(self, text: str) -> Iterator[Statement]:
        whole = "\n".join([*self.waiting, text]).strip("\n")
        line = self.begun if self.waiting else self.lines
        self.waiting = []
        if without_comments(whole).strip():
            yield Statement(whole.rstrip(), line)

    def _ends(self, line: str) -> Iterator[int]:
        """Where semicolons stand that end a statement."""
        place = 0
        while place < len(line):
            here = line[place : place + 2]
            if self.within:
                closed = here == "*/" if self.within == "/*" else line[place] == self.within
                place += 2 if closed and self.within == "/*" else 1
                self.within = "" if closed else self.within
            elif here == "--":
                return
            elif here == "/*" or line[place] in QUOTES:
                self.within = "/*" if here == "/*" else line[place]
                place += len(self.within)
            else:
                if line[place] == ";":
                    yield place
                place += 1


def statements(lines: Iterable[str]) -> Iterator[Statement]:
    """The statements of a text.

    >>> [s.text for s in statements(["\\\\streams", "SELECT ';' FROM A;SELECT", "k FROM A"])]
    ['\\\\streams', "SELECT ';' FROM A", 'SELECT\\nk FROM A']
    """
    splitter = Splitter()
    for line in lines:
        yield from splitter.take(line.rstrip("\n"))
    yield from splitter.rest()


def without_comments(text: str) -> str:
    """A text without comments to the end of a line, as far as blank texts are told from others."""
    return "\n".join(line.partition("--")[0] for line in text.split("\n"))
