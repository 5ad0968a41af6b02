"""What the messages of PostgreSQL's logical decoding mean, as its plug-in `pgoutput` writes them (protocol 1).

Changes come by transactions, in the order in which these were committed: the beginning, what is known of each table,
the changes, the commit. A value is a text, null, or one that is stored apart and was not changed, which is left out.

All messages are read at once, column by column: where a value begins in each message follows from where the one before
it ends.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

_EPOCH = 946_684_800_000_000
"""PostgreSQL counts microseconds since the year 2000."""

KINDS = {"D": "delete", "I": "insert", "T": "truncate", "U": "update"}
_LETTERS = np.array([ord(letter) for letter in KINDS])


@dataclass(frozen=True, slots=True)
class DecodedChanges:
    """Changes of a table in the order of commits; those of a transaction have one position, the end of it.

    `ends` are the positions after all transactions, also of those without changes. A row is the new one, or what is
    known of the old one if there is no new one.
    """

    ends: Numbers
    positions: Numbers
    """Of each change the end of its transaction, and below when that was committed, in microseconds."""
    times: Numbers
    kinds: pa.Array
    columns: Mapping[str, pa.Array]
    unchanged: Mapping[str, npt.NDArray[np.bool_]]
    """By column, which values were not sent because they are stored apart and were not changed."""

    def between(self, start: int, end: int) -> DecodedChanges:
        """Those of the transactions that end after one position, up to another."""
        first, last = (int(place) for place in np.searchsorted(self.positions, [start, end], "right"))
        return replace(
            self,
            ends=self.ends[(self.ends > start) & (self.ends <= end)],
            positions=self.positions[first:last],
            times=self.times[first:last],
            kinds=self.kinds[first:last],
            columns={name: column[first:last] for name, column in self.columns.items()},
            unchanged={name: places[first:last] for name, places in self.unchanged.items()},
        )


@dataclass(frozen=True, slots=True)
class _DecodedValues:
    """A column in some messages: of what kind each value is, where its text begins, and how long it is."""

    kinds: npt.NDArray[np.uint8]
    starts: Numbers
    sizes: Numbers

    def put(self, places: Numbers, other: _DecodedValues) -> None:
        """Puts the values of other messages into some places."""
        self.kinds[places], self.starts[places], self.sizes[places] = other.kinds, other.starts, other.sizes

    def taken(self, places: Numbers) -> _DecodedValues:
        """The values of some places."""
        return _DecodedValues(self.kinds[places], self.starts[places], self.sizes[places])


def decoded(messages: Sequence[bytes], names: Sequence[str]) -> DecodedChanges:
    """The changes in messages of whole transactions, with some of their columns, as far as their table has these."""
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    content = np.frombuffer(b"".join(messages) + bytes(8), np.uint8)
    at = np.cumsum(sizes) - sizes
    kinds = content[at]
    ends = _number(content, at[kinds == ord("C")] + 10, 8)
    begun = _number(content, at[kinds == ord("B")] + 9, 8) + _EPOCH
    changes = np.flatnonzero(np.isin(kinds, _LETTERS))
    of = np.cumsum(kinds == ord("B"))[changes] - 1
    rows = _Rows(content, at[changes], kinds[changes])
    tables = np.full(len(changes), -1)
    known = [(place, *_table(messages[place])) for place in np.flatnonzero(kinds == ord("R")).tolist()]
    for number, (place, table, _) in enumerate(known):
        tables[(changes > place) & (rows.tables == table)] = number
    tables[rows.kinds == ord("T")] = -1
    values = {number: rows.values(tables == number, columns) for number, (_, _, columns) in enumerate(known)}
    columns, unchanged = {}, {}
    for name in names:
        if any(name in those for _, _, those in known):
            columns[name], unchanged[name] = rows.column(name, tables, values)
    words = pa.DictionaryArray.from_arrays(pa.array(np.searchsorted(_LETTERS, rows.kinds)), pa.array(KINDS.values()))
    return DecodedChanges(ends, ends[of], begun[of], words.cast(pa.string()), columns, unchanged)


def _table(message: bytes) -> tuple[int, list[str]]:
    """Which table a message is about, and its columns."""
    at = message.index(b"\0", message.index(b"\0", 5) + 1) + 2
    (count,) = struct.unpack_from(">H", message, at)
    at, names = at + 2, []
    for _ in range(count):
        stop = message.index(b"\0", at + 1)
        names.append(message[at + 1 : stop].decode())
        at = stop + 9
    return struct.unpack_from(">I", message, 1)[0], names


@dataclass(frozen=True, slots=True)
class _Rows:
    """Messages of changes: where each begins, and its letter."""

    content: npt.NDArray[np.uint8]
    at: Numbers
    kinds: npt.NDArray[np.uint8]

    @property
    def tables(self) -> Numbers:
        """The number of each one's table."""
        return _number(self.content, self.at + 1, 4)

    def values(self, those: npt.NDArray[np.bool_], names: Sequence[str]) -> Mapping[str, _DecodedValues]:
        """The values of some changes of one table, by column; what an update leaves out is what the old row has."""
        starts = self.at[those] + 6
        tags = self.content[starts - 1]
        old = np.flatnonzero((self.kinds[those] == ord("U")) & (tags != ord("N")))
        before, after = self._row(starts[old], names)
        starts[old] = after + 1
        found, _ = self._row(starts, names)
        whole = old[tags[old] == ord("O")]
        for name, values in found.items():
            kept = whole[values.kinds[whole] == ord("u")]
            source = np.searchsorted(old, kept)
            values.put(kept, before[name].taken(source))
        return found

    def _row(self, at: Numbers, names: Sequence[str]) -> tuple[Mapping[str, _DecodedValues], Numbers]:
        """The values of rows that begin somewhere, by column, and where the rows end."""
        found, at = {}, at + 2
        for name in names:
            kinds = self.content[at]
            sizes = np.where(kinds == ord("t"), _number(self.content, at + 1, 4), 0)
            found[name] = _DecodedValues(kinds, at + 5, sizes)
            at = at + 1 + np.where(kinds == ord("t"), 4 + sizes, 0)
        return found, at

    def column(
        self, name: str, tables: Numbers, values: Mapping[int, Mapping[str, _DecodedValues]]
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """A column of all changes as texts, and which of its values were not sent."""
        length = len(tables)
        whole = _DecodedValues(
            np.full(length, ord("n"), np.uint8), np.zeros(length, np.int64), np.zeros(length, np.int64)
        )
        for number, columns in values.items():
            if name in columns:
                whole.put(np.flatnonzero(tables == number), columns[name])
        offsets = np.concatenate([[0], np.cumsum(whole.sizes)])
        places = np.repeat(whole.starts - offsets[:-1], whole.sizes) + np.arange(offsets[-1])
        valid = np.packbits(whole.kinds == ord("t"), bitorder="little")
        buffers = [pa.py_buffer(part) for part in (valid, offsets, self.content[places])]
        texts = pa.Array.from_buffers(pa.large_string(), length, buffers)
        texts.validate(full=True)
        return texts.cast(pa.string()), whole.kinds == ord("u")


def _number(content: npt.NDArray[np.uint8], at: Numbers, width: int) -> Numbers:
    """Numbers of some bytes, the first of which is the highest."""
    found = np.zeros(len(at), np.int64)
    for byte in range(width):
        found = found << 8 | content[np.minimum(at + byte, len(content) - 1)]
    return found
