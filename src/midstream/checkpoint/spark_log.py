"""Spark's logs of what batches read, kept in step with the manifests, and read without Spark.

Spark logs the offsets of a batch before it runs it, and does not sync the log: after a power loss the newest entries
can be missing or empty. Planned again, such a batch would read other rows than its manifest counts as done. So the
entries of a batch are made safe before its manifest is, each manifest has its batch's entry word for word, and what is
missing is put back from manifests before Spark starts. An entry that differs from its manifest is refused.

Spark counts its batches from zero in every log. A job that comes to Spark with batches behind it gets a log of its own,
whose name is the number of its first batch. What the log says was read of folders can be had without Spark, so that
another cluster leaves those files out.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlparse

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.files import Files, begin, wait_for
from midstream.checkpoint.manifest import Manifest, source_batch
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError

log = logging.getLogger(__name__)

LOCAL = "local"
"""What manifests of batches that ran in this process have instead of the identity of a Spark query."""

FIRST, LATER = "spark", "spark_logs"
"""The folders under the checkpoint that are Spark's own: that of the first log, and that of later ones."""

COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
"""Spark's note that a batch is done, for a query without watermarks of Spark's."""


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that Spark has listed, and when it was written, in milliseconds.

    It has a path, or an address if it is on no disk of this machine.
    """

    path: str
    modified: int

    @staticmethod
    def of(entry: Mapping[str, Any]) -> LoggedFile:
        """The file of an entry of Spark's log."""
        return LoggedFile(_path(entry["path"]), int(entry["timestamp"]))


