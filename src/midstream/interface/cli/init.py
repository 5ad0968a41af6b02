"""`midstream init`: a starter job from a folder of files, which runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from midstream.errors import InputError, JobError
from midstream.interface.cli import options
from midstream.interface.cli.check import require_sound
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.jobs.starting import first_queries, job_text, streams_in


@ends_clearly
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of Parquet, CSV or JSON-lines files.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="JOB.toml", help="The job file; FOLDER's name by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a job file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Write a starter job for a folder of files: a stream for each sub-folder or file, and first queries.

    The files are read to find their columns, the time column and how far rows are out of order.

    \b
    Example:
      midstream init data
      midstream run data.toml --available
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    path = out or Path(f"{folder.resolve().name}.toml")
    if path.exists() and not force:
        raise JobError(f"{path} exists already", hint="--force replaces it, --out names another")
    streams, skipped = streams_in(folder)
    for reason in skipped:
        note(f"left out {reason}")
    if not streams:
        raise InputError(
            f"{folder} has no files to make a stream of",
            hint="put Parquet, CSV or JSON-lines files with a time column there, a folder for each stream",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(job_text(streams, f"{path.stem}.checkpoint", path.resolve().parent), encoding="utf-8")
    queries = [name for name, _ in first_queries(streams)]
    if json:
        record = {"job": str(path), "streams": [stream.name for stream in streams], "queries": queries}
        show_json({**record, "left_out": skipped})
        return
    require_sound(path)
    checkpoint = path.parent / f"{path.stem}.checkpoint"
    show_text(f"{path}: streams {', '.join(stream.name for stream in streams)}; queries {', '.join(queries)}")
    show_text(f"next: midstream run {path} --available\nthen: midstream results {checkpoint} {queries[0]}")
