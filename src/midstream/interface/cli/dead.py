"""`midstream dead`: the rows that a job could not use, and their way back."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from midstream.algebra.time import plural
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.refused import refused_rows
from midstream.errors import JobError
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_table, show_text
from midstream.interface.jobs.job_file import read_job
from midstream.interface.replaying import ReplayedRows, letters_left, replay


@ends_clearly
def dead(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")],
    stream: Annotated[str | None, typer.Option("--stream", "-s", metavar="NAME", help="Only rows of a stream.")] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Only rows whose reason contains this text.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="The number of rows to show; 0 shows all.")] = 50,
    replay_into: Annotated[
        Path | None,
        typer.Option("--replay", metavar="JOB.toml", help="Write the rows into the folders of a job's streams, once."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the rows that a job could not use (dead letters), oldest first, or have a job read them again.

    --replay writes them as a new file into the folder that the job file names for their stream. A row goes back once:
    it is no longer shown afterwards. Rows that the same job would only bury again stay. Results that the target of a
    sink refused (`on_bad`) are shown last, with their query and sink, and are not replayed.

    \b
    Example:
      midstream dead orders.checkpoint --stream payments
      midstream dead orders.checkpoint --reason "too far ahead" --replay orders.toml
    """
    job = StoredJob.open(checkpoint)
    if stream is not None and stream not in job.streams:
        raise JobError(f"the job has no stream {stream}", detail=f"its streams are {', '.join(job.streams)}")
    found = letters_left(job)
    chosen = [
        letter for letter in found if stream in (None, letter.stream) and (reason is None or reason in letter.reason)
    ]
    if replay_into is not None:
        accounts = replay(job, chosen, read_job(replay_into))
        show_json({"replayed": [_record(account) for account in accounts]}) if json else _show(accounts)
        return
    rows = [
        {"batch": letter.batch_id, "stream": letter.stream, "reason": letter.reason, "row": letter.row}
        for letter in chosen
    ]
    if stream is None:
        rows += [
            {"batch": one.batch_id, "stream": f"{one.query} to {one.sink}", "reason": one.reason, "row": one.row}
            for one in refused_rows(job.store.files)
            if reason is None or reason in one.reason
        ]
    if json:
        shown = rows if limit == 0 else rows[:limit]
        show_json({"rows": len(rows), "letters": [{**row, "row": json_text.loads(str(row["row"]))} for row in shown]})
        return
    columns = [("batch", pa.int64()), ("stream", pa.string()), ("reason", pa.string()), ("row", pa.string())]
    show_table(pa.Table.from_pylist(rows, pa.schema(columns)), limit)


def _record(account: ReplayedRows) -> dict[str, object]:
    return {
        "stream": account.stream,
        "file": account.file,
        "rows": account.replayed,
        "kept": account.kept,
    }


def _show(accounts: list[ReplayedRows]) -> None:
    if not accounts:
        show_text("there are no such dead letters")
    for account in accounts:
        if account.file is not None:
            show_text(f"{plural(account.replayed, 'row')} of stream {account.stream} in {account.file}")
        for why, rows in account.kept.items():
            stay = "stays" if rows == 1 else "stay"
            note(f"{plural(rows, 'row')} of stream {account.stream} {stay}: {why}")
