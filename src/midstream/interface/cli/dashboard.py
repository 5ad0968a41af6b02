"""`midstream dashboard`: a job as a page, live."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from midstream.checkpoint.reading import StoredJob
from midstream.errors import InputError
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_text
from midstream.interface.dashboard.serving import PORT, served

Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")]
Host = Annotated[
    str, typer.Option(help="The address to listen on; on any but loopback, everything needs the token of the link.")
]


@ends_clearly
def dashboard(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    port: Port = PORT,
    host: Host = "127.0.0.1",
    allow_host: Annotated[
        list[str], typer.Option(help="A name by which browsers may call this host. Repeatable.")
    ] = [],  # noqa: B006
    out: Annotated[
        str | None, typer.Option("--export", metavar="FILE", help="Write the page as one HTML file, and exit.")
    ] = None,
) -> None:
    """Serve a live page of a job: plans, migrations, rates, slots, decisions, and actions.

    It reads the checkpoint, so the job may run elsewhere, or not at all. Everybody on this machine may look; the
    printed link also permits actions.

    \b
    Example:
      midstream dashboard orders.checkpoint --port 8321
    """
    job = StoredJob.open(checkpoint)
    if out is not None:
        _export(job, Path(out))
        return
    with served(checkpoint, host, port, allow_host) as (link, thread):
        show_text(f"the dashboard of {job.checkpoint} is at\n  {link}\nCtrl-C ends it")
        try:
            thread.join()
        except KeyboardInterrupt:
            note("the dashboard has ended; the job keeps running")


def _export(job: StoredJob, path: Path) -> None:
    from midstream.interface.dashboard.export import exported

    try:
        path.write_text(exported(job), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}", detail=error.strerror) from error
    note(f"batch {job.batch} written to {path}")


@contextmanager
def beside(checkpoint: str, wanted: bool, port: int | None = None) -> Iterator[None]:
    """The dashboard of a job in this process, if it is wanted; whoever names its port wants it."""
    with served(checkpoint, "127.0.0.1", port or 0) if wanted or port is not None else nullcontext() as served_at:
        if served_at is not None:
            note(f"the dashboard is at {served_at[0]}")
        yield


def stay() -> None:
    """Waits until somebody at a terminal has seen enough."""
    if sys.stdin.isatty():
        note("the dashboard runs until Ctrl-C")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
