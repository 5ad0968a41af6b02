"""The manifests of a checkpoint, one per batch, each made once.

A batch is done when its manifest exists. Data files are safe from a crash of the machine before the manifest that
names them appears, and manifests go oldest first, so that those left are always the newest without a gap.
"""

from __future__ import annotations

from midstream.errors import JobError
from midstream.runtime.checkpoint.failures import AlreadyThere
from midstream.runtime.checkpoint.files import Files
from midstream.runtime.checkpoint.manifest import Manifest
from midstream.runtime.checkpoint.names import batch_of

MANIFESTS = "manifests"
SUFFIX = ".manifest"


class CheckpointStore:
    """The manifests under a checkpoint's address."""

    def __init__(self, uri: str | Files) -> None:
        self.files = Files.at(uri) if isinstance(uri, str) else uri

    @property
    def uri(self) -> str:
        """Where the checkpoint is."""
        return self.files.uri

    def batch_ids(self) -> list[int]:
        """The batches that are done and whose manifests are kept, oldest first."""
        found = []
        for path in self.files.list(MANIFESTS):
            name = path.rpartition("/")[2]
            if name.endswith(SUFFIX) and not name.startswith("."):
                found.append(int(name.removesuffix(SUFFIX)))
        return sorted(found)

    def latest(self) -> Manifest | None:
        """The newest manifest; none if no batch is done. A damaged one is an error, not passed over."""
        ids = self.batch_ids()
        return self.read(ids[-1]) if ids else None

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
        return manifest

    def exists(self, batch_id: int) -> bool:
        """Whether a batch is done."""
        return self.files.exists(manifest_path(batch_id))

    def commit(self, manifest: Manifest) -> None:
        """Makes a batch done, once all files of the batch are safe; the same manifest again changes nothing."""
        path, content = manifest_path(manifest.batch_id), manifest.to_bytes()
        for folder in sorted({f.rpartition("/")[0] for f in manifest.files() if batch_of(f) == manifest.batch_id}):
            self.files.sync(folder)
        try:
            self.files.write_atomic(path, content, only_if_absent=True, point="manifest")
        except AlreadyThere as error:
            if self.files.read(path) == content:
                return
            raise JobError(
                f"batch {manifest.batch_id} is done already, with another outcome",
                detail=f"{self.files.full(path)} is not the manifest that was to be written",
                hint="is a second driver at work on this checkpoint?",
            ) from error

    def retain(self, n: int) -> list[int]:
        """Removes all but the newest `n` manifests; gives the batches removed."""
        if n < 1:
            raise JobError(f"at least one manifest must be retained, not {n}")
        gone = self.batch_ids()[:-n]
        for batch_id in gone:
            self.files.delete(manifest_path(batch_id))
        return gone


def manifest_path(batch_id: int) -> str:
    """Where the manifest of a batch is."""
    return f"{MANIFESTS}/{batch_id:012d}{SUFFIX}"
