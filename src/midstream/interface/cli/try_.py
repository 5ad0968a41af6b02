"""`midstream try`: a changed job on the recent rows of a checkpoint, beside the job that runs on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from midstream.algebra.time import plural, seconds, size
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import show_json, show_text
from midstream.interface.plain_values import plain

if TYPE_CHECKING:
    from midstream.cluster.trying import Trial


@ends_clearly
def try_(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file with the change.")],
    batches: Annotated[int, typer.Option("--batches", min=1, help="On how many of the last batches.")] = 50,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="On the batches of so many minutes instead.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Try a changed job file on the last batches of a job, beside it: times, state, and where results differ.

    \b
    Example:
      midstream try orders.checkpoint orders.toml
      midstream try orders.checkpoint orders.toml --batches 10 --json
    """
    from midstream.cluster.checkpoint_session import CheckpointSession
    from midstream.interface.cli.check import found_in, require_sound
    from midstream.interface.jobs.checking import declarations_of

    job, mistakes = found_in(job_file)
    if mistakes:
        require_sound(job_file)
    settings = replace(job.options, slots=None, name=None)
    session = CheckpointSession(None, checkpoint=checkpoint, on="local", **vars(settings))
    for stream in declarations_of(job).values():
        session.stream(stream.name, stream.columns, time=stream.time)
    plans = {query.name: query.plan for query in job.queries if query.plan is not None}
    slots = job.options.slots if isinstance(job.options.slots, int) else None
    texts = {query.name: query.cql for query in job.queries}
    found = session.try_(texts, plans=plans, slots=slots, last=batches if minutes is None else f"{minutes} minutes")
    if json:
        show_json(plain(found.to_json()))
    else:
        show_text(trial_text(found))


def trial_text(found: Trial) -> str:
    """What a trial found, before and after, a figure a line."""
    rows = plural(sum(found.rows.values()), "row")
    lines = [f"{plural(found.batches, 'batch', 'batches')} with {rows}, before and after the change"]
    for part, before in found.before.seconds.items():
        after = found.after.seconds[part]
        lines.append(
            f"  {part:<10} {seconds(before):>10} {seconds(after):>10}  a batch (median){_ratio(before, after)}"
        )
    for name in found.after.queries:
        lines.append(f"query {name}")
        lines += [f"  {line}" for line in _query_lines(found, name)]
    return "\n".join(lines)


def _query_lines(found: Trial, name: str) -> list[str]:
    old, new = found.before.queries.get(name), found.after.queries[name]
    state = [
        "none" if side is None else f"{side['state_rows']:,} rows, {size(side['state_bytes'])}" for side in (old, new)
    ]
    results = ["none" if side is None else f"{side['results']:,}" for side in (old, new)]
    before, after = found.costs.get(name, (None, None))
    lines = [f"state: {state[0]}; {state[1]}", f"results: {results[0]}; {results[1]}"]
    if before and after:
        lines.append(f"forecast: {before:g} and {after:g} a tick{_ratio(before, after)}")
    difference = found.differences.get(name)
    if difference is not None:
        lines += ("results are the same" if difference else str(difference)).splitlines()
    return lines


def _ratio(before: float, after: float) -> str:
    return f", {after / before:.2f} times" if before else ""
