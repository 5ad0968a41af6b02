"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from midstream.errors import InputError, QueryError
from midstream.inputs import Duration, Time

WithDashboard = Annotated[
    bool, typer.Option("--dashboard", "--serve", help="Show the job as a page, and serve its results, while it runs.")
]
DashboardPort = Annotated[
    int | None,
    typer.Option(
        "--dashboard-port", min=0, max=65535, help="The port of the page, which is then shown; a free one if not given."
    ),
]


class RunsOn(StrEnum):
    """Where a job runs."""

    SPARK = "spark"
    LOCAL = "local"


Cql = Annotated[
    str, typer.Argument(metavar="CQL", help="The query; @FILE reads it from a file, - from standard input.")
]
Streams = Annotated[
    list[str],
    typer.Option(
        "--stream",
        "-s",
        metavar="NAME=PATH",
        help="A stream's rows: a file, a folder or a quoted pattern of Parquet, CSV or JSON lines. Repeatable.",
    ),
]
TimeColumn = Annotated[
    list[str],
    typer.Option(
        "--time", "-t", metavar="[NAME=]COLUMN", help="The time column, of all streams or of one (default: ts)."
    ),
]
Lateness = Annotated[
    list[str],
    typer.Option(
        "--lateness",
        metavar="[NAME=]DURATION",
        help="How far rows may be out of order, in all streams or in one; as far as they are, if not given.",
    ),
]
Dialect = Annotated[
    str | None,
    typer.Option("--dialect", metavar="SYSTEM", help="Read the query as one of spark, flink, risingwave or ksqldb."),
]
Plan = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="SHAPE",
        help="Force a join tree, '((A B) C)', probe orders, 'A: B C, B: A C, C: B A', or ways, 'A -> B -> C, …'.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def query_text(argument: str) -> str:
    """The query itself, wherever the argument says it is."""
    if argument == "-":
        return sys.stdin.read()
    if not argument.startswith("@"):
        return argument
    path = Path(argument[1:])
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise QueryError(f"the query in {path} is not UTF-8 text") from error
    except OSError as error:
        raise InputError(f"cannot read the query from {path}", detail=error.strerror) from error


def stream_paths(arguments: list[str]) -> dict[str, str]:
    """The path of every stream."""
    paths: dict[str, str] = {}
    for argument in arguments:
        name, given, path = argument.partition("=")
        if not (name and given and path):
            raise typer.BadParameter(f"{argument!r} is not NAME=PATH", param_hint="--stream")
        if name in paths:
            raise typer.BadParameter(f"stream {name} is given twice", param_hint="--stream")
        paths[name] = path
    return paths


def per_stream(arguments: list[str], streams: Mapping[str, str], option: str) -> str | dict[str, str] | None:
    """One setting for all streams, or one per stream on top of it; None if there is none."""
    common = [a for a in arguments if "=" not in a]
    own = dict(a.split("=", 1) for a in arguments if "=" in a)
    if len(common) > 1:
        raise typer.BadParameter(f"{' and '.join(common)} cannot both be for all streams", param_hint=option)
    if not own:
        return common[0] if common else None
    return {**({name: common[0] for name in streams} if common else {}), **own}


def time_columns(arguments: list[str], streams: Mapping[str, str]) -> Time:
    """The time columns asked for; `ts` if none is."""
    return per_stream(arguments, streams, "--time") or "ts"


def latenesses(arguments: list[str], streams: Mapping[str, str]) -> Duration | dict[str, Duration] | None:
    """The latenesses asked for, None if none is. Plain numbers are ticks."""
    found = per_stream(arguments, streams, "--lateness")
    if isinstance(found, dict):
        return {name: _duration(text) for name, text in found.items()}
    return None if found is None else _duration(found)


def _duration(text: str) -> Duration:
    return int(text) if text.strip().isdigit() else text
