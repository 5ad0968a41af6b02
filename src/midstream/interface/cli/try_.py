"""`midstream try`: a changed job on the recent rows of a checkpoint, beside the job that runs on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from midstream.checkpoint.commands import CorrectCosts
from midstream.checkpoint.status import job_at
from midstream.interface.asking import asked
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import show_json, show_text
from midstream.interface.plain_values import plain
from midstream.interface.trial_text import trial_text

if TYPE_CHECKING:
    from midstream.interface.jobs.job_file import JobFile

LOCAL, PATIENCE = options.RunsOn.LOCAL, 60.0


@ends_clearly
def try_(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file with the change.")],
    batches: Annotated[int, typer.Option("--batches", min=1, help="On how many of the last batches.")] = 50,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="On the batches of so many minutes instead.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="JOB.toml", help="The job file as it was, for memory_per_slot as it was."),
    ] = None,
    on: Annotated[options.RunsOn, typer.Option("--on", help="Where both are run: local or spark.")] = LOCAL,
    correct: Annotated[
        bool, typer.Option("--correct/--no-correct", help="Correct the job's cost constants by what was measured.")
    ] = True,
    json: options.Json = False,
) -> None:
    """Try a changed job file on the last batches of a job, beside it: times, state, and where results differ.

    What can differ: texts, plans and emit_every of queries, and the job's slots, scheduling and memory_per_slot.

    \b
    Example:
      midstream try orders.checkpoint orders.toml
      midstream try orders.checkpoint orders.toml --batches 10 --json
      midstream try orders.checkpoint orders.toml --minutes 10 --on spark
    """
    from midstream.cluster.checkpoint_session import CheckpointSession
    from midstream.cluster.options import SessionOptions
    from midstream.cluster.trying import SETTINGS
    from midstream.interface.jobs.checking import declarations_of

    job_at(checkpoint)  # refuses a place where no job has run
    job = _sound(job_file)
    memory = SessionOptions.memory_per_slot if against is None else _sound(against).options.memory_per_slot
    # The checkpoint has the others as they are.
    settings = replace(job.options, slots=None, name=None, scheduling=None, memory_per_slot=memory)
    if on is options.RunsOn.SPARK:
        from midstream.cluster.spark import spark_session

        spark_session(job.master, **job.spark)  # sessions of trials run on the one that is active
    session = CheckpointSession(None, checkpoint=checkpoint, on="local", **vars(settings))
    for stream in declarations_of(job).values():
        session.stream(stream.name, stream.columns, time=stream.time)
    found = session.try_(
        {query.name: query.cql for query in job.queries},
        last=batches if minutes is None else f"{minutes} minutes",
        on=on.value,
        plans={q.name: q.options.plan for q in job.queries if q.options.plan is not None},
        emit_every={q.name: q.options.emit_every for q in job.queries if q.options.emit_every is not None},
        slots=job.options.slots if isinstance(job.options.slots, int) else None,
        correct=False,
        **{name: getattr(job.options, name) for name in SETTINGS},
    )
    if correct and found.factors is not None:
        asked(checkpoint, CorrectCosts(found.factors), PATIENCE)
    record = plain(found.to_json())
    show_json(record) if json else show_text(trial_text(record))


def _sound(path: Path) -> JobFile:
    from midstream.interface.cli.check import found_in, require_sound

    job, mistakes = found_in(path)
    if mistakes:
        require_sound(path)
    return job
