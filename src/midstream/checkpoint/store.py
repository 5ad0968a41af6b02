"""The manifests of a checkpoint, one per batch, each made once.

A batch is done when its manifest exists. Data files are safe from a crash of the machine before the manifest that
names them appears, and manifests go oldest first, so that those left are always the newest without a gap. A manifest
carries the number of the lease it was made under, and none is made after one of a later lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.crash_points import reach
from midstream.checkpoint.failures import AlreadyThere, MissingFile
from midstream.checkpoint.files import Files, begin, wait_for
from midstream.checkpoint.manifest import Manifest, source_batch
from midstream.checkpoint.names import batch_of
from midstream.errors import JobError

MANIFESTS = "manifests"
SUFFIX = ".manifest"

FOR_A_REPLAY = 2
"""How many manifests a job needs to go on: of the newest batch the sinks may have to be called again, which takes the
one before it."""


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """What a manifest names: files, and among them the lists, which name more; and its epoch."""

    files: frozenset[str]
    lists: frozenset[str]
    epoch: int = 0


class CheckpointStore:
    """The manifests under a checkpoint's address."""

    def __init__(self, uri: str | Files) -> None:
        self.files = files_at(uri) if isinstance(uri, str) else uri
        self._named: dict[int, NamedFiles] = {}
        self._removing: Future[None] | None = None
        """The removal of old manifests that was begun last."""

    @property
    def uri(self) -> str:
        """Where the checkpoint is."""
        return self.files.uri

    def batch_ids(self) -> list[int]:
        """The batches that are done and whose manifests are kept, oldest first."""
        self.wait()
        found = map(_batch_at, self.files.list(MANIFESTS))
        return sorted(batch_id for batch_id in found if batch_id is not None)

    def _newest(self) -> int | None:
        """The batch that was done last; its manifest's name is the last of all."""
        found = map(_batch_at, reversed(self.files.list(MANIFESTS)))
        return next((batch_id for batch_id in found if batch_id is not None), None)

    def wait(self) -> None:
        """Waits until old manifests are gone."""
        removing, self._removing = self._removing, None
        wait_for([] if removing is None else [removing])

    def latest(self) -> Manifest | None:
        """The newest manifest; none if no batch is done. A damaged one is an error, not passed over."""
        ids = self.batch_ids()
        while ids:
            try:
                return self.read(ids[-1])
            except MissingFile:
                newer = self.batch_ids()
                if newer[-1:] == ids[-1:]:
                    raise
                ids = newer  # while it was opened, newer batches were done and it has gone
        return None

    def make_safe(self) -> None:
        """Makes all manifests that are there safe: the process that made the newest may have died before it was."""
        if self.batch_ids():
            self.files.sync(MANIFESTS)

    def read(self, batch_id: int) -> Manifest:
        """The manifest of a batch."""
        path = manifest_path(batch_id)
        name = self.files.full(path)
        manifest = Manifest.from_bytes(self.files.read(path), name)
        if manifest.batch_id != batch_id:
            raise JobError(
                f"{name} is the manifest of batch {manifest.batch_id}",
                hint="files of the checkpoint have been renamed: restore it from a copy",
            )
        self._named[batch_id] = _named(manifest)
        return manifest

    def named(self, batch_id: int) -> NamedFiles:
        """What the manifest of a batch names; read once, because manifests never change."""
        if batch_id not in self._named:
            self.read(batch_id)
        return self._named[batch_id]

    def epoch(self) -> int:
        """The epoch of the newest manifest; 0 if no batch is done."""
        ids = self.batch_ids()
        return self.named(ids[-1]).epoch if ids else 0

    def before(self, batch: int, query_id: str) -> Manifest | None:
        """The manifest that a batch of the source goes on from; none for the very first batch.

        Whether Spark's checkpoint, which counts the batches, is the one this checkpoint was made with is checked here.
        """
        newest = self.latest()
        if batch == 0 and newest is None:
            return None
        if newest is not None and newest.query_id != query_id:
            raise JobError(
                f"the checkpoint {self.uri} belongs to another Spark query",
                detail=f"it was made by {newest.query_id}, which is not {query_id}",
                hint="Spark's checkpoint and this one go together: restore the one that is missing, or remove both",
            )
        if newest is None or batch > source_batch(newest) + 1:
            last = "no batch is done" if newest is None else f"batch {source_batch(newest)} is the last done"
            raise JobError(
                f"Spark continues with batch {batch}, but in the checkpoint {self.uri} {last}",
                hint="Spark's checkpoint and this one go together: restore the manifests that are missing",
            )
        return newest if batch == source_batch(newest) + 1 else self.done(batch)[0][0]

    def done(self, batch: int) -> list[tuple[Manifest | None, Manifest]]:
        """What was done of a batch of the source, its own manifest first, each with the one before it."""
        ids = self.batch_ids()
        found: list[Manifest] = []
        for manifest in map(self.read, reversed(ids)):
            if source_batch(manifest) == batch:
                found.insert(0, manifest)
            elif source_batch(manifest) < batch:
                found.insert(0, manifest)
                break
        if not found or (source_batch(found[0]) == batch and found[0].batch_id > 0):
            raise JobError(
                f"Spark goes back to batch {batch}, but the checkpoint {self.uri} only keeps batches from {ids[0]}",
                hint="Spark's checkpoint and this one go together: restore the right one of the two",
            )
        earlier: list[Manifest | None] = [*([None] if source_batch(found[0]) == batch else []), *found[:-1]]
        return list(zip(earlier, found[-len(earlier) :], strict=True))

    def commit(self, manifest: Manifest, written: Callable[[], None] = lambda: None) -> None:
        """Makes a batch done, once all files of the batch are safe; the same manifest again changes nothing.

        `written` waits for files of the batch that are still being written, and may be called by several threads.
        """
        path, content = manifest_path(manifest.batch_id), manifest.to_bytes()
        self._refuse_what_is_behind(manifest)
        reach("commit.before_sync")
        named = _named(manifest)
        made = f"/{manifest.batch_id:012d}-"
        folders = {f.rpartition("/")[0] for f in named.files if made in f and batch_of(f) == manifest.batch_id}
        # By one thread: to hand a folder over takes longer than to make it safe once the one before is.
        syncs = [begin(self._make_names_safe, sorted(folders), written)] if folders else []

        def once() -> None:
            wait_for(syncs)
            written()

        try:
            self.files.write_atomic(path, content, only_if_absent=True, point="manifest", once=once)
            self._named[manifest.batch_id] = named
        except AlreadyThere as error:
            if self.files.read(path) == content:
                return
            raise JobError(
                f"batch {manifest.batch_id} is done already, with another outcome",
                detail=f"{self.files.full(path)} is not the manifest that was to be written",
                hint="does a second driver run on this checkpoint?",
            ) from error

    def _make_names_safe(self, folders: Iterable[str], written: Callable[[], None]) -> None:
        written()
        for folder in folders:
            self.files.sync(folder)

    def _refuse_what_is_behind(self, manifest: Manifest) -> None:
        """Fails if a later driver has committed: its manifests may have taken the place of ours, and ours be gone."""
        newest = self._newest()
        epoch = 0 if newest is None else self.named(newest).epoch
        if newest is not None and (newest > manifest.batch_id or epoch > manifest.epoch):
            raise JobError(
                f"batch {manifest.batch_id} is not committed: another driver has continued with {self.uri}",
                detail=f"batch {newest} is done, in epoch {epoch}; this driver's is {manifest.epoch}",
                hint="this driver was unresponsive for too long; leave the job to the other one",
            )

    def retain(self, n: int, still_held: Callable[[], None] = lambda: None) -> list[int]:
        """Removes all but the newest `n` manifests while the caller goes on; gives the batches removed.

        `still_held` fails if the lease is lost. It is asked once it is known what goes: what was old while the lease
        was held is old for every later driver too.
        """
        if n < 1:
            raise JobError(f"at least one manifest must be retained, not {n}")
        gone = self.batch_ids()[:-n]
        if gone:
            still_held()
            self._removing = begin(self._remove, gone)
        return gone

    def _remove(self, gone: Sequence[int]) -> None:
        for batch_id in gone:
            reach("retain.before_delete")
            self.files.delete(manifest_path(batch_id))
            reach("retain.after_delete")
            self._named.pop(batch_id, None)


def _named(manifest: Manifest) -> NamedFiles:
    return NamedFiles(frozenset(manifest.files()), frozenset(manifest.lists()), manifest.epoch)


def _batch_at(path: str) -> int | None:
    """The batch of a manifest by its path; None for other files."""
    number = path.rpartition("/")[2].removesuffix(SUFFIX)
    return int(number) if path.endswith(SUFFIX) and number.isdecimal() else None


def manifest_path(batch_id: int) -> str:
    """Where the manifest of a batch is."""
    return f"{MANIFESTS}/{batch_id:012d}{SUFFIX}"
