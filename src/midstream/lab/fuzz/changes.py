"""Random changes of a query: two texts over the same streams, the second mostly an edit of the first.

A text follows from a list of numbers, one for each decision. Drawing some of these again while the others stay gives a
text that differs as edits do: another window, filter, column, group or join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.constructs import EVERYTHING, ROW_WINDOWS, SEQUENCES
from midstream.lab.fuzz.queries import Writer
from midstream.lab.fuzz.streams import StreamSpec, draw_streams, draw_table

MOST_ROWS, LAST_TIME, MOST_JOINED = 36, 90, 3
MOST_EDITS = 3
MOST_NUMBER = 2**62


@dataclass(frozen=True)
class Change:
    """Texts of a query before and after, the rows of its streams as they arrive, and what else the job has."""

    old: str
    new: str
    streams: tuple[StreamSpec, ...]
    inputs: dict[str, pa.Table]
    batches: tuple[dict[str, pa.Table], ...]
    lateness: int
    """By how much rows are out of order, in drawn time."""
    kept: dict[str, str]
    """Queries that keep rows of streams for questions to come."""

    def __str__(self) -> str:
        return f"{self.old}\n  -> {self.new}\n  kept: {self.kept}, lateness {self.lateness}"


OF_WINDOWS = EVERYTHING - ROW_WINDOWS - SEQUENCES - {"unbounded", "raw", "valid_until"}
"""What depends on rows of limited time alone: after a change there is an instant from which on it is complete."""


def draw_change(seed: int) -> Change:
    """The change of a seed."""
    random = Random(f"change {seed}")
    constructs = random.choice([OF_WINDOWS, OF_WINDOWS, EVERYTHING])
    choices = Choices(random.randint)
    streams = draw_streams(choices, constructs)
    old, new = _texts(random, streams, constructs)
    lateness = random.choice([0, 0, 5])
    tables = {s.name: _arriving(draw_table(choices, s, MOST_ROWS, LAST_TIME), s, lateness, random) for s in streams}
    kept = {
        f"kept_{s.name}": f"SELECT KEEP * FROM {s.name} [RANGE {s.time.duration(random.choice([10, 30, 60]))}]"
        for s in streams
        if random.random() < 0.3
    }
    return Change(old, new, streams, tables, _batches(tables, streams, random), lateness, kept)


def _texts(random: Random, streams: tuple[StreamSpec, ...], constructs: frozenset[str]) -> tuple[str, str]:
    drawn: list[int] = []

    def recorded(low: int, high: int) -> int:
        drawn.append(random.randint(low, high))
        return drawn[-1]

    def written(source: Callable[[int, int], int]) -> str:
        return Writer(Choices(source), streams, constructs, MOST_JOINED).query().cql

    old = new = written(recorded)
    while new == old:
        new = written(_edited(drawn, random))
    return old, new


def _edited(drawn: Sequence[int], random: Random) -> Callable[[int, int], int]:
    """The same decisions, but for some of them; now and then all are made anew."""
    again = set(random.sample(range(len(drawn)), min(len(drawn), random.randint(1, MOST_EDITS))))
    if random.random() < 0.25:
        again = set(range(len(drawn)))
    place = iter(range(MOST_NUMBER))

    def edited(low: int, high: int) -> int:
        at = next(place)
        stays = at < len(drawn) and at not in again and low <= drawn[at] <= high
        return drawn[at] if stays else random.randint(low, high)

    return edited


def _arriving(table: pa.Table, stream: StreamSpec, lateness: int, random: Random) -> pa.Table:
    """The rows that have a time, in an order in which none is late."""
    table = table.filter(pc.is_valid(table["ts"]))
    ticks = ticks_of(table["ts"])
    order = sorted(range(len(ticks)), key=lambda i: ticks[i] + random.randint(0, lateness) * stream.time.second)
    return table.take(pa.array(order, pa.int64()))


def _batches(
    tables: dict[str, pa.Table], streams: tuple[StreamSpec, ...], random: Random
) -> tuple[dict[str, pa.Table], ...]:
    """The rows cut into batches of about so much time each; a stream may be behind others."""
    length, found = random.choice([5, 9, 17]), list[dict[str, pa.Table]]()
    for until in range(length, LAST_TIME + 2 * length, length):
        batch = {}
        for stream in streams:
            table, done = tables[stream.name], sum(part[stream.name].num_rows for part in found if stream.name in part)
            behind = random.choice([0, 0, 0, length // 2]) if until <= LAST_TIME else 0
            last = stream.time.tick(until - behind)
            count = sum(1 for tick in ticks_of(table["ts"]) if tick < last)
            if count > done:
                batch[stream.name] = table.slice(done, count - done)
        found.append(batch)
    return tuple(batch for batch in found if batch)


def ticks_of(times: pa.ChunkedArray) -> list[int]:
    """A column of times in ticks."""
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", times.type.tz))
    return list(times.cast(pa.int64()).to_pylist())


def draw_narrowing(seed: int) -> Change:
    """A query of a seed, and one with shorter windows, more conditions and fewer columns."""
    random = Random(f"narrowing {seed}")
    choices = Choices(random.randint)
    streams = draw_streams(choices, EVERYTHING)
    aliases = [f"x{i}" for i in range(random.choice([1, 1, 2, 2, 3, 3, 4]))]
    read = {alias: random.choice(streams) for alias in aliases}
    equal = [f"{random.choice(aliases[:i])}.{random.choice('kkkv')} = {aliases[i]}.k" for i in range(1, len(aliases))]
    columns = [f"{alias}.{column} AS {alias}{column}" for alias in aliases for column in "kv"]
    old, new = sorted(random.sample(range(10, 60, 5), 2), reverse=True)
    sizes = [dict.fromkeys(aliases, size) for size in (old, new)]
    if random.random() < 0.2:
        sizes[1][aliases[0]] = old
    conditions = [_condition(random, random.choice([aliases, aliases[:1]])) for _ in range(3)]
    met, lateness = random.randint(0, 1), random.choice([0, 0, 5])
    outer = len(aliases) == 2 and random.random() < 0.4
    shape = random.choice(["{}", "ISTREAM {}", "groups", "DISTINCT {}", "places"])

    def text(which: int, met: int) -> str:
        windows = [f"{s.name} [RANGE {s.time.duration(sizes[which][a])}] AS {a}" for a, s in read.items()]
        known = [*([] if outer else equal), *conditions[:met]]
        joined = f" LEFT JOIN {windows.pop()} ON {equal[0]}" if outer else ""
        where = f"FROM {', '.join(windows)}{joined} WHERE {' AND '.join(known) or '1 = 1'}"
        names = ", ".join(random.sample(columns, random.randint(2, len(columns))) if which else columns)
        chosen = random.choice(["{}", shape, shape]) if which else shape
        if chosen == "groups":
            figures = random.sample(["COUNT(*) AS n", "SUM(x0.v) AS s", "MAX(x0.v) AS m"], 2)
            return f"SELECT x0.k AS g, {', '.join(figures)} {where} GROUP BY x0.k"
        if chosen == "places":
            return f"SELECT x0.v AS b, SUM(x0.v) OVER (PARTITION BY x0.k ORDER BY x0.v) AS n {where}"
        return f"SELECT {chosen.format(names)} {where}"

    texts = text(0, met), text(1, random.randint(met, 3))
    most = 2 * MOST_ROWS if len(aliases) < 3 else MOST_ROWS
    drawn = {s.name: draw_table(choices, s, most, LAST_TIME) for s in streams}
    tables = {s.name: _arriving(drawn[s.name], s, lateness, random) for s in streams}
    return Change(*texts, streams, tables, _batches(tables, streams, random), lateness, {})


def _condition(random: Random, aliases: Sequence[str]) -> str:
    one, other = random.choice(aliases), random.choice(aliases)
    number = random.randint(0, 5)
    forms = [f"{one}.v < {number}", f"{one}.v <> {number}", f"{one}.k IN (0, 1, {number})", f"{one}.v <= {other}.v"]
    return random.choice(
        [*forms, f"({one}.v > 3 OR {other}.k < 2)", f"{one}.v + 1 > {other}.k", f"{one}.v IS NOT NULL"]
    )
