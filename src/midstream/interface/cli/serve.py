"""`midstream serve`: a job's results over HTTP and Arrow Flight SQL."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from midstream.interface.cli.dashboard import Host, Port
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_text
from midstream.interface.dashboard.serving import PORT, served


@ends_clearly
def serve(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    port: Port = PORT,
    host: Host = "127.0.0.1",
    flight: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Also answer over Arrow Flight SQL, on this port; 0 picks a free one."),
    ] = None,
    allow_host: Annotated[list[str], typer.Option(help="A name by which clients may call this host. Repeatable.")] = [],  # noqa: B006
) -> None:
    """Serve the results of a job: what is valid now, all that is kept, SQL over both, and what is new.

    It reads the checkpoint, so the job may run elsewhere, or not at all; it may also be about to start. Answers are
    JSON, or Arrow. The dashboard is at the same address, and any dashboard serves results, too. Clients of ADBC and
    JDBC ask over Arrow Flight SQL.

    \b
    Example:
      midstream serve orders.checkpoint --port 8321
      curl http://127.0.0.1:8321/queries/revenue/current
      midstream serve orders.checkpoint --flight 31337
      curl -N http://127.0.0.1:8321/queries/revenue/changes
      curl http://127.0.0.1:8321/sql -d "SELECT count(*) FROM revenue_current"
    """
    with served(checkpoint, host, port, allow_host) as (link, thread), ExitStack() as stack:
        address, _, token = link.partition("/?token=")
        places = f"{address}/queries"
        if flight is not None:
            from midstream.interface.flight_sql import serving_flight

            places += f"\n  grpc://{host}:{stack.enter_context(serving_flight(checkpoint, host, flight, token))}"
        show_text(f"the results of {checkpoint} are at\n  {places}\n  token: {token}\nCtrl-C ends it")
        try:
            thread.join()
        except KeyboardInterrupt:
            note("nothing is served any more; the job keeps running")
