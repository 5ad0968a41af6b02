"""Slots as people name them on a command line."""

from __future__ import annotations

from midstream.errors import JobError


def slots_named(text: str) -> list[int]:
    """Slots by their numbers.

    >>> slots_named("0, 2")
    [0, 2]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise JobError(f"{text!r} does not name slots", hint="name them by their numbers, such as 1 or 0,2") from None
