"""How far a job is, told from its checkpoint alone: what `status` says when nobody answers there."""

from __future__ import annotations

from typing import Any

from midstream.checkpoint.inspect import tick
from midstream.checkpoint.lease import likely_holder
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import metrics_of, rates
from midstream.checkpoint.outputs import GIVEN_UP
from midstream.checkpoint.request_log import told_of
from midstream.checkpoint.store import CheckpointStore
from midstream.distribution.plan_texts import told_beside
from midstream.errors import JobError

LOOKED_AT = 4096
"""How many batches rates are taken from, at most."""


def is_running(store: CheckpointStore) -> bool:
    """Whether somebody seems to hold the checkpoint's lease."""
    return likely_holder(store.files) is not None


def stored_status(store: CheckpointStore) -> dict[str, Any]:
    """What the newest manifest and the metrics table say."""
    manifest = store.latest()
    if manifest is None:
        raise JobError(
            f"no job runs on {store.uri}, and no batch is done there",
            hint="is this the checkpoint that the job was started with?",
        )
    counters = manifest.counters
    return {
        "checkpoint": store.uri,
        "running": False,
        "batch": manifest.batch_id,
        "slots": counters.get("slots", max(manifest.routing, default=0) + 1),
        "scheduling": counters.get("scheduling", "dfs"),
        "streams": {
            name: {
                **{kind: counters.get(kind, {}).get(name, 0) for kind in ("rows", "late", "unusable")},
                "register": tick(manifest.registers.get(name)),
            }
            for name in sorted(manifest.latest | counters.get("rows", {}))
        },
        "queries": {name: _query(manifest, name) for name in manifest.queries},
        "dropped": dict(counters.get("dropped", {})),
        "given_up": list(counters.get(GIVEN_UP, ())),
        "requests": told_of(store.files, manifest),
        **measured(store, manifest),
    }


def measured(store: CheckpointStore, manifest: Manifest | None) -> dict[str, Any]:
    """The last batch, and rates over the minutes before it."""
    table = metrics_of(store.files, manifest, LOOKED_AT)
    last = None if manifest is None or not manifest.recent else dict(manifest.recent[-1])
    return {"last_batch": last, "rates": rates(table)}


def _query(manifest: Manifest, name: str) -> dict[str, Any]:
    entry, counters = manifest.queries[name], manifest.counters
    local = counters.get("local_plans", {}).get(name, {})
    return {
        "cql": entry.cql,
        "plan": told_beside(entry.plan, {int(slot): told["plan"] for slot, told in local.items()}),
        "status": entry.status,
        "migrating_to": manifest.migration.get(name, {}).get("plan"),
        "added": name in counters.get("added", {}),
        "results": counters.get("results", {}).get(name, 0),
        "released": tick(manifest.released.get(name)),
        "history": list(counters.get("history", {}).get(name, ())),
        "adaptivity": None,
        "quarantine": counters.get("quarantine", {}).get(name),
        "set_aside": counters.get("set_aside", {}).get(name, {}).get("rows", 0),
        "waits_for": counters.get("waits", {}).get(name),
    }
