"""`midstream shell`: queries over files, one after the other."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.shell.commands import Leave, Shell
from midstream.interface.shell.prompt import converse, line_editing

WELCOME = r"queries end with ;  \help shows more, \quit or Ctrl-D ends"


@ends_clearly
def shell(
    stream: options.Streams = [],  # noqa: B006
    time: options.TimeColumn = [],  # noqa: B006
    command: Annotated[
        list[str], typer.Option("--command", "-c", metavar="STATEMENT", help="Run this statement and exit. Repeatable.")
    ] = [],  # noqa: B006
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows to show of a result; 0 shows all.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line for each result.")] = False,
) -> None:
    """Run queries over files, with history and completion; results appear as they are found.

    Streams are files, folders or patterns of CSV, Parquet or JSON lines. Statements come from the terminal, from
    --command or from standard input; there the first mistake ends the shell with code 2.

    \b
    Example:
      midstream shell --stream orders=orders.csv
      midstream shell -c "\\stream orders orders.csv" -c "SELECT count(*) AS n FROM orders [TUMBLE 1 HOUR]"
      midstream shell < questions.cql
    """
    made = Shell(show_text, show_json if json else None, limit=limit)
    paths = options.stream_paths(stream)
    times = options.per_stream(time, paths, "--time")
    for name, path in paths.items():
        made.streams.declare(name, path, times.get(name) if isinstance(times, dict) else times)
    try:
        if command:
            for text in command:
                made.do_all(text.splitlines(), "--command")
        elif sys.stdin.isatty():
            note(WELCOME)
            with line_editing(made):
                converse(made, input)
        else:
            made.do_all(sys.stdin, "standard input")
    except Leave:
        return
