"""Repairing a checkpoint while no job runs: what can be put back is, and what is lost is given up only if asked to.

Spark's log is put back from manifests. State is never given up: without it results would be wrong, not missing. Results
and dead letters that are gone change nothing of how a job goes on; the next manifest is then the last one without them,
and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from midstream.checkpoint.check import check_state
from midstream.checkpoint.file_entries import DeadLetterFile, ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lease import Lease
from midstream.checkpoint.lists import without as left_of
from midstream.checkpoint.manifest import Manifest, of_our_own
from midstream.checkpoint.outputs import Output, open_output, outputs_of
from midstream.checkpoint.spark_log import log_after
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError


@dataclass(frozen=True, slots=True)
class Repair:
    """What was put back, what is lost, and whether that was given up."""

    restored: tuple[str, ...]
    lost: tuple[Output, ...]
    given_up: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the job can go on."""
        return not self.lost or self.given_up


def repair_at_rest(store: CheckpointStore, give_up: bool = False) -> Repair:
    """Repairs the checkpoint of a job that does not run; fails if one does, and if state is damaged."""
    with Lease.take(store.files, above=store.epoch()) as lease:
        manifest = store.latest()
        if manifest is None:
            raise JobError(
                f"no batch is done at {store.uri}", hint="is this the checkpoint that the job was started with?"
            )
        for error in check_state(store.files, manifest):
            raise error
        restored = tuple(log_after(store.files, manifest).repair(store))
        lost = tuple(_lost(store.files, outputs_of(store.files, manifest)))
        if lost and give_up:
            store.commit(replace(of_our_own(manifest, without(store.files, manifest, lost)), epoch=lease.number))
        return Repair(restored, lost, bool(lost) and give_up)


def _lost(files: Files, outputs: Iterable[Output]) -> Iterable[Output]:
    for output in list(outputs):
        files.forget(output.path)
        try:
            open_output(files, output)
        except JobError:
            yield output


def without(files: Files, manifest: Manifest, lost: Iterable[Output]) -> Manifest:
    """The manifest without some files of results or dead letters, which it remembers to have had."""
    gone = list(lost)
    paths = {output.path for output in gone}
    outputs = manifest.outputs
    records = [{"path": output.path, "rows": output.rows, "batch": output.batch_id} for output in gone]
    return manifest.with_outputs(
        results={query: left_of(files, log, ResultFile, paths) for query, log in outputs.results.items()},
        dead_letters=left_of(files, outputs.dead_letters, DeadLetterFile, paths),
        given_up=(*outputs.given_up, *records),
    )