@dataclass(slots=True)
class SparkLog:
    """Spark's logs under a checkpoint, in a folder; `base` is the batch of the source that Spark calls zero there."""

    files: Files
    folder: str = FIRST
    base: int = 0
    _safe: dict[str, int] = field(default_factory=dict)
    """Up to which entry the logs of file sources are safe."""

    @property
    def metadata(self) -> str:
        """The file with the identity of Spark's query."""
        return f"{self.folder}/metadata"

    def offsets(self, batch: int) -> str:
        """The file with the offsets of a batch."""
        return f"{self.folder}/offsets/{batch - self.base}"

    def commits(self, batch: int) -> str:
        """The file that says that a batch is done, sinks and all."""
        return f"{self.folder}/commits/{batch - self.base}"

    def query_id(self) -> str:
        """The identity of Spark's checkpoint."""
        return str(json.loads(self.files.read(self.metadata))["id"])

    def entry(self, batch: int) -> str:
        """The entry of a batch."""
        return self.files.read(self.offsets(batch)).decode()

    def safe_entry(self, batch: int, entry: str | None = None) -> str:
        """The entry of a batch, once it and what it refers to are safe from a crash of the machine."""
        entry = self.entry(batch) if entry is None else entry
        paths = [self.offsets(batch), f"{self.folder}/offsets"]
        for source, number in _file_logs(entry):
            if self._safe.get(source, -1) < number:
                self._safe[source] = number
                paths += [self._source_entry(source, number) or "", f"{self.folder}/sources/{source}"]
        wait_for([begin(self.files.sync, path) for path in paths if path])
        return entry

    def require_same(self, manifest: Manifest) -> None:
        """Fails if Spark repeats a batch with other offsets than those that its manifest was made with."""
        batch = source_batch(manifest)
        if manifest.offsets and self._entry(self.offsets(batch)) != manifest.offsets:
            raise self._differs(batch, manifest)

    def paths_read(self, manifest: Manifest) -> set[str]:
        """The files that had been read by a manifest, as absolute paths, of all sources that are folders."""
        found: set[str] = set()
        for source, newest in _file_logs(manifest.offsets):
            for path in self.files.list(f"{self.folder}/sources/{source}"):
                if path.rpartition("/")[2].removesuffix(".compact").isdecimal():
                    found |= _paths(self.files.read(path).decode(), newest)
        return found

    def files_between(self, before: str, entry: str) -> dict[str, list[LoggedFile]]:
        """The files that folders have given between two entries, by source; an empty entry is the start."""
        known, found = dict(_file_logs(before)), dict[str, list[LoggedFile]]()
        for source, newest in _file_logs(entry):
            found[source] = []
            for number in range(known.get(source, -1) + 1, newest + 1):
                path = self._source_entry(source, number)
                if path is None:
                    raise MissingFile(f"{self.folder}/sources/{source}/{number}")
                lines = self.files.read(path).decode().split("\n")[1:]
                read = (json.loads(line) for line in lines if f'"batchId":{number}' in line.replace(" ", ""))
                found[source] += [LoggedFile.of(entry) for entry in read if entry["batchId"] == number]
        return found

    def repair(self, store: CheckpointStore) -> list[str]:
        """Puts back what Spark's logs have lost of batches that are done; gives the files made or removed."""
        latest = store.latest()
        if latest is None or not _is_sparks(latest):
            return []
        done = (manifest for manifest in _newest_first(store) if manifest.query_id == latest.query_id)
        newest = next(done, None)
        if newest is None:
            return []
        self._require_sources(newest)
        changed = self._restore_identity(newest)
        last = source_batch(newest)
        changed += self._drop_torn(last)
        changed += self._restore(newest, last)
        if last > self.base:
            earlier = next((m for m in done if source_batch(m) < last), None)
            if earlier is not None and source_batch(earlier) == last - 1:
                changed += self._restore(earlier, last)
            self._require_entry(last - 1, newest)
        if changed:
            log.warning("Spark's log had lost entries of batches that are done; restored: %s", ", ".join(changed))
        return changed

    def is_by_order(self) -> bool:
        """Whether Spark has begun the log without names for its sources: it knows them by their order for good then."""
        names = (path for path in self.files.list(f"{self.folder}/offsets") if path.rpartition("/")[2].isdecimal())
        return any(self.files.read(path).startswith(b"v1") for path in list(names)[:1])

    def sweep(self) -> None:
        """Removes an unfinished first entry of a query that was interrupted: beside one, Spark begins no query."""
        paths = self.files.list(f"{self.folder}/offsets")
        if all(path.rpartition("/")[2].startswith(".") for path in paths):
            for path in paths:
                self.files.delete(path)

    def _restore_identity(self, manifest: Manifest) -> list[str]:
        if self._entry(self.metadata) is not None:
            return []
        return self._write(self.metadata, json.dumps({"id": manifest.query_id}))

    def _drop_torn(self, last: int) -> list[str]:
        """Removes what was being written when the machine went down: entries of a batch that is not done, and notes."""
        offsets = [self.offsets(n) for n in self._numbers("offsets") if n > last]
        torn = [p for p in (*offsets, *(self.commits(n) for n in self._numbers("commits"))) if self._entry(p) is None]
        for path in torn:
            self._remove(path)
        return torn

    def _restore(self, manifest: Manifest, last: int) -> list[str]:
        batch, changed = source_batch(manifest), list[str]()
        present = self._entry(self.offsets(batch))
        if present is None:
            changed += self._write(self.offsets(batch), manifest.offsets)
        elif present != manifest.offsets:
            raise self._differs(batch, manifest)
        # The sinks of a batch have been called before the next one began; those of the last one are called again.
        if batch < last and self._entry(self.commits(batch)) is None:
            changed += self._write(self.commits(batch), COMMITTED)
        return changed

    def _require_entry(self, batch: int, newest: Manifest) -> None:
        if self._entry(self.offsets(batch)) is None:
            raise JobError(
                f"Spark's log has lost batch {batch}, and no manifest has it any more",
                detail=f"{self.files.full(self.offsets(batch))} is missing; batch {newest.batch_id} is the last done",
                hint="restore Spark's folder of the checkpoint from a copy",
            )

    def _require_sources(self, manifest: Manifest) -> None:
        for source, number in _file_logs(manifest.offsets):
            path = self._source_entry(source, number)
            if path is None or self._entry(path) is None:
                raise JobError(
                    f"Spark's list of the files that source {source} has read lacks entry {number}",
                    detail=f"{self.files.full(f'{self.folder}/sources/{source}')} goes with batch {manifest.batch_id}, "
                    "which is done: without it Spark would count other files to that batch, and never read them",
                    hint="restore Spark's folder of the checkpoint from a copy, or use a new checkpoint",
                )

    def _source_entry(self, source: str, number: int) -> str | None:
        names = (f"{self.folder}/sources/{source}/{number}", f"{self.folder}/sources/{source}/{number}.compact")
        return next((path for path in names if self.files.exists(path)), None)

    def _entry(self, path: str) -> str | None:
        """An entry; None if it is missing, or was torn by a crash of the machine."""
        try:
            content = self.files.read(path)
        except MissingFile:
            return None
        return content.decode() if content.strip(b"\0") and b"\0" not in content else None

    def _numbers(self, folder: str) -> list[int]:
        names = (path.rpartition("/")[2] for path in self.files.list(f"{self.folder}/{folder}"))
        return sorted(int(name) + self.base for name in names if name.isdecimal())

    def _differs(self, batch: int, manifest: Manifest) -> JobError:
        return JobError(
            f"Spark's log and the manifest of batch {manifest.batch_id} have different offsets: it was planned again",
            detail=f"{self.files.full(self.offsets(batch))} is not what the batch was made with, which its manifest "
            "has; rows between the two would be lost",
            hint="restore Spark's folder of the checkpoint from a copy, or use a new checkpoint",
        )

    def _write(self, path: str, content: str) -> list[str]:
        self._remove(path)
        self.files.write_atomic(path, content.encode(), point="offset_log")
        return [path]

    def _remove(self, path: str) -> None:
        # Hadoop keeps a checksum beside each file, which would not be that of another content.
        folder, _, name = path.rpartition("/")
        self.files.delete(f"{folder}/.{name}.crc")
        self.files.delete(path)


