"""How far a job is, read from its checkpoint alone: what `status` says when the job does not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from midstream.checkpoint.inspect import tick
from midstream.checkpoint.lease import likely_holder
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import metrics_of, rates
from midstream.checkpoint.names import is_rehearsal
from midstream.checkpoint.owed import StoredSink, sinks_by_query
from midstream.checkpoint.records import Settings
from midstream.checkpoint.request_log import requests_summary
from midstream.checkpoint.stops import Phase, Reason, Standing, standing
from midstream.checkpoint.store import CheckpointStore
from midstream.distribution.plan_texts import plan_text_beside
from midstream.errors import JobError
from midstream.optimizer.sites.links import Links, links_from_json, links_summary

LOOKED_AT = 4096
"""How many batches rates are taken from, at most."""


def links_known(settings: Settings) -> Links:
    """The links between sites as a manifest has them: those that were changed, and those that are declared."""
    return {**links_from_json(settings.declared_links), **links_from_json(settings.links)}


def is_running(store: CheckpointStore) -> bool:
    """Whether somebody seems to hold the checkpoint's lease."""
    return likely_holder(store.files) is not None


def no_batch(store: CheckpointStore, now: Standing) -> JobError:
    """Says that there is nothing to tell of a job yet, and why."""
    if now.phase is Phase.STARTING:
        return JobError(f"the job on {store.uri} is starting, and no batch is done yet", hint="ask again in a moment")
    if now.phase is Phase.RUNNING:
        return JobError(f"the job on {store.uri} runs, and no batch is done yet", hint="it waits for rows")
    if now.stop is not None and now.stop.reason is not Reason.ASKED:
        return JobError(
            f"the job on {store.uri} stopped before any batch was done: {now.stop.message}",
            detail=now.stop.detail,
            hint=now.stop.hint,
        )
    return JobError(
        f"there is no finished batch at {store.uri}, and no job runs there",
        hint="is this the checkpoint that the job was started with?",
    )


def stored_status(store: CheckpointStore) -> dict[str, Any]:
    """What the newest manifest and the metrics table say."""
    manifest = store.latest()
    now = standing(store.files, manifest)
    if manifest is None:
        raise no_batch(store, now)
    streams = manifest.streams
    times, sinks = stream_times(manifest), sinks_by_query(store.files, manifest)
    return {
        "name": job_name(manifest, store.uri),
        "checkpoint": store.uri,
        "running": now.runs,
        **now.to_json(),
        "batch": manifest.batch_id,
        "slots": manifest.slots.count,
        "spread": list(manifest.slots.spread),
        "key_classes": key_classes_summary(manifest),
        "slot_decisions": list(manifest.slots.decisions),
        "moving": moving_groups(manifest),
        "scheduling": manifest.settings.scheduling,
        "links": links_summary(links_known(manifest.settings)),
        "streams": {
            name: {
                "rows": streams.rows.get(name, 0),
                "late": streams.late.get(name, 0),
                "unusable": streams.unusable.get(name, 0),
                "register": tick(streams.registers.get(name)),
                "time": times.get(name, "integer"),
            }
            for name in sorted({*streams.latest, *streams.rows})
        },
        "queries": {name: _query(manifest, name, sinks) for name in manifest.queries if not is_rehearsal(name)},
        "dropped": dict(manifest.asked.dropped),
        "retention": dict(manifest.settings.retention),
        "removed_dead_letters": manifest.outputs.removed_dead_letters,
        "given_up": list(manifest.outputs.given_up),
        "requests": requests_summary(store.files, manifest),
        **measured(store, manifest),
    }


def job_name(manifest: Manifest, uri: str) -> str:
    """The job's name; the folder of its checkpoint if it has none."""
    return manifest.settings.job or uri.rstrip("/").rpartition("/")[2]


