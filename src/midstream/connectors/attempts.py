"""What a log of messages has of deliveries, by its own tail: each message says whose it is and up to which instant.

A delivery may be there in part. Its rows are not written again, those that are missing are; all messages that are
written at once are an attempt, which says how many it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


class TooLong(Exception):
    """A row that no message can hold."""


@dataclass(slots=True)
class Attempt:
    """Messages that were written at once, as they tell it: how many these are, and those that were found."""

    until: int
    rows: int
    found: Counter[bytes] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        """Whether all of its messages are there."""
        return self.found.total() >= self.rows


@dataclass(slots=True)
class Tail:
    """What a log has had as a whole: all before `until`, and besides that rows of later deliveries."""

    until: int | None
    rows: Counter[bytes]

    @staticmethod
    def of(messages: Iterable[tuple[dict[str, Any], bytes]]) -> Tail:
        """The tail of messages of one history of a query, by what each says of its attempt, and its bytes."""
        found: dict[str, Attempt] = {}
        for about, text in messages:
            attempt = found.setdefault(about["attempt"], Attempt(about["until"], about["rows"]))
            attempt.found[text] += 1
        until = max((attempt.until for attempt in found.values() if attempt.is_whole), default=None)
        later = (one.found for one in found.values() if until is None or one.until > until)
        return Tail(until, sum(later, Counter[bytes]()))

    def takes(self, text: bytes) -> bool:
        """Whether a row is among those of later deliveries, each of which counts once."""
        there = self.rows[text] > 0
        self.rows[text] -= there
        return there