def _newest_first(store: CheckpointStore) -> Iterator[Manifest]:
    return (manifest for batch in reversed(store.batch_ids()) if (manifest := store.read(batch)).offsets)


def _is_sparks(manifest: Manifest) -> bool:
    try:
        return str(uuid.UUID(manifest.query_id)) == manifest.query_id
    except ValueError:
        return False


def _file_logs(entry: str) -> Iterator[tuple[str, int]]:
    """The file sources of an entry, by the names of their folders, and how far their own logs were."""
    version, _, *offsets = entry.splitlines() or ["", ""]
    for place, line in enumerate(offsets):
        name, offset = line.split(":", 1) if version == "v2" else (str(place), line)
        try:
            record = json.loads(offset)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("logOffset"), int):
            yield name, record["logOffset"]


def _paths(content: str, newest: int) -> set[str]:
    entries = [json.loads(line) for line in content.split("\n")[1:] if line]
    return {_path(entry["path"]) for entry in entries if entry["batchId"] <= newest}


def _path(address: str) -> str:
    """The path or address of a file that Spark has written down.

    >>> _path("file:///a/b%20c.csv"), _path("s3a://bucket/a%20b.csv")
    ('/a/b c.csv', 's3a://bucket/a b.csv')
    """
    return unquote(urlparse(address).path if address.startswith("file:/") else address)


def log_after(files: Files, manifest: Manifest | None) -> SparkLog:
    """The log that Spark goes on with after a manifest, or the one that it begins."""
    if manifest is None:
        return SparkLog(files)
    if manifest.query_id == LOCAL:
        return _later(files, source_batch(manifest) + 1)
    return log_of(files, manifest) or SparkLog(files)


def log_of(files: Files, manifest: Manifest) -> SparkLog | None:
    """The log whose query made a manifest."""
    bases = {path.split("/")[1] for path in files.list(LATER) if path.endswith("/metadata")}
    logs = [*(_later(files, int(base)) for base in sorted(bases, reverse=True)), SparkLog(files)]
    return next((log for log in logs if files.exists(log.metadata) and log.query_id() == manifest.query_id), None)


def _later(files: Files, base: int) -> SparkLog:
    return SparkLog(files, f"{LATER}/{base:012d}", base)
