"""What can go wrong, in two families: the user's mistakes and ours.

Every error carries a message, and where they help a detail (why) and a hint (what would be right).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Self, TypeVar

Q = TypeVar("Q")


class MidstreamError(Exception):
    """The base of every error that Midstream raises on purpose."""

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, detail, hint)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between Spark's processes: rebuild them without calling __init__ with its keywords.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[MidstreamError], args: tuple[object, ...], state: dict[str, object]) -> MidstreamError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class QueryError(MidstreamError):
    """A query that is wrong; it knows the place in the text when there is one."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        text: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.text = text
        self.position = position

    @property
    def line(self) -> int | None:
        """The line of the place, counted from one."""
        if self.text is None or self.position is None:
            return None
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int | None:
        """The column of the place, counted from one."""
        if self.text is None or self.position is None:
            return None
        return self.position - (self.text.rfind("\n", 0, self.position) + 1) + 1

    def at(self, text: str, position: int | None) -> Self:
        """The same error with its place, unless it already has one."""
        if self.text is None and position is not None:
            self.text, self.position = text, position
        return self

    def __str__(self) -> str:
        plain = super().__str__()
        if self.line is None or self.column is None or self.text is None:
            return plain
        source = self.text.split("\n")[self.line - 1]
        start = max(0, self.column - 1 - 60)
        shown = source[start : start + 100]
        caret = " " * (self.column - 1 - start) + "^"
        first, *rest = plain.split("\n")
        return "\n".join([f"line {self.line}, column {self.column}: {first}", f"  {shown}", f"  {caret}", *rest])


class InputError(MidstreamError):
    """Data that cannot be read or does not fit its declaration."""


class MigrationError(MidstreamError):
    """A migration that is refused or cannot go on."""


class JobError(MidstreamError):
    """A job, its file or its checkpoint that is wrong."""


class ClusterError(JobError):
    """A process that the job runs on has died; a job that is started again goes on with the batch under way."""


class InternalError(MidstreamError):
    """A promise that Midstream made to itself and broke: always a defect here, never the user's."""


def instead_of(name: object, known: Collection[str]) -> str:
    """The hint for a name that is not known: the one most like it, or any of those that are.

    >>> instead_of("genmg", ["genmig", "auto"]), instead_of("x", ["genmig", "auto"])
    ('did you mean genmig?', 'use one of genmig, auto')
    """
    from difflib import get_close_matches

    near = get_close_matches(str(name), list(known), 1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"


def query_in(queries: Mapping[str, Q], name: str, hint: str | None = None) -> Q:
    """One of some queries by its name; refuses a name that none of them has."""
    if name not in queries:
        raise QueryError(
            f"there is no query {name}", detail=f"the queries are {', '.join(queries) or 'none'}", hint=hint
        )
    return queries[name]


def is_permitted(check: Callable[..., object], *arguments: object) -> bool:
    """Whether a check refuses no migration, and no move."""
    try:
        check(*arguments)
    except MigrationError:
        return False
    return True


def level_outside() -> int:
    """The stack level of whoever called Midstream, as `warnings.warn` in the calling function takes it."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("midstream."):
        level, frame = level + 1, frame.f_back
    return level


class DeadLetterWarning(UserWarning):
    """Some rows could not be used; they were set aside and counted."""
