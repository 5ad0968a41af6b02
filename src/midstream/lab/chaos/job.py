"""The job that is struck: a job file, and the commands that people type for it, each as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from midstream.lab.chaos.queries import DELIVERED

SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"
LOCAL = "local"
"""What is given for Spark's master where the job runs in one process, without Spark."""


def write_job(folder: Path, master: str, texts: Mapping[str, str], sinks: Collection[str] = DELIVERED) -> None:
    """Writes the job file: streams from folders that grow, queries with these texts, some of them with sinks."""
    where: dict[str, Any] = {"on": "local"} if master == LOCAL else {"master": master, "small_batches": 0}
    tables = [_table("job", checkpoint=str(checkpoint_in(folder)), **where)]
    if master != LOCAL:
        tables.append(_table("spark", **{"spark.driver.memory": "1g"}))
    for name in "ABC":
        path = str(declared(source_in(folder, name)))
        tables.append(_table(f"streams.{name}", format="parquet", path=path, schema=SCHEMA))
        tables.append(_table(f"streams.{name}.options", maxFilesPerTrigger="2"))
    for name, cql in texts.items():
        sink = _table(f"queries.{name}.sink", kind="folder", path=str(sink_in(folder, name))) if name in sinks else ""
        tables += [_table(f"queries.{name}", cql=cql), sink]
    (folder / "job.toml").write_text("\n".join(tables))


def _table(name: str, **values: Any) -> str:
    return f"[{name}]\n" + "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())


def checkpoint_in(folder: Path) -> Path:
    """Where the job keeps what it knows."""
    return folder / "disk" / "checkpoint"


def source_in(folder: Path, stream: str) -> Path:
    """The folder that has the files of a stream now: it can have been moved, or its name be hidden for a time."""
    return max((folder / stream).iterdir(), key=lambda place: int(place.name.lstrip(".")))


def declared(source: Path) -> Path:
    """A stream's folder by the name under which the job expects it."""
    return source.with_name(source.name.lstrip("."))


def sink_in(folder: Path, query: str) -> Path:
    """The folder that the results of a query go to."""
    return folder / "sinks" / query


def typed(words: Sequence[str], errors: Path) -> subprocess.Popen[str]:
    """Begins a command; what it says goes into a file."""
    command = [sys.executable, "-c", "from midstream.interface.cli import main; main()", *words]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with open(errors, "w") as file:
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=file, text=True, env=environment, start_new_session=True
        )
