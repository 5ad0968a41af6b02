"""Which checkpoint this is: an identity of its own, and the history of results that it continues.

A checkpoint that is copied is two, and what they release from then on need not be the same. So a checkpoint has a mark,
a file of which it knows what a copy would not share (on a local file system the inode and the time of its last change,
in an object store the time at which it was stored). One whose mark is another is a copy, and gets an identity of its
own. If the checkpoint that it was copied from is still where it was, the copy stands beside it and has a history of its
own. Otherwise it was restored or moved, and continues the history: what sinks have had of that is not due to them
again. Taking an original for a copy therefore changes nothing but its identity.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.process import this_process

MARK = "deliveries/mark"
"""The file by which a checkpoint is told from its copies."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The identity of a checkpoint, the history that it continues, where it was last, and what its mark was like."""

    identity: str
    history: str
    place: str
    mark: str | None = None

    @staticmethod
    def new(files: Files) -> Origin:
        """The origin of a checkpoint that continues nothing."""
        identity = this_process().token(6)
        return Origin(identity, identity, files.uri, _marked(files))

    def is_of(self, files: Files) -> bool:
        """Whether the files are those that the origin was made for, wherever they were moved."""
        mark = files.fingerprint(MARK)
        return mark == self.mark and (mark is not None or self.place == files.uri)

    def moved(self, files: Files) -> Origin:
        """The same origin, at the place where the files are now."""
        return self if self.place == files.uri else replace(self, place=files.uri)

    def copied(self, files: Files, beside: bool) -> Origin:
        """The origin of files that are a copy of those that this one was made for; `beside` them or in their place."""
        new = Origin.new(files)
        return new if beside else replace(new, history=self.history)


def _marked(files: Files) -> str | None:
    files.write_atomic(MARK, this_process().token(6).encode(), point="deliveries")
    return files.fingerprint(MARK)


def identified(manifest: Manifest, before: Manifest | None) -> Manifest:
    """A batch's manifest in which every query has an identity: that which it had, or a new one."""
    accounts = dict(manifest.accounts)
    for name, entry in manifest.queries.items():
        known = None if before is None else before.account(name).identity
        accounts[name] = replace(manifest.account(name), identity=known or _new(entry, manifest.batch_id))
    return replace(manifest, accounts=accounts)


def name_of_identity(manifest: Manifest, identity: str) -> str | None:
    """The name under which a manifest has the query of an identity."""
    return next((name for name, account in manifest.accounts.items() if account.identity == identity), None)


def _new(entry: QueryEntry, batch_id: int) -> str:
    content = f"{entry.cql}\0{entry.emit_every}\0{batch_id}"
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
