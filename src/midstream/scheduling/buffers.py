"""Buffers between operators: one producer, any number of readers, each with its own cursor.

What a reader has passed is gone for that reader alone; it is freed once the last reader has passed it. So operators
that read the same input share its tuples instead of copying them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from midstream.errors import InternalError


class BufferLedger:
    """How many tuples are still to be taken, counted once for every reader."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting = 0


class Buffer:
    """Tuples (batches of any size) in order, from number `first` up to `end`."""

    __slots__ = ("cursors", "end", "first", "items", "ledger", "most")

    def __init__(self, ledger: BufferLedger | None = None) -> None:
        self.items: deque[Any] = deque()
        self.first = 0
        self.end = 0
        self.cursors: list[Cursor] = []
        self.most = 0
        self.ledger = ledger or BufferLedger()

    def __len__(self) -> int:
        return len(self.items)

    def push(self, item: Any) -> None:
        """Adds a tuple at the tail; without a reader nothing is kept."""
        self.end += 1
        if not self.cursors:
            self.first = self.end
            return
        self.items.append(item)
        self.ledger.waiting += len(self.cursors)
        if len(self.items) > self.most:
            self.most = len(self.items)

    def reader(self, limit: Cursor | None = None) -> Cursor:
        """A new cursor: it sees what comes from now on, and with a limit only what that cursor has passed."""
        cursor = Cursor(self, self.end if limit is None else limit.position, limit)
        self.cursors.append(cursor)
        self.ledger.waiting += self.end - cursor.position
        return cursor

    def free(self) -> None:
        """Forgets what every reader has passed."""
        passed = min((cursor.position for cursor in self.cursors), default=self.end)
        while self.first < passed:
            self.items.popleft()
            self.first += 1


class Cursor:
    """One reader's place in a buffer."""

    __slots__ = ("buffer", "limit", "position")

    def __init__(self, buffer: Buffer, position: int, limit: Cursor | None) -> None:
        self.buffer = buffer
        self.position = position
        self.limit = limit

    def __len__(self) -> int:
        limit = self.limit
        return (self.buffer.end if limit is None else limit.position) - self.position

    def head(self) -> Any:
        """The next tuple, which stays."""
        return self.buffer.items[self.position - self.buffer.first]

    def take(self) -> Any:
        """The next tuple, which is then passed."""
        if not len(self):
            raise InternalError("nothing to take from an empty buffer")
        buffer = self.buffer
        buffer.ledger.waiting -= 1
        self.position += 1
        if len(buffer.cursors) == 1:
            buffer.first += 1
            return buffer.items.popleft()
        item = buffer.items[self.position - 1 - buffer.first]
        if self.position - 1 == buffer.first:
            buffer.free()
        return item
