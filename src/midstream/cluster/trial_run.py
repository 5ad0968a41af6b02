"""One side of a trial: queries over batches that are given, on a checkpoint of their own that is thrown away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from midstream.adaptation.cost_corrections import HandledRows
from midstream.algebra.declarations import StreamDeclaration
from midstream.algebra.time import duration_of
from midstream.checkpoint.names import query_of
from midstream.cluster.trial import TrialFigures
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.reports import OperatorReport, Report

PARTS = ("batch", "job", "transfer", "state", "kernel", "write")
"""The seconds of a batch that are told apart."""

COUNTED = ("results", "probed", "inserted", "matched")


@dataclass(frozen=True, slots=True)
class TriedJob:
    """Queries by name, in how many slots they run, and other settings of their session."""

    queries: Mapping[str, RunningQuery]
    slots: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrialBatches:
    """The rows of batches by stream; those of the first one fill windows, and are not timed."""

    streams: Mapping[str, StreamDeclaration]
    cut: Sequence[Mapping[str, pa.Table]]


@dataclass(frozen=True, slots=True)
class TrialRun:
    """Runs sides of a trial by sessions of a kind, on local threads or on Spark."""

    kind: Callable[..., Any]
    on: str = "local"
    spark: Any = None

    def figures(self, side: TriedJob, batches: TrialBatches) -> TrialFigures:
        """How a side did."""
        with TemporaryDirectory(prefix="midstream-try-") as folder:
            checkpoint = str(Path(folder) / "checkpoint")
            spark = self.spark if self.on == "spark" else None
            session = self.kind(spark, checkpoint=checkpoint, on=self.on, slots=side.slots, **side.settings)
            heard = HeardBatches()
            heard.listen(session)
            sources = self._sources(Path(folder), batches)
            for name, stream in batches.streams.items():
                session.stream(name, sources[name], time=stream.time, columns=stream.columns, max_ahead="any")
            for name, query in side.queries.items():
                every = duration_of(query.emit_every, query.plan.domain)
                session.query(name, query.cql, plan=query.plan.text or None, emit_every=every)
            with session:
                if self.on == "spark":
                    session.start("available")
                    session.wait()
                else:
                    session.start()
                    for part in batches.cut:
                        session.push(part)
                timed = heard.events[1:]
                session.finish()
                results = {name: session.queries[name].table() for name in side.queries}
        return _figures(side, timed, heard, results)

    def _sources(self, folder: Path, batches: TrialBatches) -> Mapping[str, Any]:
        if self.on != "spark":
            return {name: stream.columns for name, stream in batches.streams.items()}
        from midstream.cluster.spark.batch_files import files_of_batches

        return files_of_batches(self.spark, folder, batches.cut, batches.streams)


@dataclass(slots=True)
class HeardBatches:
    """What a session's batches did, and by batch what their operators reported."""

    events: list[dict[str, Any]] = field(default_factory=list)
    operators: dict[int, dict[tuple[str, int, int], OperatorReport]] = field(default_factory=dict)

    def listen(self, session: Any) -> None:
        """Hears of the batches of a session from now on."""
        session.on_progress(self.events.append)
        session._job.cluster = OverheardCluster(session._job.cluster, self._take)

    def _take(self, batch: int, reports: Sequence[Report]) -> None:
        found = self.operators.setdefault(batch, {})
        for report in reports:
            for (name, fragment), part in report.fragments.items():
                for number, did in enumerate(part.operators):
                    found.setdefault((query_of(name), fragment, number), OperatorReport(did.label)).add(did)


class OverheardCluster:
    """A cluster whose reports somebody hears."""

    def __init__(self, cluster: Any, hear: Callable[[int, Sequence[Report]], None]) -> None:
        self.cluster, self.hear = cluster, hear

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def run(self, batch: Any, rows: Any) -> list[Report]:
        """Runs all steps of a batch, and tells what slots report of it."""
        reports: list[Report] = self.cluster.run(batch, rows)
        self.hear(batch.batch_id, reports)
        return reports


def _figures(
    side: TriedJob, timed: Sequence[Mapping[str, Any]], heard: HeardBatches, results: Mapping[str, pa.Table]
) -> TrialFigures:
    did: dict[tuple[str, int, int], OperatorReport] = {}
    for event in timed:
        for place, report in heard.operators.get(event["batch_id"], {}).items():
            did.setdefault(place, OperatorReport(report.label)).add(report)
    seconds = {part: round(median(e["seconds"].get(part, 0.0) for e in timed), 6) for part in PARTS}
    queries = {}
    for name in side.queries:
        told = [event["queries"][name] for event in timed]
        state = {key: max(one[key] for one in told) for key in ("state_rows", "state_bytes")}
        took = sum(_seconds(report) + report.purging for (query, _, _), report in did.items() if query == name)
        sums = {key: sum(one[key] for one in told) for key in COUNTED}
        queries[name] = {**sums, **state, "seconds": round(took / max(1, len(timed)), 9)}
    plans = {name: query.plan.text for name, query in side.queries.items()}
    handled = [found for report in did.values() if (found := _handled(report)) is not None]
    return TrialFigures(plans, side.slots, seconds, queries, results, handled)


def _seconds(report: OperatorReport) -> float:
    """What an operator took for the rows that came; what is timed fades, by rows as by seconds."""
    return report.seconds / report.rows * report.work.taken if report.rows else 0.0


def _handled(report: OperatorReport) -> HandledRows | None:
    """What the cost model prices of an operator; None of one that gives results when time passes."""
    work, seconds = report.work, _seconds(report)
    if work.probed:
        return HandledRows(seconds, work.probed, work.inserted, work.matched, work.given)
    return None if work.inserted else HandledRows(seconds, rows=work.taken)
