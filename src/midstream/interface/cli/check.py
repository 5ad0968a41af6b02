"""`midstream check`: everything that is wrong with a job file, before anything starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from midstream.algebra.time import plural
from midstream.interface.cli import options
from midstream.interface.cli.endings import USER_ERROR, ends_clearly
from midstream.interface.cli.output import complain, note, show_json
from midstream.interface.jobs.checking import mistakes_of
from midstream.interface.jobs.job_file import JobFile, read_with_mistakes, text_of
from midstream.interface.jobs.keys import job_schema
from midstream.interface.jobs.locating import locate
from midstream.interface.jobs.sections import Mistake


@ends_clearly
def check(
    job_file: Annotated[Path | None, typer.Argument(metavar="JOB.toml", help="The job file.")] = None,
    on: Annotated[
        options.RunsOn | None, typer.Option("--on", help="Check it for Spark or for this process; default: as it says.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files, for editors.")] = False,
    json: options.Json = False,
) -> None:
    """Check a job file without starting anything: keys, schemas, paths, durations, queries, plans and sinks.

    All mistakes are shown at once, and the exit code is 2 if there are any.

    \b
    Example:
      midstream check examples/orders.toml
      midstream check --schema > job.schema.json
    """
    if schema:
        show_json(job_schema())
        return
    if job_file is None:
        raise typer.BadParameter("a job file is needed", param_hint="JOB.toml")
    require_sound(job_file, on, json=json)


def require_sound(path: Path, on: options.RunsOn | None = None, json: bool = False) -> None:
    """Ends the command with code 2 if there are mistakes, after showing all of them."""
    job, mistakes = found_in(path, on)
    text = text_of(path)
    located = [locate(mistake, text) for mistake in mistakes]
    if json:
        record = {"job": str(path), "streams": len(job.streams), "queries": len(job.queries)}
        show_json({**record, "mistakes": [one.as_dict() for one in located]})
    elif located:
        for one in located:
            complain(one.words(path))
        complain("1 mistake" if len(located) == 1 else f"{len(located)} mistakes")
    else:
        queries = plural(len(job.queries), "query", "queries")
        note(f"{path} is valid: a job of {plural(len(job.streams), 'stream')} and {queries}")
    if located:
        raise typer.Exit(USER_ERROR)


def found_in(path: Path, on: options.RunsOn | None = None, guess_types: bool = True) -> tuple[JobFile, list[Mistake]]:
    """The job in a file, and all that is wrong with it, first what comes first in the file's tables."""
    job, mistakes = read_with_mistakes(path)
    if on is not None:
        job = dataclasses.replace(job, on=on.value)
    wrong = {mistake.place for mistake in mistakes}
    return job, mistakes + [m for m in mistakes_of(job, guess_types) if m.place not in wrong]
