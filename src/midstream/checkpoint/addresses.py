"""From an address to the files under it: the scheme says which storage it is.

Another storage is one call of `register`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from midstream.checkpoint.files import Files
from midstream.checkpoint.hdfs_files import HdfsFiles
from midstream.checkpoint.local_files import LocalFiles
from midstream.checkpoint.object_files import ObjectFiles
from midstream.errors import JobError

DBFS_MOUNT = "/dbfs"

Opening = Callable[[str], Files]
"""Gives the files under an address."""

_OPENINGS: dict[str, Opening] = {
    **dict.fromkeys(("hdfs", "viewfs"), HdfsFiles),
    **dict.fromkeys(("s3", "gs", "abfs", "abfss"), ObjectFiles),
}
_SAME_AS = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def register(scheme: str, opening: Opening) -> None:
    """Registers `opening` for the addresses of a scheme, in this process."""
    _OPENINGS[scheme] = opening


def files_at(uri: str, private: bool = True) -> Files:
    """The files under a path or an address; what is made in a local folder is `private` to the user."""
    scheme, rest = _scheme(uri)
    if scheme in ("", "file"):
        return LocalFiles(rest, private)
    if scheme == "dbfs":
        return LocalFiles(_mounted(rest), private)
    known = _SAME_AS.get(scheme, scheme)
    if known in _OPENINGS:
        return _OPENINGS[known](known + uri[len(scheme) :].rstrip("/"))
    schemes = ", ".join([*_OPENINGS, *_SAME_AS])
    raise JobError(
        f"a checkpoint cannot be kept at {uri}: unknown scheme {scheme}:",
        hint=f"use a local path, file:, dbfs: (where it is mounted) or one of {schemes}",
    )


def local_path(uri: str) -> str | None:
    """The path of an address on this machine's file systems; None of one elsewhere.

    >>> local_path("file:///data/a%20b"), local_path("/data"), local_path("s3://bucket/data")
    ('/data/a b', '/data', None)
    """
    scheme, rest = _scheme(uri)
    if scheme in ("", "file"):
        return rest
    return os.path.join(DBFS_MOUNT, rest) if scheme == "dbfs" else None


def _scheme(uri: str) -> tuple[str, str]:
    """The scheme, empty for a plain path, and for local addresses the path."""
    if not uri:
        raise JobError("the checkpoint has no path", hint="name a folder, such as checkpoint='orders.checkpoint'")
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme or not scheme.isalnum():
        return "", uri
    scheme = scheme.lower()
    if scheme not in ("file", "dbfs"):
        # Without slashes a colon belongs to a local name, as in "run:3".
        return (scheme, rest) if rest.startswith("//") else ("", uri)
    return scheme, unquote(urlsplit(uri).path) if scheme == "file" else rest.lstrip("/")


def _mounted(path: str) -> str:
    if not os.path.isdir(DBFS_MOUNT):
        raise JobError(
            f"dbfs:/{path} cannot be reached: there is no {DBFS_MOUNT} on this machine",
            hint="use a Unity Catalog volume (/Volumes/...) or an object store for the checkpoint",
        )
    return os.path.join(DBFS_MOUNT, path)
