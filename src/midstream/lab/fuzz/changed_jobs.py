"""Jobs whose query is changed at a random moment, among migrations, moves and crashes, and what they have to promise.

From the instant on that the history promises, results are the oracle's of the new text over all rows since the
beginning; before the new text begins, those of the old one are the oracle's of the old text; and what is withheld until
it is complete is never given before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from midstream.algebra.snapshots import snapshot_equal
from midstream.algebra.time import BEGINNING, INFINITY, LONGEST
from midstream.api import plans, reference
from midstream.checkpoint.commands import CancelMigration, ReplaceQuery, SwitchQuery
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import carry_out
from midstream.errors import JobError, MidstreamError, MigrationError, QueryError
from midstream.job.ending import release
from midstream.job.queries import filling
from midstream.job.queries.completeness import COMPLETE
from midstream.job.queries.succession import hands_on
from midstream.lab.fuzz.changes import Change, ticks_of
from midstream.lab.fuzz.drives import SCHEDULES
from midstream.lab.fuzz.streams import StreamSpec
from midstream.lab.simulated_cluster.cluster import OnDemandBackend, SimulatedSource
from midstream.migration.moving_state_paced import LEAST_WORK, SHARE
from midstream.migration.registry import STRATEGIES

PROTOCOLS = ("auto", "mslb", "split_time", "ptlb")
EVENTS = (*[""] * 12, *["rescale", "rebalance", "migrate", "restart", "crash", "schedule"] * 2, "cancel")
GROUPS = 256
VERIFIED = 7
TOO_MANY = "the query reads more than"
"""Why a text may be refused that is drawn from what there is: its sub-queries, written as joins, read too many."""


class Crash(Exception):
    """The process is gone before a batch counts."""


@dataclass(slots=True)
class ChangedJob:
    """A job with one query, which is changed once."""

    change: Change
    random: Random
    folder: Path
    session: CheckpointSession = field(init=False)
    declared: str = field(init=False)
    options: dict[str, Any] = field(default_factory=dict)
    asked: bool = False
    waited: bool = False
    """Whether the new text ran beside the old one until it could go on from where that ended."""
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.declared = self.change.old
        self._open()

    def _open(self) -> None:
        self.session = self._session()
        for stream in self.change.streams:
            lateness = stream.time.duration(self.change.lateness)
            self.session.stream(
                stream.name, self._source(stream), lateness=int(lateness) if lateness.isdecimal() else lateness
            )
        for name, cql in self.change.kept.items():
            self.session.query(name, cql)
        self.session.query("q", self.declared)
        self.session.start()

    def _session(self) -> CheckpointSession:
        return CheckpointSession(None, checkpoint=str(self.folder), on="local", slots=self._slots())

    def _source(self, stream: StreamSpec) -> Any:
        return stream.schema

    def _slots(self) -> int | None:
        return None if self.asked else self.random.randint(1, 3)

    def run(self) -> None:
        """Runs all batches; what is refused is left out."""
        at = self.random.randint(1, max(1, len(self.change.batches) - 1))
        for number, batch in enumerate(self.change.batches):
            if number == at:
                self._change()
            elif number:
                waits = self.options.get("then") == "wait"
                self._event(self.random.choice((*EVENTS, *["switch"] * 8) if waits else EVENTS))
            self._push(batch)
        self.session.finish()

    def _push(self, batch: Mapping[str, pa.Table]) -> None:
        self.session.push(batch)

    def _change(self) -> None:
        self.asked = True
        verify = self.random.random() < 0.1
        self.options = {"incomplete": self.random.choice(["emit", "withhold"])}
        if verify:
            self.options["verify"] = self.change.streams[0].time.duration(VERIFIED)
            self.options["then"] = self.random.choice(["switch", "wait"])
        try:
            told = carry_out(self.session, self._replacement())
            self.waited = verify or told["paced"]
            self.counts["verified" if verify else "changed"] += 1
            self.counts.update(window["how"] for window in told["windows"])
        except MidstreamError as refused:
            self.counts[f"refused: {refused.message}"] += 1

    def _replacement(self) -> ReplaceQuery:
        return ReplaceQuery("q", self.change.new, **self.options)

    def _event(self, event: str) -> None:
        session, random = self.session, self.random
        with suppress(MigrationError, JobError):
            match event:
                case "rescale":
                    session.rescale(random.randint(1, 4))
                case "rebalance":
                    slots = session._job.state.slots
                    wanted = [random.randrange(slots) for _ in range(GROUPS)]
                    session.rebalance(wanted, protocol=random.choice(PROTOCOLS))
                case "migrate":
                    query = session.queries["q"]
                    known = [plan.text for plan in plans(query.cql, self.change.inputs)]
                    query.migrate(random.choice(known), strategy=random.choice(sorted(STRATEGIES)))
                case "schedule":
                    session.scheduling = random.choice(SCHEDULES)
                case "cancel":
                    carry_out(session, CancelMigration("q"))
                case "switch":
                    carry_out(session, SwitchQuery("q"))
        if event == "restart":
            self._reopen()
        if event == "crash":
            self._crash()
        if event:
            self.counts[event] += 1

    def _reopen(self) -> None:
        self.session.stop()
        self._open()

    def _crash(self) -> None:
        """Takes a batch in that never counts: its rows come again in the next one."""

        def gone(*_: object, **__: object) -> None:
            raise Crash

        with patch.object(self.session._job.store, "commit", gone), suppress(Crash):
            self._push({})
        self._reopen()


@dataclass(slots=True)
class ReadJob(ChangedJob):
    """A job whose streams are read from files, which are there when its query is changed."""

    sources: dict[str, SimulatedSource] = field(default_factory=dict)

    def _session(self) -> CheckpointSession:
        return CheckpointSession(None, checkpoint=str(self.folder), on=OnDemandBackend, slots=self._slots())

    def _source(self, stream: StreamSpec) -> SimulatedSource:
        return self.sources.setdefault(stream.name, SimulatedSource(stream.schema, None))

    def _replacement(self) -> ReplaceQuery:
        self.options["backfill_rate"] = None if "verify" in self.options else self.random.choice([3, 10, 1000])
        return ReplaceQuery("q", self.change.new, **self.options)

    def _push(self, batch: Mapping[str, pa.Table]) -> None:
        for name, rows in batch.items():
            files = self.sources[name].files
            files[f"{len(files)}"] = rows
        if not self._taken():
            release(self.session._job)

    def _taken(self) -> bool:
        backend = self.session._backend
        assert isinstance(backend, OnDemandBackend)
        return backend.take(self.session._job)


def wrong_after_change(
    change: Change, random: Random, counts: Counter[str], kind: type[ChangedJob] = ChangedJob
) -> str | None:
    """What is wrong with the results of a job whose query is changed, if anything is."""
    share = random.choice([0, 0, SHARE])
    with (
        TemporaryDirectory() as folder,
        patch.object(filling, "LEAST_WORK", LEAST_WORK if share else random.choice([4, 12])),
        patch.object(filling, "SHARE", share),
    ):
        try:
            job = kind(change, random, Path(folder))
        except QueryError as refused:
            if TOO_MANY not in refused.message:
                raise
            counts[f"refused: {refused.message}"] += 1
            return None
        try:
            job.run()
            return _judged(job)
        finally:
            counts.update(job.counts)
            job.session.stop()


def _judged(job: ChangedJob) -> str | None:
    session, change = job.session, job.change
    query = session.queries["q"]
    begun = [r.record for r in query.history if r.record["status"] == "started"]
    if not begun:
        job.counts["not changed"] += 1
        return _differs("of the query as it was", change.old, session.results("q"), change, BEGINNING)
    record = begun[-1]
    since, start = record["complete_from"], record["at"]
    job.counts["complete at once" if record["complete"] == COMPLETE else "complete later"] += 1
    replaced = next((r.record for r in query.history if r.record.get("old_results")), None)
    if replaced is not None and start is not None:
        name = replaced["old_results"]
        released = session.job.manifest.released[name]
        told, whole = bool(record["gap"]), record["complete"] == COMPLETE
        if told != (max(released, BEGINNING + LONGEST) < start < INFINITY - LONGEST):
            return (
                f"{record['gap'] or 'no gap is told'}, where the old text ends at {released} and this starts at {start}"
            )
        if released > start and (job.waited or whole):
            return f"the old text answers up to {released}, and the new one from {start} on"
        if told and hands_on(session._job.queries["q"]) and not job.counts["switch"]:
            return f"instants are left out{record['gap']}"
        old = _differs("of the old text", change.old, session.results(name), change, BEGINNING, min(released, start))
        if old is not None:
            return old
    got = session.results("q")
    if since is None and record["complete"] != COMPLETE:
        job.counts["never complete"] += 1
        return None
    since = BEGINNING if since is None else since
    if job.options.get("incomplete") == "withhold" and _first(got) < since:
        return f"results from {_first(got)} on are given, though all before {since} are withheld"
    return _differs(f"from {since} on ({record['complete']})", query.cql, got, change, since)


def _differs(what: str, cql: str, got: pa.Table, change: Change, since: int, until: int | None = None) -> str | None:
    expected = reference(cql, change.inputs)
    difference = snapshot_equal(clipped(got, since, until), clipped(expected, since, until))
    return None if difference else f"results {what}: {difference}"


def _first(table: pa.Table) -> int:
    times = table["valid_from" if "valid_from" in table.column_names else "ts"]
    return min((tick for tick in ticks_of(times) if tick is not None), default=2**62)


def clipped(table: pa.Table, since: int, until: int | None = None) -> pa.Table:
    """A result as far as it is valid between two instants."""
    if "valid_from" not in table.column_names:
        ticks = ticks_of(table["ts"])
        return table.filter(pa.array([since <= t and (until is None or t < until) for t in ticks], pa.bool_()))
    starts, ends = ticks_of(table["valid_from"]), ticks_of(table["valid_to"])
    last = 2**62 if until is None else until
    ranges = [(max(a, since), min(last if b is None else b, last)) for a, b in zip(starts, ends, strict=True)]
    columns = {
        "valid_from": pa.array([a for a, _ in ranges], pa.int64()),
        "valid_to": pa.array([b for _, b in ranges], pa.int64()),
    }
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.filter(pa.array([a < b for a, b in ranges], pa.bool_()))
