"""Finite inputs on Spark: written as files, one per batch and stream, and read back as streams of a session.

So the batches are exactly those of the embedded runtime, and everything else is the path of a long-running job.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from midstream.adaptation.policy import policy_of
from midstream.algebra.declarations import Catalog
from midstream.algebra.plan import Relation, streams_of
from midstream.checkpoint.lists import dead_letters_of
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import Cut, StreamProgress, batches_and_cuts
from midstream.cluster.local.planned_changes import PlannedChange, planned_changes
from midstream.cluster.spark.batch_files import read_files, write_files
from midstream.cluster.spark.environment import require_classic
from midstream.job.commands.rewording import DeclaredQuery, Text
from midstream.job.events import ErrorPolicySet
from midstream.job.task.ingest import DeadLetters, report
from midstream.optimizer.plans import plan_query


def run_on_spark(
    query: str,
    relation: Relation,
    inputs: Mapping[str, pa.Table],
    catalog: Catalog,
    spark: SparkSession,
    how: FiniteRun,
) -> pa.Table:
    """Runs a query over finite tables on Spark, batch by batch, and gives all its results in order.

    Dead letters are counted and given as in the embedded run; their rows are those of the dead-letter table.
    """
    require_classic(spark)
    folder = Path(tempfile.mkdtemp(prefix="midstream-run-"))
    try:
        names = sorted({s.name for s in streams_of(relation)})
        changes = planned_changes(
            plan_query(relation, how.plan, how.emit_every), how.migrations, how.emit_every, catalog
        )
        starts = _write_batches(folder, names, inputs, catalog, how.batch_rows, [change.at for change in changes])
        functions = tuple(catalog.functions.values())
        checkpoint = str(folder / "checkpoint")
        with CheckpointSession(spark, checkpoint=checkpoint, functions=functions, scheduling=how.scheduling) as session:
            for name in names:
                declared = catalog.streams[name]
                frame = read_files(spark, folder / name, declared.columns)
                session.stream(name, frame, time=declared.time, columns=declared.columns, max_ahead="any")
                session._declare_lateness(name, declared.lateness)
            session._job.apply(ErrorPolicySet("run", "stop_job"))  # whoever called is told
            text = Text("run", query, relation, how.plan, how.emit_every)
            running = session._add(DeclaredQuery(text, policy_of(how.adaptive)))
            session.on_progress(lambda event: how.done(sum(event["rows"].values())))
            _plan_changes(session, changes, starts)
            session.process_available(finish=True)
            how.told.decisions.extend(session._job.watchers.decided("run"))
            how.told.dead_letters.extend(_dead_letters(session))
            how.told.history.extend(running.history)
            return report(running.table(), how.told.dead_letters)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _dead_letters(session: CheckpointSession) -> list[DeadLetters]:
    """The rows that could not be used, by stream and reason."""
    files, manifest = session._job.files, session._job.manifest
    if manifest is None:
        return []
    tables = [pq.read_table(pa.BufferReader(files.read(named.path))) for named in dead_letters_of(files, manifest)]
    if not tables:
        return []
    rows = pa.concat_tables(tables)
    kinds = (
        rows.group_by(["stream", "reason"]).aggregate([]).sort_by([("stream", "ascending"), ("reason", "ascending")])
    )
    return [
        DeadLetters(
            kind["stream"],
            kind["reason"],
            rows.filter((pc.field("stream") == kind["stream"]) & (pc.field("reason") == kind["reason"])),
        )
        for kind in kinds.to_pylist()
    ]


def _plan_changes(session: CheckpointSession, changes: Sequence[PlannedChange], starts: Mapping[int, int]) -> None:
    """Begins each change before its batch, or as soon after it as an earlier one has ended."""
    waiting = [(starts[i], change) for i, change in enumerate(changes) if i in starts]

    def begin(batch_id: int) -> None:
        if waiting and waiting[0][0] <= batch_id and session.queries["run"].migrating is None:
            _, change = waiting.pop(0)
            reason = f"planned at {change.at}"
            session._enrolment.migrate("run", change.plan, change.strategy, reason, change.part, verify=change.verify)

    session.before_batch(begin)


def _write_batches(
    folder: Path,
    names: Sequence[str],
    inputs: Mapping[str, pa.Table],
    catalog: Catalog,
    batch_rows: int,
    cuts: Sequence[int],
) -> dict[int, int]:
    """One file per batch and stream, also where a stream has no rows, so that all streams keep step.

    Gives for each cut the batch that comes right after it.
    """
    streams = {name: StreamProgress(catalog.streams[name]) for name in names}
    cut: list[dict[str, pa.RecordBatch]] = []
    starts: dict[int, int] = {}
    for parts in batches_and_cuts(streams, inputs, batch_rows, cuts):
        if isinstance(parts, Cut):
            starts[parts.number] = len(cut)
        else:
            cut.append(parts)
    write_files(folder, cut or [{}], {name: catalog.streams[name] for name in names})
    return starts
