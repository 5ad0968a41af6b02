"""`midstream state`: what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer

from midstream.algebra.time import TimeDomain, instant, size
from midstream.checkpoint.check import check
from midstream.checkpoint.inspect import describe
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_table, show_text

WIDEST_STATE = 60
"""How much of a state's name the table shows; JSON has all of it."""

Record = dict[str, Any]


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


def _show(found: Record, slots: bool) -> None:
    totals, kept, holder = found["totals"], found["retained_batches"], found["holder"]
    lines = [
        f"checkpoint  {found['checkpoint']} (format {found['format']})",
        f"batch       {found['batch']} (kept: {kept[0]} to {kept[-1]}), epoch {found['epoch']}",
        f"driver      {'none' if holder is None else 'process {pid} on {host}'.format(**holder)}",
        f"state       {totals['segments']:,} segments in {totals['files']:,} files, {totals['rows']:,} rows, "
        f"{size(totals['bytes'])}",
        f"unused      {len(found['garbage']):,} unreferenced files",
        f"dead        {found['dead_letters']['rows']:,} rows in {found['dead_letters']['files']:,} files",
    ]
    show_text("\n".join(lines) + "\n")
    for rows in (list(_streams(found)), list(_queries(found)), list(_states(found, slots))):
        if rows:
            show_table(pa.Table.from_pylist(rows), 0)
            show_text("")


def _streams(found: Record) -> Iterator[Record]:
    time = "timestamp" if any(q.get("time") == "timestamp" for q in found["queries"].values()) else "integer"
    for name, stream in found["streams"].items():
        yield {"stream": name, **{what: _time(stream[what], time, "none yet") for what in ("register", "latest")}}


def _queries(found: Record) -> Iterator[Record]:
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


def _states(found: Record, slots: bool) -> Iterator[Record]:
    for name, query in found["queries"].items():
        time = query.get("time", "integer")
        for held in query["states_by_slot" if slots else "states"]:
            text = " ".join(held["state"].split())
            yield {
                "query": name,
                "stage": held["stage"],
                **({"slot": held["slot"]} if slots else {}),
                "state": text if len(text) <= WIDEST_STATE else f"{text[: WIDEST_STATE - 1]}…",
                "key": ", ".join(held["key"]),
                "segments": held["segments"],
                "rows": held["rows"],
                "size": size(held["bytes"]),
                "from": _time(held["valid_from"], time, "ever"),
                "to": _time(held["valid_to"], time, "∞"),
            }


def _time(ticks: int | None, time: str, otherwise: str) -> str:
    return otherwise if ticks is None else instant(ticks, TimeDomain.of_word(time))
