"""`midstream bench fuzz`: random streams, settings and migrations against DuckDB, and damaged texts against the parser.

A case is a query of the chaos job over random streams, run in one call with drawn batches, scheduling, plan and
migrations; every snapshot must be DuckDB's. A damaged text must give a plan or a `QueryError`, nothing else.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import Catalog
from midstream.api import Migration, run
from midstream.errors import MigrationError, QueryError
from midstream.inputs import StreamSettings
from midstream.lab.bench.figures import Report
from midstream.lab.chaos.judge import database_of, difference, empty_database
from midstream.lab.chaos.queries import COMING, PLANS, QUERIES, STRATEGIES, Judged
from midstream.language import parse

log = logging.getLogger(__name__)

JUDGED: dict[str, Judged] = {**QUERIES, **COMING}
SCHEDULES = ("dfs", "bfs", "rr", "batch:3", "chain")
TEXTS = sorted(judged.cql for judged in JUDGED.values())
TEXTS_PER_CASE = 100
WORDS = (
    *[
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "[",
        "]",
        "(",
        ")",
        ",",
        ".",
        "*",
        "=",
        "<",
        "1",
        "-1",
        "NULL",
        "RANGE",
        "ROWS",
        "HOP",
        "JOIN",
        "LEFT",
        "ON",
        "AND",
        "NOT",
        "A",
        "B",
        "k",
        "v",
    ],
    *("'x'", "\x00", "é"),
)


def bench_fuzz(cases: int = 200, seed: int = 0) -> Report:
    """How many of so many cases differ from DuckDB, and how many texts the parser answers with a foreign error."""
    began = time.perf_counter()
    wrong = refused = foreign = 0
    database = empty_database()
    for number in range(seed, seed + cases):
        random = Random(number)
        try:
            found = _differs(random, database)
        except MigrationError:
            refused += 1
            found = None
        if found is not None:
            wrong += 1
            log.error("seed %d: %s", number, found)
        for _ in range(TEXTS_PER_CASE):
            foreign += _foreign(random, number)
    report = Report("fuzz")
    report.add("cases", float(cases), "cases")
    report.add("cases whose migration is refused", float(refused), "cases")
    report.add("cases that differ from DuckDB", float(wrong), "cases", 0.0, "at most")
    report.add("damaged texts", float(cases * TEXTS_PER_CASE), "texts")
    report.add("texts that the parser fails on", float(foreign), "texts", 0.0, "at most")
    report.add("time of a case", (time.perf_counter() - began) / max(cases, 1), "s")
    return report


def _differs(random: Random, database: Any) -> str | None:
    """What is wrong with a drawn case, if anything is."""
    name = random.choice(sorted(JUDGED))
    judged = JUDGED[name]
    streams = {stream: _rows(random) for stream in "ABC"}
    inputs = {stream: table for stream, table in streams.items() if f" {stream} [" in judged.cql}
    migrates = name == "joined"
    moments = sorted(random.sample(range(10, 90), random.randint(0, 2))) if migrates else []
    migrations = [Migration(at=at, plan=random.choice(PLANS), strategy=random.choice(STRATEGIES)) for at in moments]
    rows, scheduling = random.choice([1, 7, 30, 1000]), random.choice(SCHEDULES)
    got = run(
        judged.cql,
        inputs,
        time="ts",
        plan=random.choice([None, *PLANS]) if migrates else None,
        migrations=migrations,
        batch_rows=rows,
        scheduling=scheduling,
    )
    found = difference(database_of(streams, database), judged, got, 0)
    return None if found is None else f"{name} in batches of {rows} by {scheduling} with {migrations}: {found}"


def _rows(random: Random) -> pa.Table:
    times = sorted(random.sample(range(100), random.randint(1, 60)))
    return pa.table({"k": [random.randrange(random.choice([1, 4, 8])) for _ in times], "v": times, "ts": times})


def _foreign(random: Random, number: int) -> bool:
    """Whether a damaged text makes the parser fail with anything but its own error."""
    text = random.choice(TEXTS)
    tokens = text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(random.randint(1, 5)):
        place = random.randrange(len(tokens) + 1)
        match random.randrange(4):
            case 0:
                del tokens[place : place + random.randint(1, 3)]
            case 1:
                tokens[place:place] = tokens[place : place + 4]
            case 2:
                tokens[place : place + 1] = [random.choice(WORDS)]
            case _:
                tokens.insert(place, "".join(chr(random.randrange(1, 500)) for _ in range(random.randint(1, 6))))
    try:
        parse(" ".join(tokens), _catalog())
    except QueryError:
        return False
    except Exception as error:
        log.error("seed %d: %r gives %s: %s", number, " ".join(tokens), type(error).__name__, error)
        return True
    return False


@cache
def _catalog() -> Catalog:
    columns = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
    return Catalog({name: StreamSettings("ts").declaration(name, columns) for name in "ABC"}, {})
