"""An envelope around JSON: a first line that says what follows, then JSON, compressed when it is large.

The first line carries the kind, the format, the length and a checksum of all of it: a torn or changed file is known
before anything in it is believed, and the format before anything in it is understood.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from midstream.errors import InternalError, JobError

COMPRESS_FROM = 16_384
"""The size from which content is compressed."""

Upgrades = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
"""For each older format that can still be read, how its content becomes that of the next."""


def seal(kind: str, version: int, content: dict[str, Any]) -> bytes:
    """Content in an envelope; equal content gives equal bytes."""
    body = _json(content)
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


def unseal(kind: str, version: int, upgrades: Upgrades, sealed: bytes, name: str) -> dict[str, Any]:
    """The content of an envelope, checked, in the newest format; `name` is what errors call the file."""
    first, _, body = sealed.partition(b"\n")
    head = _head(kind, first, name)
    _supported(head["format"], version, upgrades, name)
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
    for older in range(head["format"], version):
        content = upgrades[older](content)
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


def _supported(found: int, version: int, upgrades: Upgrades, name: str) -> None:
    if found > version:
        raise JobError(
            f"{name} has format {found}, this version of Midstream reads formats up to {version}",
            hint="use the version of Midstream that wrote it, or a later one",
        )
    if any(older not in upgrades for older in range(found, version)):
        raise JobError(
            f"{name} has format {found}, which this version of Midstream no longer reads",
            hint="finish the job with the version that wrote it, or start with a new checkpoint",
        )


def _json(value: Any) -> bytes:
    try:
        text = json.dumps(
            value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False, default=_number
        )
        return text.encode()
    except (ValueError, TypeError) as error:
        raise InternalError("a manifest holds what JSON cannot say", detail=str(error)) from error


def _number(value: Any) -> Any:
    """NumPy's numbers as plain ones."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} {value!r:.100}")
