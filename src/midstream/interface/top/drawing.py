"""The terminal view of a job, drawn from its account: the same whether it is shown once or over and over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from midstream.algebra.quantities import amount, instant, length, seconds, size
from midstream.algebra.time import INTEGER_TIME, TIMESTAMP_TIME, TimeDomain
from midstream.distribution.plan_texts import told_beside

BARS = "▁▂▃▄▅▆▇█"
MOST_SLOTS = 16
"""How many slots are listed; of more, the fullest."""

WORDS = ("query", "plan", "adapts", "stream", "nothing before", " ")
"""The columns that hold no numbers."""

Told = dict[str, Any]
Column = Callable[[Told], str | Text]


NARROW = 90
"""Below how many characters a terminal is shown the most wanted columns only."""


def drawn(told: Told, width: int = 120) -> Group:
    """All of it, most wanted first: what does not fit a small terminal is cut off at the end."""
    narrow = width < NARROW
    parts: list[RenderableType] = [_head(told), _trend(told)]
    parts += [_migration(migration) for migration in told["migrations"]]
    parts += [_queries(told["queries"], narrow), _streams(told["streams"], narrow), _slots(told["slots"])]
    return Group(*parts)


def _head(told: Told) -> Text:
    state = "finished" if told["finished"] else "running" if told["running"] else "not running"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(told["checkpoint"], style="bold")
    text.append(f"  {state}", style="green" if state == "running" else "yellow")
    text.append(f"  batch {told['batch']:,}")
    if told["dead_letters"]:
        text.append(f"  dead letters {told['dead_letters']:,}", style="yellow")
    return text


def _trend(told: Told) -> Table:
    recent, took = told["recent"], told["batch_seconds"]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="crop")
    table.add_row(f"{amount(told['rows_per_second'])} rows/s", Text(bars(recent["rows"]), style="cyan"))
    spent = "–" if took is None else seconds(took)
    table.add_row(f"{spent} a batch", Text(bars(recent["seconds"]), style="magenta"))
    table.add_row(f"{amount(told['results_per_second'])} results/s", f"state {size(told['state_bytes'])}")
    return table


def _migration(told: Told) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis", style="bold yellow")
    text.append(f"{told['query']} migrates from {told['from']} to {told['to']} by {told['strategy']}")
    if told["progress"] is not None:
        done = round(told["progress"] * 20)
        text.append(f"  {'█' * done}{'░' * (20 - done)} {told['progress']:.0%} of the way to the split time")
    elif told["batches"] is not None:
        text.append(f"  {told['status']}, {told['batches']} batches, {seconds(told['seconds'])}")
    return text


def _queries(queries: Sequence[Told], narrow: bool) -> Table:
    columns: dict[str, Column] = {
        "query": lambda told: told["name"],
        "results/s": lambda told: amount(told["results_per_second"]),
        "results": lambda told: f"{told['results']:,}",
        "behind": lambda told: "–" if told["behind"] is None else length(told["behind"], _domain(told)),
        "state": lambda told: size(told["state_bytes"]),
        "plan": _plan,
        "adapts": lambda told: told["adaptivity"],
    }
    return _table(queries, columns, ("results", "state", "adapts") if narrow else ())


def _plan(told: Told) -> Text:
    slots = {int(slot): plan for slot, plan in told["plans_of_slots"].items()}
    text = Text(told_beside(told["plan"], slots) or "without joins", overflow="ellipsis")
    if told["migrating_to"]:
        text.append(f" → {told['migrating_to']}", style="bold yellow")
    if told["quarantine"]:
        text.append(f" stopped: {told['quarantine']}", style="red")
    elif told["status"] not in ("", "running", "active"):
        text.append(f" {told['status']}", style="yellow")
    elif told["waits_for"]:
        text.append(f" waits for {told['waits_for']}", style="yellow")
    return text


def _streams(streams: Sequence[Told], narrow: bool) -> Table:
    columns: dict[str, Column] = {
        "stream": lambda told: told["name"],
        "rows/s": lambda told: amount(told["rows_per_second"]),
        "rows": lambda told: f"{told['rows']:,}",
        "late": lambda told: f"{told['late']:,}",
        "unusable": lambda told: f"{told['unusable']:,}",
        "nothing before": lambda told: "–" if told["register"] is None else instant(told["register"], _domain(told)),
    }
    return _table(streams, columns, ("rows", "unusable") if narrow else ())


def _slots(slots: Sequence[Told]) -> Table:
    most = max((told["state_bytes"] for told in slots), default=0) or 1
    fullest = sorted(slots, key=lambda told: -told["state_bytes"])[:MOST_SLOTS]
    columns: dict[str, Column] = {
        "slot": lambda told: str(told["slot"]),
        "groups": lambda told: str(told["groups"]),
        "rows lately": lambda told: amount(told["rows"]),
        "state": lambda told: size(told["state_bytes"]),
        " ": lambda told: Text("█" * round(20 * told["state_bytes"] / most), style="blue"),
    }
    return _table(sorted(fullest, key=lambda told: int(told["slot"])), columns)


def _table(rows: Sequence[Told], columns: Mapping[str, Column], without: Sequence[str] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    shown = {heading: column for heading, column in columns.items() if heading not in without}
    for heading in shown:
        justify: Literal["left", "right"] = "left" if heading in WORDS else "right"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")
    for told in rows:
        table.add_row(*(column(told) for column in shown.values()))
    return table


def _domain(told: Told) -> TimeDomain:
    return TIMESTAMP_TIME if told["time"] == "timestamp" else INTEGER_TIME


def bars(values: Sequence[float | None]) -> str:
    """Numbers as a row of bars; what is unknown is a gap.

    >>> bars([0, 4, None, 8])
    '▁▅ █'
    """
    most = max([value for value in values if value is not None], default=0) or 1
    places = (" " if value is None else BARS[round(value / most * (len(BARS) - 1))] for value in values)
    return "".join(places)
