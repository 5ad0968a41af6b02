"""Rows that the targets of sinks did not take: the dead letters of sinks, kept in the checkpoint that delivers.

They are written before the rest of their delivery, under a name that the same delivery has again when it is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from midstream.checkpoint.files import Files

FOLDER = "deliveries/refused"


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A result of a query, as JSON, that a sink did not take with a batch, and why."""

    query: str
    sink: str
    batch_id: int
    reason: str
    row: str


def keep_refused(files: Files, rows: Sequence[RefusedRow], delivery: str) -> None:
    """Keeps the rows of a delivery, which is named by what a repeat of it has again."""
    whose = hashlib.blake2b(f"{rows[0].query}\0{rows[0].sink}\0{delivery}".encode(), digest_size=8).hexdigest()
    lines = "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
    files.write_atomic(f"{FOLDER}/{whose}.json", lines.encode(), point="deliveries")


def refused_rows(files: Files) -> Iterator[RefusedRow]:
    """All rows that sinks did not take, by batch."""
    texts = [files.read(path).decode() for path in files.list(FOLDER) if path.endswith(".json")]
    rows = [RefusedRow(**json.loads(line)) for text in texts for line in text.splitlines()]
    yield from sorted(rows, key=lambda row: row.batch_id)
