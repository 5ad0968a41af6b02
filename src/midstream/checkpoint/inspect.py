"""What a checkpoint holds, read from its newest manifest without opening any state.

Ticks are given as they are; what has no beginning or no end yet is null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.collect import garbage
from midstream.checkpoint.lease import seen
from midstream.checkpoint.manifest import FORMAT_VERSION, Manifest
from midstream.checkpoint.packs import SegmentEntry
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError


def describe(checkpoint_uri: str) -> dict[str, Any]:
    """The newest batch of a checkpoint: progress, queries, states, files; plain values only."""
    store = CheckpointStore(checkpoint_uri)
    manifest = store.latest()
    if manifest is None:
        raise JobError(
            f"there is no finished batch at {store.uri}", hint="is this the checkpoint that the job was started with?"
        )
    present = seen(store.files)
    return {
        "checkpoint": store.uri,
        "format": FORMAT_VERSION,
        "spark_query": manifest.query_id,
        "batch": manifest.batch_id,
        "retained_batches": store.batch_ids(),
        "epoch": manifest.epoch,
        "holder": None if present is None or present.holder.released else asdict(present.holder),
        "partition_groups": len(manifest.slots.routing),
        "streams": dict(_streams(manifest)),
        "queries": {name: _query(manifest, name) for name in sorted({*manifest.queries, *manifest.segments})},
        "dead_letters": _outputs(manifest.outputs.dead_letters, manifest.outputs.listed_dead_letters),
        "settings": asdict(manifest.settings),
        "rows": dict(manifest.streams.rows),
        "late": dict(manifest.streams.late),
        "unusable": dict(manifest.streams.unusable),
        "moves": list(manifest.slots.moves),
        "requests": list(manifest.asked.requests),
        "totals": _size(manifest.entries()),
        "garbage": garbage(store, store.files),
    }


def tick(ticks: int | None) -> int | None:
    """A tick as it is shown; null for what has no beginning or no end."""
    return None if ticks in (None, BEGINNING, INFINITY) else ticks


def _streams(manifest: Manifest) -> Iterator[tuple[str, dict[str, int | None]]]:
    for name in sorted({*manifest.streams.registers, *manifest.streams.latest}):
        yield (
            name,
            {"register": tick(manifest.streams.registers.get(name)), "latest": tick(manifest.streams.latest.get(name))},
        )


def _query(manifest: Manifest, name: str) -> dict[str, Any]:
    entry = manifest.queries.get(name)
    stages = manifest.segments.get(name, {})
    return {
        **({} if entry is None else asdict(entry)),
        "advanced_to": tick(manifest.advanced_to.get(name)),
        "released": tick(manifest.released.get(name)),
        "migration": manifest.migration.get(name),
        "adaptivity": (manifest.account(name).knowledge or {}).get("mode", "off"),
        "results": _outputs(manifest.outputs.results.get(name, ()), manifest.outputs.listed.get(name, ())),
        **_size(entry for slots in stages.values() for entries in slots.values() for entry in entries),
        "stages": {
            str(stage): {str(slot): _slot(entries) for slot, entries in sorted(slots.items())}
            for stage, slots in sorted(stages.items())
        },
        "states": list(_states(stages)),
    }


def _slot(entries: Sequence[SegmentEntry]) -> dict[str, Any]:
    return {**_size(entries), "states": [{**_named(state), **_size(held)} for state, held in _by_state(entries)]}


def _states(stages: Mapping[int, Mapping[int, Sequence[SegmentEntry]]]) -> Iterator[dict[str, Any]]:
    """The states of a query over all its slots."""
    for stage, slots in sorted(stages.items()):
        for state, held in _by_state(entry for entries in slots.values() for entry in entries):
            yield {"stage": stage, **_named(state), **_size(held)}


def _named(state: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
    return {"state": state[0], "key": list(state[1])}


def _by_state(entries: Iterable[SegmentEntry]) -> Iterable[tuple[tuple[str, tuple[str, ...]], list[SegmentEntry]]]:
    found: dict[tuple[str, tuple[str, ...]], list[SegmentEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.state, entry.key].append(entry)
    return found.items()


def _size(entries: Iterable[SegmentEntry]) -> dict[str, Any]:
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


def _outputs(named: Sequence[Any], listed: Sequence[Any]) -> dict[str, int]:
    return {
        "files": len(named) + sum(other.files for other in listed),
        "rows": sum(file.rows for file in [*named, *listed]),
    }
