"""The terminal view of a job: the same whether it is shown once or over and over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from midstream.algebra.time import amount, instant, length, plural, seconds, size
from midstream.checkpoint.metrics import Rates
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stops import stop_lines
from midstream.checkpoint.stored import StoredMigration, StoredQuery, StoredStream
from midstream.checkpoint.stored_slots import StoredSlots
from midstream.interface.tables import plain_table
from midstream.terminal import visible

BARS = "▁▂▃▄▅▆▇█"
MOST_SLOTS = 16
"""How many slots are listed; of more, the fullest."""

WORDS = ("query", "plan", "adapts", "stream", "nothing before", " ")
"""The columns that hold no numbers."""

Row = TypeVar("Row")
Column = Callable[[Row], str | Text]

COLOURS = {"running": "green", "finished": "green", "starting": "cyan", "stopped": "yellow", "failed": "red"}
"""Of the conditions of a job."""

NARROW = 90
"""Below how many characters a terminal is shown the most wanted columns only."""


def drawn(job: StoredJob, width: int = 120) -> Group:
    """All of it, most wanted first: what does not fit a small terminal is cut off at the end."""
    narrow, rates = width < NARROW, job.rates()
    parts: list[RenderableType] = [_head(job), _trend(job, rates)]
    parts += [_migration(query, query.migration) for query in job.queries.values() if query.migration is not None]
    tables = (_queries(job, rates, narrow), _streams(job, rates, narrow), _slots(job.slots))
    parts += [part for table in tables for part in (Text(), table)]
    return Group(*parts)


def _head(job: StoredJob) -> Text:
    now = job.standing
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(visible(job.name), style="bold")
    text.append(f"  {now.phase}", style=COLOURS[now.phase])
    text.append(f"  batch {job.batch:,}")
    if job.dead_letter_rows:
        text.append(f"  dead letters {job.dead_letter_rows:,}", style="yellow")
    text.append(f"  {visible(job.checkpoint)}", style="dim")
    for line in stop_lines(now):
        text.append(f"\n{visible(line)}", style="red")
    return text


def _trend(job: StoredJob, rates: Rates) -> Table:
    rows, took = job.recent()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="crop")
    table.add_row(f"{amount(sum(rates.rows_per_second.values()))} rows/s", Text(bars(rows), style="cyan"))
    spent = "–" if rates.batch_seconds is None else seconds(rates.batch_seconds)
    table.add_row(f"{spent} a batch", Text(bars(took), style="magenta"))
    sizes = job.sizes
    held = f"state {size(sizes.state)}, checkpoint {size(sizes.checkpoint)}, last commit {size(sizes.commit)}"
    table.add_row(f"{amount(sum(rates.results_per_second.values()))} results/s", held)
    return table


def _migration(query: StoredQuery, migration: StoredMigration) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis", style="bold yellow")
    plans = visible(f"{migration.old_plan} to {migration.new_plan}")
    text.append(f"{query.name} migrates from {plans} by {migration.strategy}")
    part, actual = progress(migration, query.advanced_to), migration.actual
    if part is not None:
        done = round(part * 20)
        text.append(f"  {'█' * done}{'░' * (20 - done)} {part:.0%} of the way to the split time")
    elif actual is not None:
        batches = plural(actual.batches, "batch", "batches")
        text.append(f"  {migration.status}, {batches}, {seconds(actual.wall_seconds)}")
    return text


def progress(migration: StoredMigration, reached: int | None) -> float | None:
    """How much of the way to its split time a migration has behind it; None for strategies that have none."""
    begun = None if migration.actual is None else migration.actual.started_at
    if migration.split_time is None or begun is None or reached is None:
        return None
    way = migration.split_time - begun
    return 1.0 if way <= 0 else min(1.0, max(0.0, (reached - begun) / way))


def _queries(job: StoredJob, rates: Rates, narrow: bool) -> Table:
    now, latencies = job.standing, job.latencies
    columns: dict[str, Column[StoredQuery]] = {
        "query": lambda query: query.name,
        "results/s": lambda query: amount(rates.results_per_second.get(query.name, 0.0)),
        "results": lambda query: f"{query.results:,}",
        "behind": lambda query: "–" if (ticks := job.behind(query.name)) is None else length(ticks, query.domain),
        "latency": lambda query: "–" if (took := latencies[query.name]) is None else seconds(took),
        "state": lambda query: size(query.state_bytes),
        "plan": lambda query: _plan(query, now.of_query(query.status)),
        "adapts": lambda query: query.adaptivity.mode,
    }
    return _table(list(job.queries.values()), columns, ("results", "state", "adapts") if narrow else ())


def _plan(query: StoredQuery, status: str) -> Text:
    text = Text(visible(query.plans) or "without joins", overflow="ellipsis")
    if query.migration is not None:
        text.append(f" → {visible(query.migration.new_plan)}", style="bold yellow")
    if query.quarantine is not None:
        text.append(f" stopped: {visible(query.quarantine.reason)}", style="red")
    elif status not in ("", "running"):
        text.append(f" {status}", style="yellow")
    elif query.waits_for is not None:
        text.append(f" waits for {query.waits_for.stream}", style="yellow")
    return text


def _streams(job: StoredJob, rates: Rates, narrow: bool) -> Table:
    columns: dict[str, Column[StoredStream]] = {
        "stream": lambda stream: stream.name,
        "rows/s": lambda stream: amount(rates.rows_per_second.get(stream.name, 0.0)),
        "rows": lambda stream: f"{stream.rows:,}",
        "late": lambda stream: f"{stream.late:,}",
        "unusable": lambda stream: f"{stream.unusable:,}",
        "nothing before": lambda stream: "–" if stream.register is None else instant(stream.register, stream.domain),
    }
    return _table(list(job.streams.values()), columns, ("rows", "unusable") if narrow else ())


def _slots(slots: StoredSlots) -> Table:
    held = slots.bytes
    most = max(held, default=0) or 1
    columns: dict[str, Column[int]] = {
        "slot": str,
        "groups": lambda slot: str(slots.routing.count(slot)),
        "rows lately": lambda slot: amount(slots.rows[slot]),
        "state": lambda slot: size(held[slot]),
        " ": lambda slot: Text("█" * round(20 * held[slot] / most), style="blue"),
    }
    return _table(sorted(sorted(range(slots.count), key=lambda slot: -held[slot])[:MOST_SLOTS]), columns)


def _table(rows: Sequence[Row], columns: Mapping[str, Column[Row]], without: Sequence[str] = ()) -> Table:
    table = plain_table()
    shown = {heading: column for heading, column in columns.items() if heading not in without}
    for heading in shown:
        justify: Literal["left", "right"] = "left" if heading in WORDS else "right"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = (column(row) for column in shown.values())
        table.add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells))
    return table


def bars(values: Sequence[float | None]) -> str:
    """Numbers as a row of bars; what is unknown is a gap.

    >>> bars([0, 4, None, 8])
    '▁▅ █'
    """
    most = max([value for value in values if value is not None], default=0) or 1
    places = (" " if value is None else BARS[round(value / most * (len(BARS) - 1))] for value in values)
    return "".join(places)
