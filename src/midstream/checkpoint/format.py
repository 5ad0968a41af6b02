"""What manifests are written as: an envelope around JSON, in which segments are rows of numbers.

The first line carries the kind, the format, the length and a checksum of all of it: a torn or changed file is known
before anything in it is believed, and the format before anything in it is understood.

State ids are long and stand in many entries, file names likewise: each is written once and spoken of by number.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from midstream.checkpoint.packs import NUMBERS, HashRange, SegmentEntry, StateKey
from midstream.errors import InternalError, JobError

COMPRESS_FROM = 65_536
"""The size from which content is compressed: less is written sooner than that is done."""


def seal(kind: str, version: int, content: dict[str, Any]) -> bytes:
    """Content in an envelope; equal content gives equal bytes."""
    body = object_text(content).encode()
    encoding, length = "json", len(body)
    if length >= COMPRESS_FROM:
        encoding, body = "zstd", pa.compress(body, codec="zstd", asbytes=True)
    head = {
        "midstream": kind,
        "format": version,
        "encoding": encoding,
        "length": length,
        "bytes": len(body),
    }
    return _json({**head, "checksum": _checksum(head, body)}) + b"\n" + body


def unseal(kind: str, version: int, sealed: bytes, name: str) -> dict[str, Any]:
    """The content of an envelope, checked; `name` is what errors call the file."""
    first, _, body = sealed.partition(b"\n")
    head = _head(kind, first, name)
    _require_format(head["format"], version, name)
    if len(body) != head["bytes"]:
        raise damaged(name, f"{head['bytes']} bytes should follow its first line, not {len(body)}")
    if _checksum({name: head[name] for name in head if name != "checksum"}, body) != head["checksum"]:
        raise damaged(name, "its checksum does not agree")
    try:
        if head["encoding"] == "zstd":
            body = pa.decompress(body, head["length"], codec="zstd", asbytes=True)
        content: dict[str, Any] = json.loads(body)
    except (ValueError, TypeError, OSError, pa.ArrowException) as error:
        raise damaged(name, f"{type(error).__name__}: {error}") from error
    return content


def _checksum(head: dict[str, Any], body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_json(head)))


def damaged(name: str, why: str) -> JobError:
    """A file that does not hold what was written."""
    return JobError(f"{name} is damaged", detail=why, hint="restore it from a copy of the checkpoint")


def _head(kind: str, line: bytes, name: str) -> dict[str, Any]:
    try:
        head = json.loads(line)
        sane = head["midstream"] == kind and all(
            type(head[k]) is int for k in ("format", "length", "bytes", "checksum")
        )
        sane = sane and head["encoding"] in ("json", "zstd")
    except (ValueError, KeyError, TypeError):
        sane = False
    if not sane:
        raise damaged(name, f"its first line is not that of a {kind}")
    return dict(head)


def _require_format(found: int, version: int, name: str) -> None:
    if found != version:
        raise JobError(
            f"{name} has format {found}, this version of Midstream reads format {version}",
            hint="use the version of Midstream that wrote it, or start with a new checkpoint",
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """A value whose JSON is made already."""

    text: str


class Fixed(dict[str, Any]):
    """A record that does not change any more: its JSON is made once, however many files it goes into."""

    __slots__ = ("text",)

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.text = _text(content)


LASTING = 64
"""Of how many records that last their JSON is kept."""

_lasting: dict[int, tuple[Any, Ready]] = {}


def lasting(value: Any, content: Callable[[Any], Any] = lambda value: value) -> Ready:
    """The JSON of a record that one manifest hands on to the next as the same object; made once.

    `content` gives what JSON can hold of it.
    """
    known = _lasting.get(id(value))
    if known is None or known[0] is not value:
        if len(_lasting) >= LASTING:
            _lasting.clear()
        known = _lasting[id(value)] = value, Ready(_text(content(value)))
    return known[1]


def object_text(content: Mapping[str, Any]) -> str:
    """An object as JSON; values that are `Ready` are taken as they are, and come last.

    >>> object_text({"b": Ready("[1]"), "c": {"a": None}})
    '{"c":{"a":null},"b":[1]}'
    """
    ready = sorted((name, value.text) for name, value in content.items() if isinstance(value, Ready))
    plain = _text({name: value for name, value in content.items() if not isinstance(value, Ready)})
    parts = [*([plain[1:-1]] if len(plain) > 2 else []), *(f"{_text(name)}:{text}" for name, text in ready)]
    return "{" + ",".join(parts) + "}"


def list_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as a JSON list."""
    return "[" + ",".join(r.text if isinstance(r, Fixed) else _text(r) for r in records) + "]"


def _json(value: Any) -> bytes:
    return _text(value).encode()


def _text(value: Any) -> str:
    if type(value) is str:
        return encode_basestring(value)
    try:
        return _ENCODER.encode(value)
    except (ValueError, TypeError) as error:
        raise InternalError("a manifest holds what JSON cannot say", detail=str(error)) from error


def _number(value: Any) -> Any:
    """NumPy's numbers as plain ones."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} {value!r:.100}")


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False, default=_number)


class Writer:
    """Turns entries into numbers and remembers the texts they speak of."""

    def __init__(self) -> None:
        self._states: dict[StateKey, int] = {}
        self._files: dict[str, int] = {}
        self._lists: dict[tuple[SegmentEntry, ...], int] = {}
        self._seen: dict[int, tuple[Sequence[SegmentEntry], int]] = {}

    def once(self, entries: Sequence[SegmentEntry]) -> Ready:
        """Entries as rows, or the number of the list of equal entries that has been written before."""
        if id(entries) in self._seen:  # queries that share their state have the very same list
            return Ready(str(self._seen[id(entries)][1]))
        whole = tuple(entries)
        lists = len(self._lists)
        number = self._lists.setdefault(whole, lists)
        self._seen[id(entries)] = (entries, number)
        return Ready(str(number)) if number < lists else self.rows(whole)

    def rows(self, entries: Sequence[SegmentEntry]) -> Ready:
        """Entries as rows of numbers; those of parts of segments are longer."""
        states, files = self._states, self._files
        rows = (
            f"[{states.setdefault((e.state, e.key), len(states))},{files.setdefault(e.file, len(files))},{e.text}]"
            for e in entries
        )
        return Ready(f"[{','.join(rows)}]")

    def texts(self) -> dict[str, Any]:
        """The texts, by number."""
        return {"states": [[state, list(key)] for state, key in self._states], "files": list(self._files)}


class EntryReader:
    """Turns rows of numbers back into entries."""

    def __init__(self, texts: dict[str, Any]) -> None:
        self._states = [(state, tuple(key)) for state, key in texts["states"]]
        self._files = texts["files"]
        self._lists: list[tuple[SegmentEntry, ...]] = []

    def once(self, found: int | list[list[int]]) -> tuple[SegmentEntry, ...]:
        """The entries that were written once; lists must be read in the order in which they were written."""
        if isinstance(found, int):
            return self._lists[found]
        self._lists.append(tuple(map(self._entry, found)))
        return self._lists[-1]

    def _entry(self, row: list[int]) -> SegmentEntry:
        state, file, *numbers = row
        part = HashRange(*numbers[_NUMBERS:]) if len(numbers) > _NUMBERS else None
        return _make(*self._states[state], self._files[file], *numbers[:_NUMBERS], part)


_NUMBERS = len(NUMBERS)
_make: Callable[..., SegmentEntry] = SegmentEntry
