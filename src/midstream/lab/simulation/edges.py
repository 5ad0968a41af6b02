"""The edges of a simulated job: folders that rows come from, folders that results go to, and copies of its checkpoint.

Folders of sources are real ones, so that what a file is follows from the same code as in a job: they are moved, copied
and declared by another path, and for a time they cannot be listed. Results go into a folder on a disk of its own, which
a checkpoint that is restored knows nothing of.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import Delivery, Folder
from midstream.connectors.files.listing import is_unfinished
from midstream.lab.simulated_cluster.cluster import SimulatedSource
from midstream.lab.simulation.workload import SCHEMA

SCHEMA_TEXT = "k BIGINT, v BIGINT, ts BIGINT"
FIRST_WRITTEN = 1_700_000_000


class Sources:
    """Where streams come from: files in memory, which nothing happens to."""

    def __init__(self, at_once: int | None) -> None:
        self.at_once = at_once
        self.files: dict[str, SimulatedSource] = {}

    def declare(self, session: CheckpointSession, name: str, lateness: int) -> None:
        """Opens a stream."""
        session.stream(name, self._source(name), lateness=lateness)

    def put(self, name: str, path: str, rows: pa.Table) -> None:
        """Adds a file, younger than all others."""
        self._source(name).files[path] = rows

    def change(self, name: str, random: Random) -> str | None:
        """Moves or copies a folder, or has it declared by another path; says what it did, if there is one."""
        return None

    def hide(self, name: str) -> str | None:
        """Takes a folder away for a time; says so, if there is one."""
        return None

    def show(self, name: str) -> None:
        """Has a folder be there again."""

    def remove(self) -> None:
        """Removes all of it."""

    def _source(self, name: str) -> SimulatedSource:
        return self.files.setdefault(name, SimulatedSource(SCHEMA, self.at_once))


class SourceFolders(Sources):
    """The folders of streams: where each is, and by which path it is declared."""

    def __init__(self, at_once: int | None, seed: int) -> None:
        super().__init__(at_once)
        # A seed has the same place whenever this process runs it.
        self.place = Path(tempfile.gettempdir()) / f"midstream-simulation-{os.getpid()}-{seed}"
        self.folders: dict[str, Path] = {}
        self.parents: set[str] = set()
        """The streams that are declared by the folder above theirs, in which there is nothing else."""
        self.hidden: set[str] = set()
        self.written = 0
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def declare(self, session: CheckpointSession, name: str, lateness: int) -> None:
        folder = self._folder(name)
        path = folder.parent if name in self.parents else folder
        options = {} if self.at_once is None else {"maxFilesPerTrigger": str(self.at_once)}
        session.open_stream(name, "parquet", path=str(path), schema=SCHEMA_TEXT, options=options, lateness=lateness)

    def put(self, name: str, path: str, rows: pa.Table) -> None:
        folder = _away(self._folder(name)) if name in self.hidden else self._folder(name)
        self.written += 1
        pq.write_table(rows, folder / f"_{path}")
        os.utime(folder / f"_{path}", (FIRST_WRITTEN + self.written,) * 2)
        os.rename(folder / f"_{path}", folder / path)

    def change(self, name: str, random: Random) -> str:
        self.show(name)
        folder = self._folder(name)
        how = random.choice(["moved", "copied", "declared by another path"])
        if how == "declared by another path":
            self.parents ^= {name}
            return how
        new = folder.parent.parent / f"{random.getrandbits(32):x}" / "files"
        new.parent.mkdir()
        os.rename(folder, new) if how == "moved" else shutil.copytree(folder, new)
        self.folders[name] = new
        return how

    def hide(self, name: str) -> str:
        folder = self._folder(name)
        if name not in self.hidden:
            os.rename(folder, _away(folder))
            self.hidden.add(name)
        return "away"

    def show(self, name: str) -> None:
        if name in self.hidden:
            os.rename(_away(self._folder(name)), self._folder(name))
            self.hidden.remove(name)

    def _folder(self, name: str) -> Path:
        if name not in self.folders:
            self.folders[name] = self.place / name / "0" / "files"
            self.folders[name].mkdir(parents=True)
        return self.folders[name]


def _away(folder: Path) -> Path:
    return folder.parent / f".{folder.name}"


class FlakyFolder(Folder):
    """A folder of results that fails as often as `fails` says, before or after it has taken them."""

    def __init__(self, uri: str, fails: Callable[[], bool], failure: Callable[[], Exception]) -> None:
        super().__init__(uri)
        self.fails, self.failure = fails, failure

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Takes results, or fails."""
        if self.fails():
            raise self.failure()
        super().deliver(results, delivery)
        if self.fails():
            raise self.failure()


def held_by_identity(folder: Folder) -> dict[str, Counter[str]]:
    """The rows in a folder of results, by the identities of their queries."""
    found: dict[str, Counter[str]] = {}
    for path in folder.files.list(""):
        if is_unfinished(path):
            continue
        table = pq.read_table(pa.BufferReader(folder.files.read(path)), partitioning=None)
        identity = json.loads(table.schema.metadata[b"midstream"])["query_identity"]
        found.setdefault(identity, Counter()).update(map(str, table.to_pylist()))
    return found


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a checkpoint, and what was known when it was made."""

    content: dict[str, bytes]
    batch: int
    """The newest batch in it."""
    answers: dict[str, dict[str, Any]]


@dataclass(slots=True)
class Copies:
    """The newest copy of a checkpoint, and whether one was ever put into its place."""

    newest: Copy | None = None
    restored: bool = False
