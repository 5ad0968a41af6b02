"""`midstream top`: a job in the terminal, live."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from midstream.checkpoint.failures import MissingFile
from midstream.checkpoint.lease import is_running
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.status import status_record
from midstream.checkpoint.store import CheckpointStore
from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import show_json
from midstream.interface.plain_values import plain
from midstream.interface.status_text import with_instants
from midstream.interface.top.drawing import drawn
from midstream.interface.top.keys import Wait, pressed_keys

LEAVE = ("q", "\x03", "\x04")
"""The keys that end the view: q, Ctrl-C and Ctrl-D where the terminal gives them as keys."""

WIDTH = 140
"""How wide the view is where there is no terminal."""


@ends_clearly
def top(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between refreshes.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the job once, and exit.")] = False,
    json: options.Json = False,
) -> None:
    """Show a job in the terminal while it runs: rates, latency, state, plans, migrations under way and slots.

    It reads the checkpoint, so the job may run elsewhere, or not at all. q or Ctrl-C ends it. Where the output is not a
    terminal, and with --json, the job is shown once.

    \b
    Example:
      midstream top orders.checkpoint
      midstream top orders.checkpoint --once --json
    """
    if json:
        show_json(plain(with_instants(status_record(StoredJob.open(checkpoint)))))
    elif once or not sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        console.print(drawn(StoredJob.open(checkpoint), console.width))
    else:
        console = Console(file=sys.stdout, highlight=False)
        with suppress(KeyboardInterrupt), pressed_keys() as wait:
            job = first_look(checkpoint, console, wait, every)
            if job is not None:
                follow(job, console, wait, every)


def first_look(checkpoint: str, console: Console, wait: Wait, every: float) -> StoredJob | None:
    """The job; while it runs and has no batch yet, waits for the first one, and gives nothing if q is pressed."""
    reported = False
    while True:
        try:
            return StoredJob.open(checkpoint)
        except JobError:
            if not is_running(CheckpointStore(checkpoint).files):
                raise
        if not reported:
            console.print(f"waiting for the first batch of {checkpoint}; q ends", style="dim", markup=False)
            reported = True
        if wait(every).lower() in LEAVE:
            return None


def follow(job: StoredJob, console: Console, wait: Wait, every: float) -> None:
    """Draws the job again and again until q is pressed; a terminal of another size is drawn for as it is."""
    shown = (job.batch, job.standing, console.size)
    with Live(
        drawn(job, console.width), console=console, screen=True, auto_refresh=False, vertical_overflow="crop"
    ) as live:
        live.refresh()
        while wait(every).lower() not in LEAVE:
            with suppress(MissingFile):  # collected since the manifest was read: the next look has a newer one
                job = job.refresh()
                newer = (job.batch, job.standing, console.size)
                if newer != shown:
                    shown = newer
                    live.update(drawn(job, console.width), refresh=True)