def stream_times(manifest: Manifest) -> dict[str, str]:
    """Whether the instants of streams that queries read are integers or timestamps."""
    return {
        stream: entry.time
        for name, entry in manifest.queries.items()
        for node in (manifest.account(name).graph or {}).get("nodes", ())
        if (stream := node.get("stream")) is not None
    }


def key_classes_summary(manifest: Manifest) -> list[dict[str, Any]]:
    """The key classes of exchanges: whether each is dealt apart, its groups and the rows it had lately, by slot."""
    slots, found = manifest.slots, []
    for name in sorted(slots.classes):
        table, loads = slots.apart.get(name, tuple(slots.routing)), slots.class_loads.get(name, ())
        rows, groups = [0.0] * slots.count, [0] * slots.count
        for group, slot in enumerate(table):
            groups[slot] += 1
            rows[slot] += loads[group] if loads else 0.0
        known = {"by": name, "apart": name in slots.apart, "groups": groups, "rows": [round(r, 1) for r in rows]}
        found.append(known)
    return found


def moving_groups(manifest: Manifest) -> dict[str, Any] | None:
    """The move under way of groups whose rows go to two slots: by which protocol, how many, and since which batch."""
    record = manifest.slots.doubled
    if record is None:
        return None
    now, wanted = manifest.slots.routing, manifest.slots.wanted
    changed = sum(old != new for old, new in zip(now, record["groups"], strict=True))
    # Groups of further pairs of slots follow; another number of slots deals all groups anew.
    follows = wanted is not None and wanted.slots == manifest.slots.count
    queued = sum(a != b for a, b in zip(record["groups"], wanted.groups, strict=True)) if wanted and follows else 0
    return {
        "protocol": record["protocol"],
        "groups": changed,
        "queued": queued,
        "since": record["begun"],
        "trigger": record["trigger"],
    }


def shared_with(manifest: Manifest, query: str) -> dict[str, int]:
    """How many rows of a query's state other queries keep too, by their names."""
    places: dict[str, dict[str, int]] = {}
    for part, stages in manifest.segments.items():
        held = places.setdefault(_query_of(part, manifest), {})
        held.update({e.place: e.rows for slots in stages.values() for entries in slots.values() for e in entries})
    own = places.pop(query, {})
    common = {name: sum(rows for place, rows in held.items() if place in own) for name, held in sorted(places.items())}
    return {name: rows for name, rows in common.items() if rows}


def _query_of(part: str, manifest: Manifest) -> str:
    """The query that a plan at work is of: a side of a migration or a track of a move has a longer name."""
    name = part
    while name and name not in manifest.queries:
        name = name.rpartition("~")[0]
    return name or part


def measured(store: CheckpointStore, manifest: Manifest | None) -> dict[str, Any]:
    """The last batch, and rates over the minutes before it."""
    table = metrics_of(store.files, manifest, LOOKED_AT)
    last = None if manifest is None or not manifest.outputs.recent else dict(manifest.outputs.recent[-1])
    return {"last_batch": last, "rates": rates(table)}


def _query(manifest: Manifest, name: str, sinks: Mapping[str, Sequence[StoredSink]]) -> dict[str, Any]:
    entry, account = manifest.queries[name], manifest.account(name)
    return {
        "cql": entry.cql,
        "plan": plan_text_beside(entry.plan, account.plans_of_slots),
        "status": entry.status,
        "migrating_to": manifest.migration.get(name, {}).get("plan"),
        "verifying": account.verifying,
        "removed": account.removed,
        "added": account.added is not None,
        "results": account.results,
        "waiting": account.waiting,
        "sinks": [asdict(sink) for sink in sinks.get(name, ())],
        "time": entry.time,
        "released": tick(manifest.released.get(name)),
        "history": list(account.history),
        "adaptivity": None,
        "quarantine": None if account.fault is None else account.fault.to_json(),
        "set_aside": 0 if account.set_aside is None else account.set_aside.rows,
        "waits_for": manifest.streams.waits.get(name),
        "shared_with": shared_with(manifest, name),
    }
