"""What the messages of PostgreSQL's logical decoding mean, as its plug-in `pgoutput` writes them (protocol 1).

Changes come by transactions, in the order in which these were committed: the beginning, what is known of each table,
the changes, the commit. A value is a text, null, or one that is stored apart and was not changed, which is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_EPOCH = 946_684_800_000_000
"""PostgreSQL counts microseconds since the year 2000."""

KINDS = {b"I": "insert", b"U": "update", b"D": "delete", b"T": "truncate"}


class Unchanged:
    """Stands for a value that is stored apart, was not changed and is not sent."""


Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row: the new row, or what is known of the old one if there is no new one."""

    kind: str
    row: Row


@dataclass(slots=True)
class Transaction:
    """The changes of a transaction; `end` is the position after it, `at` when it was committed, in microseconds."""

    end: int = 0
    at: int = 0
    changes: list[Change] = field(default_factory=list)


def transactions(messages: Iterable[bytes]) -> Iterator[Transaction]:
    """The transactions in messages; the last one is whole if its commit is there."""
    columns: dict[int, list[str]] = {}
    current = Transaction()
    for message in messages:
        kind = message[:1]
        if kind == b"B":
            current = Transaction(at=struct.unpack_from(">q", message, 9)[0] + _EPOCH)
        elif kind == b"C":
            current.end = struct.unpack_from(">Q", message, 10)[0]
            yield current
        elif kind == b"R":
            columns[struct.unpack_from(">I", message, 1)[0]] = _columns(message)
        elif kind in KINDS:
            current.changes.append(_change(kind, message, columns))


def _columns(message: bytes) -> list[str]:
    """The columns of a table."""
    at = message.index(b"\0", message.index(b"\0", 5) + 1) + 2
    (count,) = struct.unpack_from(">H", message, at)
    at, names = at + 2, []
    for _ in range(count):
        stop = message.index(b"\0", at + 1)
        names.append(message[at + 1 : stop].decode())
        at = stop + 9
    return names


def _change(kind: bytes, message: bytes, columns: dict[int, list[str]]) -> Change:
    if kind == b"T":
        return Change("truncate", {})
    names = columns[struct.unpack_from(">I", message, 1)[0]]
    row, at = _tuple(message, 6, names)
    if kind == b"U" and message[5:6] != b"N":
        new, _ = _tuple(message, at + 1, names)
        row = {name: row[name] if value is Unchanged else value for name, value in new.items()}
    return Change(KINDS[kind], row)


def _tuple(message: bytes, at: int, names: list[str]) -> tuple[Row, int]:
    """The values of a row by column, and where they end."""
    row: Row = {}
    at += 2
    for name in names:
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            length = int.from_bytes(message[at : at + 4], "big")
            row[name] = message[at + 4 : at + 4 + length].decode()
            at += 4 + length
        else:
            row[name] = None if kind == b"n" else Unchanged
    return row, at
