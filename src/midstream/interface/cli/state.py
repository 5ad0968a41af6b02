"""`midstream state`: what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer

from midstream.algebra.quantities import instant
from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME
from midstream.checkpoint.check import check
from midstream.checkpoint.inspect import describe
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_table, show_text

WIDEST_STATE = 60
"""How much of a state's name the table shows; JSON has all of it."""


@ends_clearly
def state(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's path or address.")],
    slots: Annotated[bool, typer.Option("--slots", help="Show the states of each slot separately.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare all state and results with their checksums.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what a checkpoint holds: states, segments, bytes, time ranges, and how far the job is.

    \b
    Example:
      midstream state orders.checkpoint --verify
    """
    found = describe(checkpoint)
    wrong = _verify(checkpoint) if verify else []
    if json:
        show_json({**found, **({"wrong": [str(error) for error in wrong]} if verify else {})})
    else:
        _show(found, slots)
    for error in wrong:
        note(str(error))
    if wrong:
        raise JobError(f"{len(wrong)} of the checkpoint's files or segments cannot be used")
    if verify and not json:
        show_text("everything the checkpoint names is there and agrees with its checksums")


def _verify(checkpoint: str) -> list[JobError]:
    """What is wrong with the files that a checkpoint names."""
    store = CheckpointStore(checkpoint)
    manifest = store.latest()
    return [] if manifest is None else check(store.files, manifest)


def _show(found: dict[str, Any], slots: bool) -> None:
    totals = found["totals"]
    kept = found["retained_batches"]
    holder = found["holder"]
    lines = [
        f"checkpoint  {found['checkpoint']} (format {found['format']})",
        f"batch       {found['batch']} (kept: {kept[0]} to {kept[-1]}), epoch {found['epoch']}",
        f"driver      {'none' if holder is None else 'process {pid} on {host}'.format(**holder)}",
        f"state       {totals['segments']:,} segments in {totals['files']:,} files, {totals['rows']:,} rows, "
        f"{_bytes(totals['bytes'])}",
        f"unused      {len(found['garbage']):,} unreferenced files",
        f"dead        {found['dead_letters']['rows']:,} rows in {found['dead_letters']['files']:,} files",
    ]
    show_text("\n".join(lines) + "\n")
    _table(_streams(found))
    _table(_queries(found))
    _table(_by_slot(found) if slots else _states(found))


def _table(rows: Iterator[dict[str, Any]]) -> None:
    listed = list(rows)
    if listed:
        show_table(pa.Table.from_pylist(listed), 0)
        show_text("")


def _streams(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    time = "timestamp" if any(q.get("time") == "timestamp" for q in found["queries"].values()) else "integer"
    for name, stream in found["streams"].items():
        yield {"stream": name, **{what: _time(stream[what], time, "none yet") for what in ("register", "latest")}}


def _queries(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, query in found["queries"].items():
        time = query.get("time", "integer")
        yield {
            "query": name,
            "status": query.get("status", "dropped") if query["migration"] is None else "migrating",
            "plan": query.get("plan", ""),
            "advanced to": _time(query["advanced_to"], time, "none yet"),
            "released to": _time(query["released"], time, "none yet"),
            "result files": query["results"]["files"],
            "result rows": query["results"]["rows"],
        }


def _states(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, query in found["queries"].items():
        for held in query["states"]:
            yield {"query": name, "stage": held["stage"], **_sizes(held, query)}


def _by_slot(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, query in found["queries"].items():
        for stage, slots in query["stages"].items():
            for slot, content in slots.items():
                for held in content["states"]:
                    yield {"query": name, "stage": int(stage), "slot": int(slot), **_sizes(held, query)}


def _sizes(held: dict[str, Any], query: dict[str, Any]) -> dict[str, Any]:
    time = query.get("time", "integer")
    return {
        "state": _short(held["state"]),
        "key": ", ".join(held["key"]),
        "segments": held["segments"],
        "rows": held["rows"],
        "size": _bytes(held["bytes"]),
        "from": _time(held["valid_from"], time, "ever"),
        "to": _time(held["valid_to"], time, "∞"),
    }


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDEST_STATE else f"{text[: WIDEST_STATE - 1]}…"


def _time(ticks: int | None, time: str, otherwise: str) -> str:
    if ticks is None:
        return otherwise
    return instant(ticks, TIMESTAMP_TIME if time == "timestamp" else INTEGER_TIME)


def _bytes(size: float) -> str:
    """A size as a person reads it.

    >>> _bytes(999), _bytes(1_500_000)
    ('999 bytes', '1.5 MB')
    """
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"
