"""`midstream bench chaos`: a job is struck again and again while it is fed and asked; DuckDB judges the rest.

The job is `midstream run` on a job file, in one process or on Spark, and people ask by commands that are typed. Every
strike hits a job at work. A job that ends is started again, as an operator would do, and must end in words of ours,
never with a traceback. When all strikes are done the streams end, and every snapshot of every query, as the results
table has it and as its sink has it, must be the one that DuckDB computes from the rows that were fed.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import send
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError, MidstreamError
from midstream.lab.bench.figures import Report
from midstream.lab.chaos.job import LOCAL, checkpoint_in, source_in, typed, write_job
from midstream.lab.chaos.judge import differences
from midstream.lab.chaos.queries import COMING, DELIVERED, LONGEST, OTHERWISE, QUERIES
from midstream.lab.chaos.requests import TYPED, Requests, words_of
from midstream.lab.chaos.strikes import Strikes, small_disk

log = logging.getLogger(__name__)

MASTERS = (LOCAL, "local[2,4]", "local-cluster[2,1,1500]")
PATIENCE = 240.0
"""Seconds after which a job that commits nothing counts as hanging."""

BACKLOG = 6
"""How many files of each stream may wait."""

STEP = 10

STARTS = 50
"""How many starts without a batch count as a job that cannot be started."""


class Feed:
    """Folders that grow: each file has rows of the next instants, no two rows of a stream the same time."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.count = 0
        self.tables: dict[str, list[pa.Table]] = {name: [] for name in "ABC"}
        for name in self.tables:
            (folder / name / "0").mkdir(parents=True)

    @property
    def at(self) -> int:
        """The instant after all that was fed."""
        return self.count * STEP

    def more(self) -> None:
        """One more file for each stream."""
        for name, tables in self.tables.items():
            times = sorted(self.random.sample(range(self.at, self.at + STEP), 6))
            table = pa.table({"k": [self.random.randrange(8) for _ in times], "v": times, "ts": times})
            tables.append(table)
            source = source_in(self.folder, name)
            draft = source / f".{self.count:06d}"
            pq.write_table(table, draft)
            os.utime(draft, ns=((10**9 + self.count) * 10**9,) * 2)
            draft.rename(source / f"{self.count:06d}.parquet")
        self.count += 1

    def fed(self) -> dict[str, pa.Table]:
        """All rows by stream."""
        return {name: pa.concat_tables(tables) for name, tables in self.tables.items()}


