"""Who may write where: the places of a job, checked against each other when they are declared.

A checkpoint is its job's alone: nothing else is read or written below it, and it lies in no folder that the job reads
or writes as data, nor in another checkpoint. What a job writes it must not read as a stream. Places are compared as
they are, behind links and spellings of addresses. Several sinks may share a folder, and so may several streams.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from midstream.checkpoint import fetched
from midstream.checkpoint.addresses import local_path
from midstream.errors import JobError

Kind = Literal["checkpoint", "source", "sink", "cache"]

_SAMPLES = (
    "000000000000.manifest",
    "record",
    "mark",
    "0.json",
    *(f"000-00{s}" for s in (".pack", ".parquet", ".list")),
)
"""Names as files of checkpoints and sinks have them, for patterns to be tried on."""

_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that a job uses: `name` is that of the stream that is read there, or of the query that is written there.

    Of a folder that is read, only files whose names fit the `pattern` are.
    """

    kind: Kind
    uri: str
    name: str = ""
    pattern: str = "*"

    @property
    def words(self) -> str:
        """What it is."""
        whose = {"source": f"the folder of stream {self.name}", "sink": f"the sink of query {self.name}"}
        return whose.get(self.kind, "the folder of copies" if self.kind == "cache" else "the checkpoint")

    def holds(self, other: Place) -> bool:
        """Whether another place is this one, or lies within it."""
        outer, inner = resolved(self.uri), resolved(other.uri)
        return inner == outer or inner.startswith(outer.rstrip("/") + "/")


@dataclass(slots=True)
class JobPlaces:
    """The places of a job."""

    known: list[Place] = field(default_factory=list)

    @staticmethod
    def of(checkpoint: str) -> JobPlaces:
        """The places of a job on a checkpoint that may not lie within another."""
        above = checkpoint_above(checkpoint)
        if above is not None:
            raise JobError(
                f"the checkpoint {checkpoint} lies within another, {above}",
                hint="use a folder of its own for each checkpoint",
            )
        places = JobPlaces([Place("checkpoint", checkpoint)])
        if local_path(checkpoint) is None:
            places.add(Place("cache", str(fetched.folder())))
        return places

    def reads(self, stream: str, path: str | None, options: Mapping[str, str]) -> None:
        """Adds the folder that a stream is read from, if it is."""
        if path is not None:
            self.add(Place("source", path, stream, options.get("pathGlobFilter", "*")))

    def writes(self, query: str, sink: object) -> None:
        """Adds the place that a sink of a query writes to, if it says so."""
        if isinstance(place := getattr(sink, "place", None), str):
            self.add(Place("sink", place, query))

    def add(self, place: Place) -> None:
        """Adds a place; refuses one that does not go with those that are known."""
        for known in self.known:
            for outer, inner in ((known, place), (place, known)):
                if outer.holds(inner) and not _agree(outer, inner):
                    raise _refusal(outer, inner)
        self.known.append(place)


def resolved(uri: str) -> str:
    """An address by which places can be compared: without links, empty parts, or patterns for names."""
    path = local_path(uri)
    if path is not None:
        return os.path.realpath(os.path.expanduser(_plain(path)))
    scheme, _, rest = uri.partition("://")
    scheme = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}.get(scheme.lower(), scheme.lower())
    return f"{scheme}://{posixpath.normpath(_plain(rest)).strip('/')}"


def checkpoint_above(uri: str) -> str | None:
    """The checkpoint that a local folder lies within, if it does."""
    path = local_path(uri)
    if path is None:
        return None
    return next((above for above in _above(os.path.realpath(os.path.expanduser(path))) if _is_checkpoint(above)), None)


def _above(path: str) -> Iterable[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _is_checkpoint(folder: str) -> bool:
    return all(os.path.isdir(os.path.join(folder, part)) for part in ("manifests", "lease"))


def _plain(path: str) -> str:
    """The part of a path before the first folder that a pattern stands for."""
    if os.path.exists(path):
        return path
    found = _PATTERN.search(path)
    return path if found is None else path[: path.rfind("/", 0, found.start()) + 1] or "."


def _agree(outer: Place, inner: Place) -> bool:
    """Whether a place may lie within another."""
    if outer.kind == inner.kind or (outer.kind, inner.kind) == ("sink", "source"):
        return True
    return outer.kind == "source" and not any(fnmatchcase(name, outer.pattern) for name in _SAMPLES)


def _refusal(outer: Place, inner: Place) -> JobError:
    where = f"{resolved(inner.uri)} lies in {resolved(outer.uri)}"
    if (outer.kind, inner.kind) == ("source", "sink"):
        return JobError(
            f"query {inner.name} would write into the folder that stream {outer.name} reads",
            detail=where,
            hint="write its results into a folder that no stream of the job reads",
        )
    return JobError(
        f"{inner.words} lies within {outer.words}",
        detail=where,
        hint="give each a folder of its own: files of the one would be taken for those of the other",
    )
