"""What provokes each class of error, why it happens and what to do about it."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import midstream as ms
from midstream.checkpoint.failures import storage_errors
from midstream.checkpoint.local_files import LocalFiles
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.retention import warn_of_removed_dead_letters
from midstream.cluster.sinks import connect
from midstream.cluster.spark.failures import in_words
from midstream.connectors.sink import Delivery, deliver
from midstream.inputs.ddl import schema_of_ddl
from midstream.interface.cli.endings import _unexpected
from midstream.interface.jobs.job_file import job_of

KEYS = [{"ts": ts, "k": ts % 3, "v": ts} for ts in range(20)]
STREAMS = {"A": KEYS, "B": KEYS}


@dataclass(frozen=True, slots=True)
class Example:
    """An error that `provoke` raises, a warning that it gives, or the text of one that only a running job can raise."""

    provoke: Callable[[], Any]
    cause: str
    remedy: str


def _raise(error: BaseException) -> None:
    raise error


def _missing_file() -> None:
    with storage_errors("read", "orders.checkpoint/state/3-0.pack"):
        Path("3-0.pack").read_bytes()


def _batch_gone() -> None:
    store: Any = SimpleNamespace(uri="orders.checkpoint", batch_ids=lambda: range(30, 40))
    manifest: Any = SimpleNamespace(batch_id=17)
    with StoredJob(store, manifest)._retained(17):
        _missing_file()


def _full_disk() -> None:
    with storage_errors("write", "orders.paid/000000000007-paid.parquet"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _taken_name() -> None:
    files = LocalFiles(str(Path("orders.checkpoint").absolute()))
    for _ in range(2):
        files.write_atomic("manifests/17", b"batch 17", only_if_absent=True)


def _two_rows_of_a_key() -> None:
    rows = pa.table({"k": [7, 7], "v": [1, 2], "valid_from": [0, 0], "valid_to": [9, 9]})
    sink = connect("sqlite", path="orders.db", table="now", form="current", key=["k"])
    deliver(sink, rows, Delivery("now", "query", "job", "job", 3, 0, 5, rows.schema))


def _refused_migration() -> None:
    change = ms.Migration(at=10, plan="(B A)", strategy="parallel_track")
    query = "SELECT DISTINCT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k"
    ms.run(query, STREAMS, plan="(A B)", migrations=[change])


def _unknown_strategy() -> None:
    change = ms.Migration(at=10, plan="(B A)", strategy="genmg")
    ms.run("SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k", STREAMS, plan="(A B)", migrations=[change])


def _late_rows() -> None:
    ms.run("SELECT k FROM A [RANGE 5]", {"A": [*KEYS, {"ts": 3, "k": 1, "v": 0}]}, lateness=2, batch_rows=5)


def _removed_dead_letters() -> None:
    outputs = SimpleNamespace(removed_dead_letters={"rows": 1200, "last_batch": 17})
    warn_of_removed_dead_letters(SimpleNamespace(outputs=outputs))  # type: ignore[arg-type]


def _wrong_key() -> None:
    job_of(tomllib.loads('[job]\ncheckpoint = "a"\nslot = 2\n[streams.a]\nformat = "csv"\npath = "a"\n'), Path())


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "QueryError": (
        Example(
            lambda: ms.run("SELECT kk FROM A [NOW]", STREAMS),
            "a name that no stream of FROM has.",
            "correct the name; the caret shows where it stands.",
        ),
        Example(
            lambda: ms.run("SELECT A.k FROM A, B WHERE A.k = B.k", STREAMS),
            "an operator that would have to remember a stream for ever.",
            "give the stream a [window](../how-to/windows.md); `[UNBOUNDED]` says that its state may grow.",
        ),
        Example(
            lambda: ms.run("SELECT k FROM A [RANGE 5] WHERE count(*) > 1", STREAMS),
            "WHERE is evaluated for single rows, before they are grouped.",
            "put conditions on groups into HAVING.",
        ),
        Example(
            lambda: ms.run("SELECT k FROM A ORDER BY k LIMIT 3", STREAMS),
            "of a stream without a window every row that ever came could be one of the first.",
            "give the stream a window.",
        ),
    ),
    "InputError": (
        Example(
            lambda: ms.run("SELECT k FROM A [NOW]", {"A": "orders.parquet"}),
            "an input that cannot be read.",
            "correct the path; [Sources](../how-to/sources.md) lists formats.",
        ),
        Example(
            lambda: ms.run("SELECT k FROM A [NOW]", {"A": pa.table({"k": [1]})}),
            "a stream without the time column that was declared, by default `ts`.",
            "name the column: `time=` in Python, `--time` on the command line, `time` in a job file.",
        ),
    ),
    "SchemaError": (
        Example(
            lambda: schema_of_ddl("id BIGNT, ts TIMESTAMP"),
            "`schema` of a stream in a job file that cannot be read.",
            "write pairs of name and type as Spark does. `midstream check` finds all such mistakes at once.",
        ),
    ),
    "MigrationError": (
        Example(
            _refused_migration,
            "a strategy that would give wrong results for this plan.",
            "use the strategy of the hint, or `auto`; [Choosing a strategy](../how-to/choose-a-strategy.md).",
        ),
        Example(_unknown_strategy, "a name that no strategy has.", "use one of the names in the hint."),
    ),
    "JobError": (
        Example(_wrong_key, "a mistake in a job file.", "`midstream check JOB.toml` shows all of them at once."),
        Example(
            lambda: ms.open("orders.checkpoint"),
            "no checkpoint where one was named: the job was never started, or the path is wrong.",
            "correct the path, or start the job.",
        ),
    ),
    "StorageFailure": (
        Example(
            _full_disk,
            "a disk is full, a right is missing, or an object store does not answer; sinks were tried again before.",
            "mend what the detail names, then start the job again.",
        ),
    ),
    "MissingFile": (
        Example(
            _missing_file,
            "a file of the checkpoint was deleted or lost.",
            "restore the checkpoint from a copy; [Recovering](../how-to/recover.md) says what can be repaired.",
        ),
    ),
    "NotRetained": (
        Example(
            _batch_gone,
            "the job went on, and what was read of its checkpoint is as of a batch that is no longer retained.",
            "`refresh()` the job or open it again; `ms.read_results` always reads as of the newest batch. A "
            "[subscriber](../how-to/serve.md) begins at an instant that is kept.",
        ),
    ),
    "AlreadyThere": (
        Example(
            _taken_name,
            "two drivers tried to commit the same batch; exactly one succeeds.",
            "nothing: the driver that lost stops by itself. Find out who runs the job twice.",
        ),
    ),
    "UntakenResults": (
        Example(
            _two_rows_of_a_key,
            "results of a query that its table cannot have: two at a time with the same key, or one without a key.",
            "give the query another text with `--replace`, which takes its place at once, or write to another table.",
        ),
    ),
    "HeldLease": (
        Example(
            lambda: (
                "another driver runs on /data/orders.checkpoint: process 4711 on worker-3\n  "
                "detail: it renewed its lease 7 seconds ago"
            ),
            "a process runs the job already, here or on another machine.",
            "stop it first, or have this one [wait for its end](../how-to/upgrade.md#without-a-gap) with `--standby`.",
        ),
    ),
    "LostLease": (
        Example(
            lambda: "the lease of /data/orders.checkpoint is lost\n  detail: process 4711 on worker-3 took it over",
            "another driver took the job over because this one had not renewed its lease for a minute.",
            "nothing: this driver ends by itself. Find out what held it up, or who runs the job twice.",
        ),
    ),
    "PutOff": (
        Example(
            lambda: "batch 17 was put off: the session is being stopped",
            "the job is being stopped while Spark already offers the next batch.",
            "nothing: the batch is run by the next start.",
        ),
    ),
    "ClusterError": (
        Example(
            lambda: _raise(in_words(ConnectionResetError(), None, "orders.checkpoint")),  # type: ignore[arg-type]
            "a process that the job runs on has died, often because memory ran out.",
            "start the job again: it goes on with the batch under way. A supervisor can do so on exit code 75.",
        ),
    ),
    "InternalError": (
        Example(
            lambda: _raise(_unexpected(KeyError("slot"))),
            "a defect of Midstream.",
            "report it with what `--debug` shows. The checkpoint is as the last batch left it.",
        ),
    ),
    "DeadLetterWarning": (
        Example(
            _late_rows,
            "rows that are later than `lateness` permits, have no time, or are too far ahead.",
            "declare a larger `lateness`, or read the rows: [Late and unusable data](../how-to/late-data.md).",
        ),
    ),
    "RemovedWarning": (
        Example(
            _removed_dead_letters,
            "results or dead letters that the job's `retention` has removed.",
            "nothing, if that is what was wanted; else declare a longer [retention](../how-to/operate.md#retention).",
        ),
    ),
}
