"""A channel over lines that lose, repeat and reorder: every message is delivered once and in order.

Messages to a receiver are numbered and kept until acknowledged. The receiver hands on the next number only, keeps later
ones, and acknowledges what it has. The owner of a channel writes it down with its own state: a message is
acknowledged only after what it caused is safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Envelope:
    """A numbered message; `lane` tells apart the channels between two nodes."""

    number: int
    content: Any
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """All messages of a lane up to a number have been received."""

    through: int
    lane: str = ""


Stored = tuple[dict[str, int], dict[str, dict[int, Any]], dict[str, int], dict[str, dict[int, Any]]]


@dataclass(slots=True)
class Channel:
    """One node's ends of its channels to and from all others, on one lane."""

    lane: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    unacknowledged: dict[str, dict[int, Any]] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    early: dict[str, dict[int, Any]] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)

    def envelope(self, to: str, content: Any) -> Envelope:
        """The next message to a receiver."""
        number = self.numbers[to] = self.numbers.get(to, 0) + 1
        self.unacknowledged.setdefault(to, {})[number] = content
        return Envelope(number, content, self.lane)

    def received(self, sender: str, envelope: Envelope) -> tuple[list[Any], Acknowledged]:
        """The messages that can be handed on now, and what to answer."""
        early, through = self.early.setdefault(sender, {}), self.through.get(sender, 0)
        if envelope.number > through:
            early[envelope.number] = envelope.content
        ready = []
        while through + 1 in early:
            through += 1
            ready.append(early.pop(through))
        self.through[sender] = through
        return ready, Acknowledged(through, self.lane)

    def acknowledged(self, sender: str, answer: Acknowledged) -> None:
        """Forgets what a receiver has."""
        kept = self.unacknowledged.get(sender, {})
        self.unacknowledged[sender] = {n: c for n, c in kept.items() if n > answer.through}

    def again(self) -> Iterator[tuple[str, Envelope]]:
        """What may have been lost: messages that were not acknowledged when this was last called, nor are now."""
        for to, kept in self.unacknowledged.items():
            for number, content in kept.items():
                if number <= self.due.get(to, 0):
                    yield to, Envelope(number, content, self.lane)
        self.due = dict(self.numbers)

    def stored(self) -> Stored:
        """What has to be written down."""
        return dict(self.numbers), _copied(self.unacknowledged), dict(self.through), _copied(self.early)

    def restore(self, stored: Stored) -> None:
        """Takes over what was written down."""
        self.numbers, self.through = dict(stored[0]), dict(stored[2])
        self.unacknowledged, self.early = _copied(stored[1]), _copied(stored[3])


def _copied(by_node: Mapping[str, dict[int, Any]]) -> dict[str, dict[int, Any]]:
    return {node: dict(messages) for node, messages in by_node.items()}
