"""Segment entries as JSON: column by column, with the texts that repeat written once.

State ids are long and stand in many entries, file names likewise: each is written once and spoken of by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from operator import attrgetter
from typing import Any

from midstream.checkpoint.packs import HashRange, SegmentEntry, StateKey

_TEXTS = ("state", "key", "file")
_NUMBERS = tuple(f.name for f in fields(SegmentEntry) if f.name not in (*_TEXTS, "hashes"))
_numbers = attrgetter(*_NUMBERS)
_make: Callable[..., SegmentEntry] = SegmentEntry


class Writer:
    """Turns entries into numbers and remembers the texts they speak of."""

    def __init__(self) -> None:
        self._states: dict[StateKey, int] = {}
        self._files: dict[str, int] = {}
        self._lists: dict[tuple[SegmentEntry, ...], int] = {}
        self._seen: dict[int, tuple[Sequence[SegmentEntry], int]] = {}

    def once(self, entries: Sequence[SegmentEntry]) -> dict[str, Any]:
        """Entries as columns, or the number of the list of equal entries that has been written before."""
        if id(entries) in self._seen:  # queries that share their state have the very same list
            return {"same": self._seen[id(entries)][1]}
        whole = tuple(entries)
        known = whole in self._lists
        number = self._lists.setdefault(whole, len(self._lists))
        self._seen[id(entries)] = (entries, number)
        return {"same": number} if known else self.columns(whole)

    def columns(self, entries: Sequence[SegmentEntry]) -> dict[str, Any]:
        """Entries as columns of numbers; parts of segments stand apart, by position."""
        states, files = self._states, self._files
        columns: dict[str, Any] = {
            "state": [states.setdefault((e.state, e.key), len(states)) for e in entries],
            "file": [files.setdefault(e.file, len(files)) for e in entries],
        }
        columns.update(zip(_NUMBERS, map(list, zip(*map(_numbers, entries), strict=True)), strict=False))
        parts = [[i, *astuple(e.hashes)] for i, e in enumerate(entries) if e.hashes is not None]
        return {**columns, "parts": parts} if parts else columns

    def texts(self) -> dict[str, Any]:
        """The texts, by number."""
        return {"states": [[state, list(key)] for state, key in self._states], "files": list(self._files)}


class Reader:
    """Turns columns of numbers back into entries."""

    def __init__(self, texts: dict[str, Any]) -> None:
        self._states = [(state, tuple(key)) for state, key in texts["states"]]
        self._files = texts["files"]
        self._lists: list[tuple[SegmentEntry, ...]] = []

    def once(self, columns: dict[str, Any]) -> tuple[SegmentEntry, ...]:
        """The entries that were written once; lists must be read in the order in which they were written."""
        if "same" in columns:
            return self._lists[int(columns["same"])]
        self._lists.append(self.entries(columns))
        return self._lists[-1]

    def entries(self, columns: dict[str, Any]) -> tuple[SegmentEntry, ...]:
        """The entries that were written."""
        if not columns["state"]:
            return ()
        parts = {i: HashRange(*part) for i, *part in columns.get("parts", ())}
        states, files = self._states, self._files
        rows = zip(columns["state"], columns["file"], *(columns[name] for name in _NUMBERS), strict=True)
        if not parts:
            return tuple(_make(*states[state], files[file], *numbers) for state, file, *numbers in rows)
        return tuple(
            _make(*states[state], files[file], *numbers, parts.get(i)) for i, (state, file, *numbers) in enumerate(rows)
        )
