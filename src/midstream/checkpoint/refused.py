"""Rows that the targets of sinks did not take: the dead letters of sinks, kept in the checkpoint that delivers.

They are written before the rest of their delivery, under a name that says whose they are: a repeat takes their place.
The name also says the batch, and how many rows and bytes there are, so that retention need not read them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from midstream.checkpoint.file_entries import DeadLetterFile
from midstream.checkpoint.files import Files

FOLDER = "deliveries/refused"

_NAME = re.compile(rf"{FOLDER}/(?P<batch>\d{{12,}})-(?P<rows>\d+)-(?P<bytes>\d+)-(?P<whose>[0-9a-f]+)\.json")


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
    lines = "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows).encode()
    path = f"{FOLDER}/{rows[0].batch_id:012d}-{len(rows)}-{len(lines)}-{whose}.json"
    before = [known for known in files.list(FOLDER) if known.endswith(f"-{whose}.json") and known != path]
    files.write_atomic(path, lines, point="deliveries")
    for known in before:
        files.delete(known)


def refused_rows(files: Files) -> Iterator[RefusedRow]:
    """All rows that sinks did not take, by batch."""
    newest = {path.rpartition("-")[2]: path for path in sorted(files.list(FOLDER)) if path.endswith(".json")}
    texts = [files.read(path).decode() for path in newest.values()]
    rows = [RefusedRow(**json.loads(line)) for text in texts for line in text.splitlines()]
    yield from sorted(rows, key=lambda row: row.batch_id)


def refused_files(files: Files) -> list[DeadLetterFile]:
    """The files of rows that sinks did not take."""
    found = filter(None, map(_NAME.fullmatch, files.list(FOLDER)))
    return [DeadLetterFile(one[0], int(one["rows"]), int(one["batch"]), bytes=int(one["bytes"])) for one in found]
