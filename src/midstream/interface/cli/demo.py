"""`midstream demo`: a four-way join on local Spark whose plan is changed while it runs, checked by itself."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from midstream.errors import InternalError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import show_json, show_text
from midstream.interface.demo.check import Verdict, compare
from midstream.interface.demo.streams import STREAMS, Scenario, generate
from midstream.interface.demo.view import View, work_of


@ends_clearly
def demo(
    strategy: Annotated[str, typer.Option(help="The migration strategy.")] = "genmig",
    seconds: Annotated[int, typer.Option(min=16, max=30, help="Seconds of event time; one batch each.")] = 22,
    json: options.Json = False,
) -> None:
    """Join four generated streams on local Spark, and change the plan while results keep flowing.

    Half-way the streams change: those that were slow and rarely met become fast and meet often. The plan is migrated
    live. At the end every result is compared with an independent batch join.

    \b
    Example:
      midstream demo
    """
    scenario = Scenario(seconds=seconds)
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="midstream-demo-"))
    try:
        with View(scenario, quiet=json) as view:
            batches = generate(scenario)
            write(folder, batches)
            results, events = run(folder, scenario, strategy, view)
            view.say("checking every result against an independent join")
        verdict = compare(results, batches, scenario)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    account = summary(verdict, events, scenario, strategy, time.perf_counter() - started)
    if json:
        show_json(account)
    else:
        show_text(told(account))
    if not verdict.right:
        raise InternalError("the demonstration's results differ from those of an independent join")


def write(folder: Path, batches: Sequence[dict[str, pa.Table]]) -> None:
    """One file per batch and stream, in order of modification, as Spark reads them."""
    first = time.time() - len(batches) - 1
    for name in STREAMS:
        (folder / name).mkdir()
        for i, batch in enumerate(batches):
            path = folder / name / f"{i:04d}.parquet"
            pq.write_table(batch[name], path)
            os.utime(path, (first + i, first + i))


def run(folder: Path, scenario: Scenario, strategy: str, view: View) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Runs the session over the files; gives the results and an account of each batch."""
    from midstream.runtime.spark import Session, spark_session

    spark = spark_session(name="midstream demo")
    events: list[dict[str, Any]] = []
    with Session(spark, checkpoint=str(folder / "checkpoint")) as session:
        for name in STREAMS:
            files = spark.readStream.schema("id BIGINT, k BIGINT, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
            session.stream(name, files.parquet(str(folder / name)), time="ts")
        query = session.query("matches", scenario.query, plan=scenario.old_plan)

        def migrate(batch_id: int) -> None:
            if batch_id == scenario.migrates_at:
                query.migrate(scenario.new_plan, strategy, trigger="the streams have changed")

        def show(event: dict[str, Any]) -> None:
            event["migrating"] = query.migrating
            events.append(event)
            view.batch(event, query.plan.text, str(query.plan.physical), query.migrating)

        session.before_batch(migrate)
        session.on_progress(show)
        view.say("running")
        session.process_available()
        session.finish()
        return query.table(), events


def summary(
    verdict: Verdict, events: Sequence[dict[str, Any]], scenario: Scenario, strategy: str, seconds: float
) -> dict[str, Any]:
    """What happened, as one object."""
    moved = [e["batch_id"] for e in events if e["migrating"]]
    old = [work_of(e) for e in events if scenario.flips_at + 2 <= e["batch_id"] < scenario.migrates_at]
    settled = max(moved, default=scenario.migrates_at) + 2
    new = [work_of(e) for e in events if e["batch_id"] >= settled]
    before, after = _mean(old), _mean(new)
    return {
        "results": verdict.results,
        "missing": verdict.missing,
        "duplicates": verdict.duplicates,
        "unexpected": verdict.unexpected,
        "migrations": 1 if moved else 0,
        "seconds": round(seconds, 1),
        "strategy": strategy,
        "old_plan": scenario.old_plan,
        "new_plan": scenario.new_plan,
        "batches": len(events),
        "rows": sum(sum(e["rows"].values()) for e in events),
        "migrating_batches": len(moved),
        "work_per_batch_old_plan": round(before),
        "work_per_batch_new_plan": round(after),
        "work_saved": round(1 - after / before, 3) if before and after else None,
    }


def told(account: dict[str, Any]) -> str:
    """The summary in words."""
    lines = [
        f"{account['rows']:,} rows in {account['batches']} batches, {account['seconds']} s in all",
        f"results     {account['results']:,}, compared one by one with an independent batch join",
        f"missing     {account['missing']}",
        f"duplicates  {account['duplicates']}",
        f"migrations  {account['migrations']}: {account['old_plan']} to {account['new_plan']} by {account['strategy']}"
        f" over {account['migrating_batches']} batches, while results kept flowing",
    ]
    if account["work_saved"] is not None:
        lines.append(
            f"saved       {account['work_saved']:.0%} of the work per batch: {account['work_per_batch_old_plan']:,}"
            f" rows with the old plan after the change, {account['work_per_batch_new_plan']:,} with the new one"
        )
    return "\n".join(lines)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
