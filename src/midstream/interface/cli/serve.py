"""`midstream serve`: a job's results over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from midstream.interface.cli.dashboard import Port
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_text
from midstream.interface.dashboard.serving import PORT, served


@ends_clearly
def serve(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    port: Port = PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen on; on any but loopback, everything needs the token of the link.")
    ] = ("127.0.0.1"),
    allow_host: Annotated[list[str], typer.Option(help="A name by which clients may call this host. Repeatable.")] = [],  # noqa: B006
) -> None:
    """Serve the results of a job over HTTP: what is valid now, all that is kept, SQL over both, and what is new.

    It reads the checkpoint, so the job may run elsewhere, or not at all; it may also be about to start. Answers are
    JSON, or Arrow. The dashboard is at the same address, and any dashboard serves results, too.

    \b
    Example:
      midstream serve orders.checkpoint --port 8321
      curl http://127.0.0.1:8321/queries/revenue/current
      curl -N http://127.0.0.1:8321/queries/revenue/changes
      curl http://127.0.0.1:8321/sql -d "SELECT count(*) FROM revenue_current"
    """
    with served(checkpoint, host, port, allow_host) as (link, thread):
        address, _, token = link.partition("/?token=")
        show_text(f"the results of {checkpoint} are at\n  {address}/queries\n  token: {token}\nCtrl-C ends it")
        try:
            thread.join()
        except KeyboardInterrupt:
            note("nothing is served any more; the job keeps running")
