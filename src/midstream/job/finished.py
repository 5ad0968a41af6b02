"""A finished job: all its streams were declared to have ended, and it takes in nothing more."""

from __future__ import annotations

from midstream.checkpoint.manifest import Manifest
from midstream.errors import JobError


def is_finished(manifest: Manifest | None) -> bool:
    """Whether all streams were declared to have ended."""
    return manifest is not None and manifest.settings.finished


def require_unfinished(manifest: Manifest | None, uri: str) -> None:
    """Fails if the job takes in nothing more."""
    if is_finished(manifest):
        raise JobError(
            f"the job in {uri} has been finished: its streams were declared to have ended",
            detail="rows that arrived since are not read",
            hint="use a new checkpoint",
        )