class Conductor:
    """Runs, feeds, asks and strikes a job."""

    def __init__(self, folder: Path, master: str, random: Random, has_disk: bool) -> None:
        self.folder = folder
        self.master = master
        self.random = random
        self.feed = Feed(folder, Random(random.random()))
        self.strikes = Strikes(folder, Random(random.random()), has_disk)
        self.struck: Counter[str] = Counter()
        self.requests = Requests(Random(random.random()))
        self.unclear: list[str] = []
        self.starts: list[int] = []
        """The newest batch at each start of the job."""
        self.ending = False
        self.batch = -1
        self.since: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.job: subprocess.Popen[str] | None = None
        # Groups whose queries never forget cannot move by split time, so half of the jobs have none of these.
        never_forget = {"newest"} if random.random() < 0.5 else set()
        self.declared = {name: judged.cql for name, judged in QUERIES.items() if name not in never_forget}
        write_job(folder, master, self.declared)

    @property
    def checkpoint(self) -> Path:
        """Where the job's checkpoint is."""
        return checkpoint_in(self.folder)

    def run(self, kills: int, until: float = inf) -> None:
        """Strikes so many times, or until a moment, and lets the job come to its end."""
        self.feed.more()
        while self.struck.total() < kills and time.monotonic() < until:
            self._require_running()
            self._ask()
            if not self._progress():
                continue
            time.sleep(self.random.uniform(0, 0.6))
            self._strike()
            log.info("%d strikes: %s, batch %d", self.struck.total(), dict(self.struck), self.batch)
        self._finish()

    def _finish(self) -> None:
        """Stops the job, so that it comes to an end with all that there is, and more for queries that came late."""
        self._require_running()
        while not self._progress():  # so that it is known from when on a query is judged that was replaced
            self._require_running()
        self.ending = True
        assert self.job is not None
        self.job.terminate()
        self.job.wait(timeout=PATIENCE)
        self._ended()
        for _ in range(2 * LONGEST // STEP):
            self.feed.more()
        for _ in range(10):
            self._begin("--finish")
            self.job.wait(timeout=PATIENCE * 4)
            if self._ended() == 0:
                return
        raise JobError("the chaos job does not come to its end", detail=self._errors()[-2000:])

    def _feed(self) -> None:
        if self.feed.count - self._files_read() < BACKLOG:
            self.feed.more()

    def _files_read(self) -> int:
        with suppress(MidstreamError):
            manifest = CheckpointStore(str(self.checkpoint)).latest()
            if manifest is not None:
                return int(manifest.streams.rows.get("A", 0) / 6)
        return 0

    def _require_running(self) -> None:
        """Starts the job if it does not run, and waits until it is at work."""
        if self.job is not None and self.job.poll() is None:
            return
        if self.job is not None:
            self._ended()
        if self.starts[-STARTS:] == [self.batch] * STARTS:
            raise JobError(f"the chaos job was started {STARTS} times without a batch", detail=self._errors()[-2000:])
        job = self._begin()
        until = time.monotonic() + PATIENCE
        while job.poll() is None and "the job runs on" not in self._errors():
            if time.monotonic() > until:
                raise JobError("the chaos job does not start", detail=self._errors())
            time.sleep(0.05)

    def _begin(self, *options: str) -> subprocess.Popen[str]:
        """Starts the job; queries whose texts are others than the checkpoint's are replaced."""
        words = ["run", str(self.folder / "job.toml"), "--replace", *options]
        self.job = typed(words, self.folder / "errors.txt")
        self.starts.append(self.batch)
        return self.job

    def _errors(self) -> str:
        return (self.folder / "errors.txt").read_text()

    def _ended(self) -> int:
        """How the job ended; an end by itself must be told in words, and one in order must have been asked for."""
        assert self.job is not None
        code = self.job.wait()
        if code == 0 and not self.ending:
            self.unclear.append(f"the job ended with code 0 before it was told to: {self._errors()[-3000:]}")
        if code > 0 and "Traceback (most recent call last)" in self._errors():
            self.unclear.append(self._errors()[-3000:])
        if code > 0:
            log.info("the job ended with %d: %s", code, self._errors().strip()[-300:])
        self.job = None
        return code

    def _progress(self) -> bool:
        """Waits for a batch; False if the job ended before."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self._feed()
            assert self.job is not None
            if self.job.poll() is not None:
                return False
            if self._look():
                return True
            time.sleep(0.2)
        raise JobError(f"the chaos job has committed nothing for {PATIENCE:.0f} seconds", detail=self._errors()[-2000:])

    def _look(self) -> bool:
        """Looks at the newest manifest; whether it is another one than before."""
        with suppress(MidstreamError):
            manifest = CheckpointStore(str(self.checkpoint)).latest()
            if manifest is None or manifest.batch_id == self.batch:
                return False
            self.batch = manifest.batch_id
            texts = {name: entry.cql for name, entry in manifest.queries.items() if entry.status == "running"}
            for name, cql in texts.items():
                if self.texts.get(name) != cql:
                    first = not self.texts and name in QUERIES
                    self.since[name] = 0 if first else self.feed.at + LONGEST
            self.texts = texts
            return True
        return False

    def _ask(self) -> None:
        """Asks for something, as people do."""
        request = self.requests.drawn()
        if request["command"] in TYPED:
            self._type(request)
        else:
            with suppress(MidstreamError):  # such as a full disk
                send(files_at(str(self.checkpoint)), request)

    def _type(self, request: Mapping[str, Any]) -> None:
        """Types a request as people do, as a command of a process of its own."""
        said = self.folder / "command.txt"
        typed(words_of(self.checkpoint, request), said).wait(timeout=PATIENCE)
        if "Traceback" in said.read_text():
            self.unclear.append(said.read_text()[-3000:])

    def _strike(self) -> None:
        name, strike = self.strikes.drawn(self.master)
        assert self.job is not None
        if self.job.poll() is not None or not strike(self.job):
            return
        self.struck[name] += 1
        if name == "everything":
            self.strikes.copy()
            self._reword(OTHERWISE.cql if self.random.random() < 0.5 else QUERIES["changes"].cql)
        if name == "restored copy":
            self.texts = {name: cql for name, cql in self.texts.items() if name not in {*COMING, "changes"}}
        if self.strikes.flipped is not None:
            self._run_flipped()
        if self.strikes.away is not None:
            self._run_without_sink(self.strikes.away.name)
        if name == "source moved":
            write_job(self.folder, self.master, self.declared)
        if self.strikes.hidden is not None:
            self._run_without_source()

    def _reword(self, cql: str) -> None:
        """Has another query take the place of `changes`, or the same."""
        if self.declared["changes"] != cql:
            self.declared["changes"] = cql
            self.texts.pop("changes", None)
            write_job(self.folder, self.master, self.declared)

    def _run_without_sink(self, query: str) -> None:
        """Runs the job while a sink fails, and maybe for a time without it; then it is there again."""
        self._run_for_a_batch()
        if self.random.random() < 0.5:
            write_job(self.folder, self.master, self.declared, set(DELIVERED) - {query})
            self._run_for_a_batch()
            write_job(self.folder, self.master, self.declared)
        self.strikes.bring_sink_back()

    def _run_without_source(self) -> None:
        """Runs the job while a folder is away, which it says; what it has not read is still to come."""
        self._run_for_a_batch()
        self.strikes.bring_source_back()

    def _run_flipped(self) -> None:
        """Runs the job while a byte is wrong: it refuses, or does not need the file."""
        self._run_for_a_batch()
        self.strikes.mend()

    def _run_for_a_batch(self) -> None:
        """Runs the job until it has committed something or ended, and kills it."""
        with suppress(JobError):
            self._require_running()
            self._progress()
        if self.job is not None:
            self.strikes.kill_everything(self.job)
            self._ended()

    def clear(self) -> None:
        """Leaves nothing running."""
        if self.job is not None and self.job.poll() is None:
            self.strikes.kill_everything(self.job)


def bench_chaos(kills: int = 30, seed: int = 0, on: str | None = None, hours: float = inf) -> Report:
    """Strikes a job so many times, or for so many hours.

    They are shared among a job in one process, one on Spark and one on a cluster of executors, unless `on` names one.
    """
    report = Report("chaos")
    masters = MASTERS if on is None else (on,)
    each = 3600 * hours / len(masters)
    for number, master in enumerate(masters):
        share = kills // len(masters) + (kills % len(masters) if number == 0 else 0)
        if share:
            _run(report, master, share, Random(f"{seed} {master}"), time.monotonic() + each)
    return report


def _run(report: Report, master: str, kills: int, random: Random, until: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="midstream-chaos-"))
    with contextmanager(small_disk)(folder / "disk") as has_disk:
        conductor = Conductor(folder, master, random, has_disk)
        try:
            conductor.run(kills, until)
            wrong = differences(folder, conductor.feed.fed(), conductor.since)
        finally:
            conductor.clear()
    for name, what in wrong.items():
        log.error("query %s on %s: %s", name, master, what)
    for text in conductor.unclear:
        log.error("an end that is not told in words: %s", text)
    for name, count in sorted(conductor.struck.items()):
        report.add(f"{master}: {name}", float(count), "strikes")
    report.add(f"{master}: strikes", float(conductor.struck.total()), "strikes")
    report.add(f"{master}: starts", float(len(conductor.starts)), "starts")
    report.add(f"{master}: requests", float(conductor.requests.made.total()), "requests")
    for name in sorted(TYPED):
        report.add(f"{master}: {name}, typed", float(conductor.requests.made[name]), "requests")
    report.add(f"{master}: batches", float(conductor.batch), "batches")
    report.add(f"{master}: queries judged", float(len(conductor.since)), "queries")
    report.add(f"{master}: queries that differ", float(len(wrong)), "queries", 0.0, "at most")
    report.add(f"{master}: ends not told in words", float(len(conductor.unclear)), "ends", 0.0, "at most")
    if not wrong and not conductor.unclear:
        shutil.rmtree(folder, ignore_errors=True)
