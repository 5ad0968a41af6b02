"""`midstream demo`: a four-way join that changes its plan by its own decision, checked by itself.

It runs on local Spark; where Spark or Java is missing it says so and runs in this process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from midstream.cluster.spark_version import OLDEST_JAVA, is_there, java_program
from midstream.errors import InternalError
from midstream.interface.cli import options
from midstream.interface.cli.dashboard import beside, stay
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.demo.check import DemoVerdict, compare
from midstream.interface.demo.streams import STREAMS, Scenario, generate
from midstream.interface.demo.view import View, seconds_of, work_of

if TYPE_CHECKING:
    from midstream.cluster.checkpoint_session import CheckpointSession

Account = dict[str, Any]


@ends_clearly
def demo(
    seconds: Annotated[int, typer.Option(min=16, max=30, help="Seconds of event time; one batch each.")] = 22,
    dashboard: options.WithDashboard = False,
    dashboard_port: options.DashboardPort = None,
    json: options.Json = False,
) -> None:
    """Join four generated streams, and see the query change its plan while results keep flowing.

    Half-way the streams change: those that were slow and rarely met become fast and meet often. The query notices,
    decides that another plan is worth a migration, says why, and migrates live. At the end every result is compared
    with an independent batch join. It runs on local Spark, or in this process where there is no Spark or no Java.

    \b
    Example:
      midstream demo
    """
    scenario = Scenario(seconds=seconds)
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="midstream-demo-"))
    try:
        with beside(str(folder / "checkpoint"), dashboard, dashboard_port):
            with View(scenario, quiet=json) as view:
                batches = generate(scenario)
                write(folder, batches)
                results, events, history = run(folder, scenario, view)
                view.say("checking every result against an independent join")
            verdict = compare(results, batches, scenario)
            account = summary(verdict, events, history, scenario, time.perf_counter() - started)
            show_json(account) if json else show_text(summary_text(account))
            if dashboard or dashboard_port is not None:
                stay()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not verdict.right:
        raise InternalError("the demonstration's results differ from those of an independent join")
    if not history:
        raise InternalError("the demonstration's query did not notice that its streams have changed")


def write(folder: Path, batches: Sequence[dict[str, pa.Table]]) -> None:
    """One file per batch and stream, in order of modification, as Spark reads them."""
    first = time.time() - len(batches) - 1
    for name in STREAMS:
        (folder / name).mkdir()
        for i, batch in enumerate(batches):
            path = folder / name / f"{i:04d}.parquet"
            pq.write_table(batch[name], path)
            os.utime(path, (first + i, first + i))


def run(folder: Path, scenario: Scenario, view: View) -> tuple[pa.Table, list[Account], list[Account]]:
    """Runs the session over the files; gives the results, an account of each batch, and the query's migrations."""
    events: list[Account] = []
    with _session(str(folder / "checkpoint")) as session:
        for name in STREAMS:
            schema, options = "id BIGINT, k BIGINT, ts TIMESTAMP", {"maxFilesPerTrigger": "1"}
            session.open_stream(name, "parquet", path=str(folder / name), schema=schema, options=options)
        query = session.query("matches", scenario.query, plan=scenario.old_plan, adaptive="auto")

        def show(event: Account) -> None:
            event["migrating"] = query.migrating
            events.append(event)
            view.batch(event, query.plan.text, str(query.plans[0].physical), query.migrating)

        session.on_progress(show)
        view.say("running")
        session.process_available(finish=True)
        return (
            query.table(),
            events,
            [dict(change.record) for change in query.history if change.start_batch is not None],
        )


def _session(checkpoint: str) -> CheckpointSession:
    """A session on local Spark; where it cannot be had, one in this process, which says why."""
    from midstream.cluster.checkpoint_session import CheckpointSession

    lacking = "Spark is not installed" if not is_there() else "there is no Java" if java_program() is None else None
    if lacking is not None:
        note(f"{lacking}: this runs in one process (for Spark: pip install 'midstream[spark]', and Java {OLDEST_JAVA})")
        return CheckpointSession(checkpoint=checkpoint, on="local", slots=2)
    from midstream.cluster.spark import spark_session

    return CheckpointSession(spark_session(name="midstream demo"), checkpoint=checkpoint)


def summary(
    verdict: DemoVerdict, events: Sequence[Account], history: Sequence[Account], scenario: Scenario, seconds: float
) -> Account:
    """What happened, as one object."""
    decisions = [{"batch": e["batch_id"], **d} for e in events if (d := e["decisions"].get("matches"))]
    made = [d for d in decisions if d["action"] in ("migrate", "rollback")]
    begins = history[0]["start_batch"] if history else len(events)
    ends = max((r["end_batch"] or r["start_batch"] for r in history), default=len(events))
    old = [e for e in events if e["batch_id"] == begins - 1]
    new = [e for e in events if e["batch_id"] > ends]
    before, after = _mean([work_of(e) for e in old]), _mean([work_of(e) for e in new])
    return {
        "results": verdict.results,
        "missing": verdict.missing,
        "duplicates": verdict.duplicates,
        "unexpected": verdict.unexpected,
        "migrations": len(history),
        "seconds": round(seconds, 1),
        "decision": made[0] if made else None,
        "decisions": decisions,
        "strategy": history[0]["strategy"] if history else None,
        "old_plan": history[0]["old_plan"] if history else scenario.old_plan,
        "new_plan": history[-1]["new_plan"] if history else None,
        "batches": len(events),
        "rows": sum(sum(e["rows"].values()) for e in events),
        "migrating_batches": sum(1 + (r["end_batch"] or r["start_batch"]) - r["start_batch"] for r in history),
        "work_per_batch_old_plan": round(before),
        "work_per_batch_new_plan": round(after),
        "work_saved": round(1 - after / before, 3) if before and after else None,
        "seconds_per_batch_old_plan": round(_mean([seconds_of(e) for e in old]), 2),
        "seconds_per_batch_new_plan": round(_mean([seconds_of(e) for e in new]), 2),
    }


def summary_text(account: Account) -> str:
    """The summary in words."""
    lines = [
        f"{account['rows']:,} rows in {account['batches']} batches, {account['seconds']} s in all",
        f"results     {account['results']:,}, compared one by one with an independent batch join",
        f"missing     {account['missing']}",
        f"duplicates  {account['duplicates']}",
    ]
    if account["decision"] is not None:
        lines += [
            f"decision    after batch {account['decision']['batch']}: {account['decision']['reason']}",
            f"migrations  {account['migrations']}: {account['old_plan']} to {account['new_plan']} by "
            f"{account['strategy']} over {account['migrating_batches']} batches, while results kept flowing",
        ]
    if account["work_saved"] is not None:
        lines.append(
            f"saved       {account['work_saved']:.0%} of the work per batch: {account['work_per_batch_old_plan']:,}"
            f" rows in {account['seconds_per_batch_old_plan']:.2f} s in the last batch with the old plan,"
            f" {account['work_per_batch_new_plan']:,} in {account['seconds_per_batch_new_plan']:.2f} s with the new one"
        )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
