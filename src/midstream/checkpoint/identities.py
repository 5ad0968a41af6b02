"""Identities of queries: by its name alone, nobody can tell a query from one that was replaced or dropped before it.

A query's identity is made of its text and of the batch that it came with. It keeps it for as long as it runs, also if
it is put in other words, and its results keep it when another takes its name. A checkpoint that was restored from a
copy gives a query that comes with the same batch the same identity.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from midstream.checkpoint.manifest import Manifest, QueryEntry


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
