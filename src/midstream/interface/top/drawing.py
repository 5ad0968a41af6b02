"""The terminal view of a job, drawn from its account: the same whether it is shown once or over and over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from midstream.algebra.quantities import amount, instant, length, plural, seconds, size
from midstream.algebra.time import TimeDomain
from midstream.checkpoint.stops import Standing, stop_lines
from midstream.distribution.plan_texts import plan_text_beside
from midstream.interface.tables import plain_table
from midstream.terminal import visible_record

BARS = "▁▂▃▄▅▆▇█"
MOST_SLOTS = 16
"""How many slots are listed; of more, the fullest."""

WORDS = ("query", "plan", "adapts", "stream", "nothing before", " ")
"""The columns that hold no numbers."""

Record = dict[str, Any]
Column = Callable[[Record], str | Text]


COLOURS = {"running": "green", "finished": "green", "starting": "cyan", "stopped": "yellow", "failed": "red"}
"""Of the conditions of a job."""

NARROW = 90
"""Below how many characters a terminal is shown the most wanted columns only."""


def drawn(record: Record, width: int = 120) -> Group:
    """All of it, most wanted first: what does not fit a small terminal is cut off at the end."""
    narrow, record = width < NARROW, visible_record(record)
    parts: list[RenderableType] = [_head(record), _trend(record)]
    parts += [_migration(migration) for migration in record["migrations"]]
    tables = (_queries(record["queries"], narrow), _streams(record["streams"], narrow), _slots(record["slots"]))
    parts += [part for table in tables for part in (Text(), table)]
    return Group(*parts)


def _head(record: Record) -> Text:
    now = Standing.of_json(record)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(record["name"], style="bold")
    text.append(f"  {now.phase}", style=COLOURS[now.phase])
    text.append(f"  batch {record['batch']:,}")
    if record["dead_letters"]:
        text.append(f"  dead letters {record['dead_letters']:,}", style="yellow")
    text.append(f"  {record['checkpoint']}", style="dim")
    for line in stop_lines(now):
        text.append(f"\n{line}", style="red")
    return text


def _trend(record: Record) -> Table:
    recent, took = record["recent"], record["batch_seconds"]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="crop")
    table.add_row(f"{amount(record['rows_per_second'])} rows/s", Text(bars(recent["rows"]), style="cyan"))
    spent = "–" if took is None else seconds(took)
    sizes = (
        f"state {size(record['state_bytes'])}, checkpoint {size(record['checkpoint_bytes'])}, "
        f"last commit {size(record['commit_bytes'])}"
    )
    table.add_row(f"{spent} a batch", Text(bars(recent["seconds"]), style="magenta"))
    table.add_row(f"{amount(record['results_per_second'])} results/s", sizes)
    return table


def _migration(record: Record) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis", style="bold yellow")
    text.append(f"{record['query']} migrates from {record['from']} to {record['to']} by {record['strategy']}")
    if record["progress"] is not None:
        done = round(record["progress"] * 20)
        text.append(f"  {'█' * done}{'░' * (20 - done)} {record['progress']:.0%} of the way to the split time")
    elif record["batches"] is not None:
        text.append(
            f"  {record['status']}, {plural(record['batches'], 'batch', 'batches')}, {seconds(record['seconds'])}"
        )
    return text


def _queries(queries: Sequence[Record], narrow: bool) -> Table:
    columns: dict[str, Column] = {
        "query": lambda record: record["name"],
        "results/s": lambda record: amount(record["results_per_second"]),
        "results": lambda record: f"{record['results']:,}",
        "behind": lambda record: "–" if record["behind"] is None else length(record["behind"], _domain(record)),
        "latency": lambda record: "–" if record["latency"] is None else seconds(record["latency"]),
        "state": lambda record: size(record["state_bytes"]),
        "plan": _plan,
        "adapts": lambda record: record["adaptivity"],
    }
    return _table(queries, columns, ("results", "state", "adapts") if narrow else ())


def _plan(record: Record) -> Text:
    slots = {int(slot): plan for slot, plan in record["plans_of_slots"].items()}
    text = Text(plan_text_beside(record["plan"], slots) or "without joins", overflow="ellipsis")
    if record["migrating_to"]:
        text.append(f" → {record['migrating_to']}", style="bold yellow")
    if record["quarantine"]:
        text.append(f" stopped: {record['quarantine']}", style="red")
    elif record["status"] not in ("", "running"):
        text.append(f" {record['status']}", style="yellow")
    elif record["waits_for"]:
        text.append(f" waits for {record['waits_for']}", style="yellow")
    return text


def _streams(streams: Sequence[Record], narrow: bool) -> Table:
    columns: dict[str, Column] = {
        "stream": lambda record: record["name"],
        "rows/s": lambda record: amount(record["rows_per_second"]),
        "rows": lambda record: f"{record['rows']:,}",
        "late": lambda record: f"{record['late']:,}",
        "unusable": lambda record: f"{record['unusable']:,}",
        "nothing before": lambda record: (
            "–" if record["register"] is None else instant(record["register"], _domain(record))
        ),
    }
    return _table(streams, columns, ("rows", "unusable") if narrow else ())


def _slots(slots: Sequence[Record]) -> Table:
    most = max((record["state_bytes"] for record in slots), default=0) or 1
    fullest = sorted(slots, key=lambda record: -record["state_bytes"])[:MOST_SLOTS]
    columns: dict[str, Column] = {
        "slot": lambda record: str(record["slot"]),
        "groups": lambda record: str(record["groups"]),
        "rows lately": lambda record: amount(record["rows"]),
        "state": lambda record: size(record["state_bytes"]),
        " ": lambda record: Text("█" * round(20 * record["state_bytes"] / most), style="blue"),
    }
    return _table(sorted(fullest, key=lambda record: int(record["slot"])), columns)


def _table(rows: Sequence[Record], columns: Mapping[str, Column], without: Sequence[str] = ()) -> Table:
    table = plain_table()
    shown = {heading: column for heading, column in columns.items() if heading not in without}
    for heading in shown:
        justify: Literal["left", "right"] = "left" if heading in WORDS else "right"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")
    for record in rows:
        table.add_row(*(column(record) for column in shown.values()))
    return table


def _domain(record: Record) -> TimeDomain:
    return TimeDomain.of_word(record["time"])


def bars(values: Sequence[float | None]) -> str:
    """Numbers as a row of bars; what is unknown is a gap.

    >>> bars([0, 4, None, 8])
    '▁▅ █'
    """
    most = max([value for value in values if value is not None], default=0) or 1
    places = (" " if value is None else BARS[round(value / most * (len(BARS) - 1))] for value in values)
    return "".join(places)
