"""How a manifest is written: a line of JSON that says what follows, then JSON, compressed when it is large.

The first line carries the format, the length and the checksum of the rest: a torn or changed file is known before
anything in it is believed. Long texts that repeat, such as state ids and file names, are written once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa

from midstream.errors import JobError
from midstream.runtime.checkpoint.manifest import (
    FORMAT_VERSION,
    DeadLetterFile,
    Manifest,
    QueryEntry,
    ResultFile,
    Segments,
)
from midstream.runtime.checkpoint.packs import SegmentEntry

COMPRESS_FROM = 16_384
"""The size from which a manifest is compressed."""

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older format that can still be read, how its content becomes that of the next."""

_PLAIN = ("query_id", "batch_id", "offsets", "epoch", "registers", "latest", "advanced_to", "routing", "released")
_OPAQUE = ("migration", "counters")
_NUMBERS = tuple(f.name for f in fields(SegmentEntry) if f.name not in ("state", "key", "file"))


def to_bytes(manifest: Manifest) -> bytes:
    """A manifest as a file's content; equal manifests give equal bytes."""
    body = _json(_content(manifest))
    encoding = "json"
    length = len(body)
    if length >= COMPRESS_FROM:
        encoding, body = "zstd", pa.compress(body, codec="zstd", asbytes=True)
    head = {
        "midstream": "manifest",
        "format": manifest.format_version,
        "encoding": encoding,
        "length": length,
        "bytes": len(body),
        "checksum": zlib.crc32(body),
    }
    return _json(head) + b"\n" + body


def from_bytes(content: bytes, name: str) -> Manifest:
    """The manifest in a file's content, checked."""
    first, newline, body = content.partition(b"\n")
    head = _head(first, name) if newline else None
    if head is None:
        raise _damaged(name, "its first line is not that of a manifest")
    version = head["format"]
    _supported(version, name)
    if len(body) != head["bytes"]:
        raise _damaged(name, f"{head['bytes']} bytes should follow its first line, not {len(body)}")
    if zlib.crc32(body) != head["checksum"]:
        raise _damaged(name, "its checksum does not agree")
    try:
        if head["encoding"] == "zstd":
            body = pa.decompress(body, head["length"], codec="zstd", asbytes=True)
        parsed = json.loads(body)
        while version < FORMAT_VERSION:
            parsed, version = UPGRADES[version](parsed), version + 1
        return _manifest(parsed)
    except (ValueError, KeyError, TypeError, IndexError, pa.ArrowException) as error:
        raise _damaged(name, f"{type(error).__name__}: {error}") from error


def _head(line: bytes, name: str) -> dict[str, Any] | None:
    try:
        head = json.loads(line)
    except ValueError:
        return None
    return head if isinstance(head, dict) and head.get("midstream") == "manifest" else None


def _supported(version: int, name: str) -> None:
    if version > FORMAT_VERSION:
        raise JobError(
            f"{name} has format {version}, this version of Midstream reads formats up to {FORMAT_VERSION}",
            hint="upgrade Midstream on this machine",
        )
    if any(step not in UPGRADES for step in range(version, FORMAT_VERSION)):
        raise JobError(
            f"{name} has format {version}, which this version of Midstream no longer reads",
            hint="finish the job with the version that wrote it, or start afresh with a new checkpoint",
        )


def _damaged(name: str, why: str) -> JobError:
    return JobError(
        f"{name} is damaged", detail=why, hint="restore it from a copy of the checkpoint; it is not skipped over"
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


class _Table:
    """Texts that are written once and spoken of by number."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


def _content(manifest: Manifest) -> dict[str, Any]:
    states, files = _Table(), _Table()
    content = {name: _plain(getattr(manifest, name)) for name in (*_PLAIN, *_OPAQUE)}
    content["queries"] = {name: asdict(entry) for name, entry in manifest.queries.items()}
    content["segments"] = {
        query: {
            str(stage): {str(slot): _columns(entries, states, files) for slot, entries in slots.items()}
            for stage, slots in stages.items()
        }
        for query, stages in manifest.segments.items()
    }
    content["states"] = [[state, list(key)] for state, key in states.numbers]
    content["files"] = list(files.numbers)
    content["results"] = {query: [_row(file) for file in found] for query, found in manifest.results.items()}
    content["dead_letters"] = [_row(file) for file in manifest.dead_letters]
    return content


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if hasattr(value, "items") else value


def _row(value: Any) -> list[Any]:
    return [getattr(value, f.name) for f in fields(value)]


def _columns(entries: Iterable[SegmentEntry], states: _Table, files: _Table) -> dict[str, list[int]]:
    entries = list(entries)
    columns = {name: [getattr(entry, name) for entry in entries] for name in _NUMBERS}
    columns["state"] = [states((entry.state, entry.key)) for entry in entries]
    columns["file"] = [files(entry.file) for entry in entries]
    return columns


def _manifest(parsed: dict[str, Any]) -> Manifest:
    return Manifest(
        **{name: parsed[name] for name in (*_PLAIN, *_OPAQUE) if name != "routing"},
        routing=tuple(parsed["routing"]),
        queries={name: QueryEntry(**entry) for name, entry in parsed["queries"].items()},
        segments=_segments(parsed),
        results={query: tuple(ResultFile(*row) for row in rows) for query, rows in parsed["results"].items()},
        dead_letters=tuple(DeadLetterFile(*row) for row in parsed["dead_letters"]),
    )


def _segments(parsed: dict[str, Any]) -> Segments:
    states = [(state, tuple(key)) for state, key in parsed["states"]]
    files = parsed["files"]
    return {
        query: {
            int(stage): {int(slot): _entries(columns, states, files) for slot, columns in slots.items()}
            for stage, slots in stages.items()
        }
        for query, stages in parsed["segments"].items()
    }


def _entries(
    columns: dict[str, list[int]], states: list[tuple[str, tuple[str, ...]]], files: list[str]
) -> tuple[SegmentEntry, ...]:
    rows = zip(columns["state"], columns["file"], *(columns[name] for name in _NUMBERS), strict=True)
    made: Callable[..., SegmentEntry] = SegmentEntry
    return tuple(made(*states[state], files[file], *numbers) for state, file, *numbers in rows)
