"""The states that a manifest names, and all that a checkpoint holds, without opening any state.

Ticks are given as they are; what has no beginning or no end yet is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.collect import garbage
from midstream.checkpoint.file_entries import DeadLetterFile, FileLog, ResultFile, rows_of
from midstream.checkpoint.lease import seen
from midstream.checkpoint.manifest import FORMAT_VERSION, Manifest
from midstream.checkpoint.names import query_of
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.records import grouped
from midstream.checkpoint.stops import newest_manifest
from midstream.checkpoint.store import CheckpointStore


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state of a query: what it holds, by which key it is sorted, and how much it is; in one slot, or over all."""

    stage: int
    state: str
    key: tuple[str, ...]
    segments: int
    files: int
    rows: int
    bytes: int
    bytes_stored: int
    valid_from: int | None
    valid_to: int | None
    slot: int | None = None


def stored_states(manifest: Manifest, query: str, by_slot: bool = False) -> Iterator[StoredState]:
    """The states of a query, in all its lanes; a segment that several name counts once."""
    stages = (stage for stored in manifest.lanes(query) for stage in sorted(stored.items()))
    slots = ((stage, slot if by_slot else -1, own) for stage, slots in stages for slot, own in sorted(slots.items()))
    held = grouped(((stage, slot, e.state, e.key), e) for stage, slot, entries in slots for e in entries)
    for (stage, slot, state, key), entries in held.items():
        yield StoredState(stage, state, key, **size_of(entries), slot=slot if by_slot else None)


def size_of(entries: Iterable[SegmentEntry]) -> dict[str, Any]:
    """Segments, rows, bytes and the time they span; what several name counts once."""
    parts = list({(entry.file, entry.offset, entry.hash_from, entry.hash_to): entry for entry in entries}.values())
    stored = list({(entry.file, entry.offset): entry for entry in parts}.values())
    return {
        "segments": len(stored),
        "files": len({entry.file for entry in stored}),
        "rows": sum(entry.rows for entry in parts),
        "bytes": sum(entry.bytes for entry in parts),
        "bytes_stored": sum(entry.length for entry in stored),
        "valid_from": tick(min((entry.earliest_from for entry in stored), default=None)),
        "valid_to": tick(max((entry.latest_to for entry in stored), default=None)),
    }


def tick(ticks: int | None) -> int | None:
    """A tick as it is shown; null for what has no beginning or no end."""
    return None if ticks in (None, BEGINNING, INFINITY) else ticks


def describe(checkpoint_uri: str) -> dict[str, Any]:
    """The newest batch of a checkpoint: progress, queries, states, files; plain values only."""
    store = CheckpointStore(checkpoint_uri)
    manifest = newest_manifest(store)
    present, streams, outputs = seen(store.files), manifest.streams, manifest.outputs
    return {
        "checkpoint": store.uri,
        "format": FORMAT_VERSION,
        "spark_query": manifest.query_id,
        "batch": manifest.batch_id,
        "retained_batches": store.batch_ids(),
        "epoch": manifest.epoch,
        "holder": None if present is None or present.holder.released else asdict(present.holder),
        "partition_groups": len(manifest.slots.routing),
        "streams": {
            name: {"register": tick(streams.registers.get(name)), "latest": tick(streams.latest.get(name))}
            for name in sorted({*streams.registers, *streams.latest})
        },
        "queries": {
            name: _query(manifest, name) for name in sorted({*manifest.queries, *map(query_of, manifest.segments)})
        },
        "dead_letters": _outputs(outputs.dead_letters),
        "settings": asdict(manifest.settings),
        **{kind: dict(getattr(streams, kind)) for kind in ("rows", "late", "unusable")},
        "moves": list(manifest.slots.moves),
        "requests": [asdict(request) for request in manifest.asked.requests],
        "totals": size_of(manifest.entries()),
        "garbage": garbage(store, store.files),
    }


def _query(manifest: Manifest, name: str) -> dict[str, Any]:
    entry, outputs, migration = manifest.queries.get(name), manifest.outputs, manifest.account(name).plans.migration
    states, by_slot = ([_state(state) for state in stored_states(manifest, name, each)] for each in (False, True))
    return {
        **({} if entry is None else asdict(entry)),
        "advanced_to": tick(manifest.advanced_to.get(name)),
        "released": tick(manifest.released.get(name)),
        "migration": None if migration is None else asdict(migration),
        "adaptivity": (manifest.account(name).knowledge or {}).get("mode", "off"),
        "results": _outputs(outputs.results.get(name, FileLog())),
        "states": states,
        "states_by_slot": by_slot,
    }


def _state(state: StoredState) -> dict[str, Any]:
    return {**asdict(state), "key": list(state.key)}


def _outputs(log: FileLog[ResultFile] | FileLog[DeadLetterFile]) -> dict[str, int]:
    return {"files": log.count, "rows": rows_of(log)}
