"""How far a job has got with running, and why it stopped, for everybody who looks at its checkpoint.

A run that fails leaves a record of its error. The record counts until a batch is committed after it: whoever looks sees
what stands between the job and its next batch, also while it is started again. A run that ends in order gives its lease
back; one whose lease was not given back, and that nobody renews, was killed.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lease import Seen, is_held, seen
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError, MidstreamError

LAST_ERROR = "last_error.json"
"""The file with the error that ended a run."""

LONGEST = 2000
"""How many characters of a message, a detail or a hint are kept."""


class JobPhase(StrEnum):
    """What a job does now."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPED = "stopped"
    FAILED = "failed"
    FINISHED = "finished"


class Reason(StrEnum):
    """Why a run has ended: an error, a death without a word, or because it was told to."""

    ERROR = "error"
    KILLED = "killed"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class RunStop:
    """The end of a run: `at` is the wall clock in seconds since 1970, `batch` the newest that was done by then."""

    reason: Reason
    at: float
    message: str
    detail: str | None = None
    hint: str | None = None
    batch: int | None = None

    @staticmethod
    def by_error(error: BaseException, at: float, batch: int | None) -> RunStop:
        """The end of a run by an error."""
        if isinstance(error, MidstreamError):
            notes = [*([error.detail] if error.detail else []), *getattr(error, "__notes__", ())]
            return _cut(RunStop(Reason.ERROR, at, error.message, "; ".join(notes) or None, error.hint, batch))
        message = "internal error: this is a defect of Midstream, or of a function or sink that it called"
        return _cut(RunStop(Reason.ERROR, at, message, f"{type(error).__name__}: {error}", None, batch))


@dataclass(frozen=True, slots=True)
class JobStanding:
    """What a job does now; `stop` is why it does not run, or what ended its last run if no batch is done since."""

    phase: JobPhase
    stop: RunStop | None = None

    @property
    def runs(self) -> bool:
        """Whether somebody is at it."""
        return self.phase in (JobPhase.RUNNING, JobPhase.STARTING)

    def of_query(self, status: str) -> str:
        """The status of a query: one that would run does so only while the job does."""
        return str(self.phase) if status == "running" else status

    def to_json(self) -> dict[str, Any]:
        """What every view shows of it."""
        return {"phase": str(self.phase), "stopped": None if self.stop is None else asdict(self.stop)}


def record_error(files: Files, stop: RunStop) -> None:
    """Writes down what ended a run; its lease has to be held."""
    files.write_atomic(LAST_ERROR, json.dumps(asdict(stop)).encode(), point="last_error")


def last_error(files: Files, batch: int | None) -> RunStop | None:
    """What ended a run after which no batch was done; `batch` is the newest."""
    try:
        record = json.loads(files.read(LAST_ERROR))
        stop = RunStop(**{**record, "reason": Reason(record["reason"])})
    except MissingFile:
        return None
    except (ValueError, TypeError, KeyError):
        return None  # a power failure may leave half of it, and no batch depends on it
    return stop if (-1 if stop.batch is None else stop.batch) >= (-1 if batch is None else batch) else None


def standing(files: Files, manifest: Manifest | None) -> JobStanding:
    """What a job does now; `manifest` is its newest."""
    present = seen(files)
    batch = None if manifest is None else manifest.batch_id
    failed = last_error(files, batch)
    if present is not None and is_held(present.holder):
        return JobStanding(JobPhase.RUNNING if present.holder.working else JobPhase.STARTING, failed)
    if manifest is not None and manifest.settings.finished:
        return JobStanding(JobPhase.FINISHED)
    if failed is not None:
        return JobStanding(JobPhase.FAILED, failed)
    stop = None if present is None else _without_error(present, batch)
    return JobStanding(JobPhase.FAILED if stop is not None and stop.reason is Reason.KILLED else JobPhase.STOPPED, stop)


def newest_manifest(store: CheckpointStore) -> Manifest:
    """The newest manifest of a checkpoint; refuses one that has none, and says why."""
    manifest = store.latest()
    if manifest is None:
        raise _no_batch(store.uri, standing(store.files, None))
    return manifest


def _no_batch(uri: str, now: JobStanding) -> JobError:
    if now.phase is JobPhase.STARTING:
        return JobError(f"the job on {uri} is starting, and no batch is done yet", hint="ask again in a moment")
    if now.phase is JobPhase.RUNNING:
        return JobError(f"the job on {uri} runs, and no batch is done yet", hint="it waits for rows")
    if now.stop is not None and now.stop.reason is not Reason.ASKED:
        return JobError(
            f"the job on {uri} stopped before any batch was done: {now.stop.message}",
            detail=now.stop.detail,
            hint=now.stop.hint,
        )
    return JobError(
        f"there is no finished batch at {uri}, and no job runs there",
        hint="is this the checkpoint that the job was started with?",
    )


def stop_lines(now: JobStanding) -> list[str]:
    """Why a job does not run, line by line; nothing of one that was stopped in order."""
    stop = now.stop
    if stop is None or stop.reason is Reason.ASKED:
        return []
    at = dt.datetime.fromtimestamp(stop.at, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    first = f"{at}{'' if stop.batch is None else f', after batch {stop.batch}'}: {stop.message}"
    since = "" if now.phase is JobPhase.FAILED else ", and no batch is done since"
    lines = [f"stopped by an error{since}, {first}" if stop.reason is Reason.ERROR else f"stopped {first}"]
    return [*lines, *(f"  {name}: {text}" for name in ("detail", "hint") if (text := getattr(stop, name)))]


def _without_error(present: Seen, batch: int | None) -> RunStop:
    """How a run ended that has left no error."""
    holder = present.holder
    if holder.released:
        return RunStop(Reason.ASKED, holder.renewed, "the job was stopped, as it was asked to", batch=batch)
    return RunStop(
        Reason.KILLED,
        holder.renewed,
        "the job's process ended without a word",
        f"{holder} did not give its lease back; it last renewed it at this time",
        "it was killed, or its machine failed: look for a lack of memory in the system's log; then start it again",
        batch,
    )


def _cut(stop: RunStop) -> RunStop:
    texts = {name: text[:LONGEST] for name in ("message", "detail", "hint") if (text := getattr(stop, name))}
    return replace(stop, **texts)
