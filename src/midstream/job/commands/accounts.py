"""What a session can say of a query from its newest manifest and last batch: counts, states, and past migrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import moment
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import copy_name
from midstream.checkpoint.packs import entries_in
from midstream.checkpoint.records import PlansAtWork
from midstream.checkpoint.stored_queries import shared_with
from midstream.job.events import SettingsChanged
from midstream.job.job import Job
from midstream.job.outputs.progress import reads_of, wait_text, waits
from midstream.job.queries.running_query import RunningQuery
from midstream.optimizer.sites.links import links_summary


def history_of(job: Job, query: RunningQuery) -> list[dict[str, Any]]:
    """The migrations of a query that the manifest remembers, and the one that waits or is under way."""
    manifest = job.manifest
    past = [dict(record) for record in manifest.account(query.name).history] if manifest else []
    # Asked in the moment after a commit, the driver may not have followed the manifest yet.
    verifying = job.state.verifications.by_query.get(query.name)
    if query.migration is None and verifying is not None:
        return [*past, verifying.under_way(query.plan.text, job.queries.get(copy_name(query.name)))]
    for own, slots in query.at_work(job.state.slots):
        known = None if manifest is None else manifest.account(query.name).plans
        if (going := own.migration) is None or (going.done and known == PlansAtWork()):
            continue
        record = going.record(own.plan.text, None, going.status)
        past.append(record if own is query else {**record, "slots": list(slots)})
    return past


def statistics_of(job: Job, query: RunningQuery) -> dict[str, Any]:
    """Counts of what a query did and holds, as of the newest manifest."""
    committed, event = job.manifest, job.announcements.last
    manifest = committed or Manifest("", -1)
    account, known = manifest.account(query.name), manifest.streams
    streams, domain = sorted(query.streams), query.plan.domain
    states = states_of(manifest, query.name)
    return {
        **({} if account.knowledge is None else {"observed": account.knowledge["observed"]}),
        "batch": None if committed is None else committed.batch_id,
        "rows": {stream: known.rows.get(stream, 0) for stream in streams},
        "late": {stream: known.late.get(stream, 0) for stream in streams},
        "unusable": {stream: known.unusable.get(stream, 0) for stream in streams},
        "results": account.results,
        "states": states,
        "state_rows": sum(state["rows"] for state in states.values()),
        "state_bytes": sum(state["bytes"] for state in states.values()),
        "shared_with": shared_with(manifest, query.name),
        "registers": {stream: moment(known.registers.get(stream), domain) for stream in streams},
        "frontier": moment(manifest.advanced_to.get(query.name), domain),
        "released": moment(manifest.released.get(query.name), domain),
        "seconds": {} if event is None else dict(event["seconds"]),
    }


def waits_of(job: Job, streams: Mapping[str, StreamDeclaration]) -> list[str]:
    """Which queries wait for streams, in words."""
    if job.manifest is None:
        return []
    known = job.manifest.streams
    found = waits(reads_of(job.queries), known.registers, known.silent)
    return [wait_text(query, wait, streams[wait.stream]) for query, wait in found.items()]


def decisions_of(job: Job, query: str) -> list[dict[str, Any]]:
    """What was decided about a query's plan, as the newest manifest remembers it, oldest first."""
    known = job.manifest.account(query).knowledge if job.manifest else None
    return list((known or {}).get("decisions", ()))


def states_of(manifest: Manifest, query: str) -> dict[str, dict[str, int]]:
    """The rows and bytes of each state of a query, those of the plan it migrates to included."""
    found: dict[str, dict[str, int]] = {}
    for entry in (entry for stored in manifest.lanes(query) for entry in entries_in(stored)):
        state = found.setdefault(entry.state, {"rows": 0, "bytes": 0})
        state["rows"] += entry.rows
        state["bytes"] += entry.bytes
    return found


def links_after(job: Job, wanted: Mapping[str, str] | None) -> dict[str, str]:
    """The links between sites, changed as is wanted."""
    with job.gate:
        if wanted:
            job.apply(SettingsChanged({"links": job.watchers.located.changed(job.state.settings.links, wanted)}))
        return links_summary(job.watchers.located.links(job.state.settings.links))
