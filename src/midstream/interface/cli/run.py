"""`midstream run`: a job from a file, until it is stopped."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from midstream.algebra.time import plural
from midstream.checkpoint.names import is_rehearsal
from midstream.errors import InputError
from midstream.interface.answers import change_text
from midstream.interface.cli import options
from midstream.interface.cli.endings import ends_clearly
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.jobs.logs import log_as_json, log_batch
from midstream.interface.jobs.tracing import batch_tracer

if TYPE_CHECKING:
    from midstream.interface.jobs.job_file import JobFile

Tell = Callable[[Mapping[str, Any]], None]
"""What is told of each batch."""

ListenHttp = Annotated[
    str | None,
    typer.Option("--listen", metavar="[HOST:]PORT", help="Take rows for folders of JSON or Parquet over HTTP."),
]
ListenFlight = Annotated[
    str | None,
    typer.Option("--listen-flight", metavar="[HOST:]PORT", help="Take rows for such folders over Arrow Flight."),
]


class LogFormat(StrEnum):
    """How batches are told of."""

    TEXT = "text"
    JSON = "json"


@ends_clearly
def run(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    available: Annotated[bool, typer.Option("--available", help="Process the input available now, then exit.")] = False,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Like --available; then end the streams and release all results."),
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the file, as midstream check does.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace queries whose text has changed.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Go on though streams lack or retype columns that no query reads.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --replace: only say what queries would start with.")
    ] = False,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="QUERY", help="Drop a query of the checkpoint, by name.")
    ] = None,
    on: Annotated[
        options.RunsOn | None, typer.Option("--on", help="Where to run: on Spark, or in this process without Java.")
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="While another process runs the job, wait; take over when it ends.")
    ] = False,
    dashboard: options.WithDashboard = False,
    dashboard_port: options.DashboardPort = None,
    listen: ListenHttp = None,
    listen_flight: ListenFlight = None,
    log: Annotated[
        LogFormat, typer.Option("--log", help="Log format: text, or JSON with one object per line.")
    ] = LogFormat.TEXT,
    json: options.Json = False,
) -> None:
    """Run a job: streams, queries, sinks and a checkpoint, from its file. Ctrl-C stops it; a restart resumes.

    \b
    Example:
      midstream run examples/orders.toml --available
      midstream run examples/orders.toml --finish
      midstream run examples/orders.toml --on local --available
    """
    from midstream.interface.cli.check import found_in, require_sound
    from midstream.interface.cli.dashboard import beside

    if check:
        require_sound(job_file, on, json=json)
        return
    job, mistakes = found_in(job_file, on, guess_types=False)
    if mistakes:
        require_sound(job_file, on)
    if dry_run:
        _show_changes(job, drop or (), json)
        return
    telling: list[Tell] = [] if json else [BatchNotes()]
    if log is LogFormat.JSON:
        log_as_json()
        telling = [log_batch]
    with beside(job.checkpoint, dashboard, dashboard_port), _listening(job, listen, listen_flight):
        account = in_turn(
            job, standby, lambda: carry_out(job, available or finish, telling, replace, finish, drop or (), accept)
        )
    if json:
        show_json(account)


def _show_changes(job: JobFile, drop: Sequence[str], json: bool) -> None:
    """What queries that are new or changed in a job file would start with."""
    found = {name: verdict.to_json() for name, verdict in open_session(job, True, drop).verdicts.items()}
    if json:
        show_json({"queries": found})
    else:
        lines = [f"query {name} would begin: {change_text(verdict)}" for name, verdict in found.items()]
        show_text("\n".join(lines) or "no query is new or changed")


@contextmanager
def _listening(job: JobFile, http: str | None, flight: str | None) -> Iterator[None]:
    """Takes rows over HTTP and Arrow Flight while a job runs, as far as that is wanted."""
    if http is None and flight is None:
        yield
        return
    from midstream.interface.inbox import inbox_of, listening

    inbox = inbox_of({stream.name: (stream.format, stream.path) for stream in job.streams})
    with ExitStack() as stack:
        if http is not None:
            address, token = stack.enter_context(listening(inbox, *_address("--listen", http)))
            note(f"rows can be pushed to {address}{{{','.join(inbox.folders)}}} with the token {token}")
        if flight is not None:
            from midstream.interface.flight_inbox import listening_flight

            address, token = stack.enter_context(listening_flight(inbox, *_address("--listen-flight", flight)))
            note(f"rows can be put to {address} under {','.join(inbox.folders)} with the token {token}")
        yield


def _address(option: str, where: str) -> tuple[str, int]:
    """The host and the port of a place to listen."""
    host, _, port = where.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{option} needs a port, not {where!r}", hint="write 8400, or 0.0.0.0:8400")
    return host or "127.0.0.1", int(port)


def in_turn(job: JobFile, standby: bool, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Runs a job, on standby as soon as no other process does; a checkpoint that cannot be read is refused before."""
    from midstream.checkpoint.lease import HeldLease, wait_for_release
    from midstream.checkpoint.store import CheckpointStore

    if not standby:
        return act()
    store = CheckpointStore(job.checkpoint)
    store.latest()
    while True:
        wait_for_release(store.files, lambda holder: note(f"{holder} runs the job; this process waits to take over"))
        try:
            return act()
        except HeldLease:  # another one that waited was faster
            continue


def carry_out(
    job: JobFile,
    available: bool,
    telling: Sequence[Tell] = (),
    replace: bool = False,
    finish: bool = False,
    drop: Sequence[str] = (),
    accept: bool = False,
) -> dict[str, Any]:
    """Runs the job to its end, telling of each batch; says how far it came."""
    from midstream.cluster.listener import status
    from midstream.cluster.resuming import changed_columns_of, starting
    from midstream.job.queries.changed_columns import require_accepted

    with starting(job.checkpoint):
        session = open_session(job, replace, drop)
        changes = changed_columns_of(session)
        require_accepted(changes, accept)
    for change in changes:
        note(f"accepted: {change}")
    for name, verdict in session.verdicts.items():
        note(f"query {name} begins: {change_text(verdict.to_json())}")
    for tell in (*telling, batch_tracer()):
        if tell is not None:
            session.on_progress(tell)

    def stop(*_: Any) -> None:
        session.request_stop()

    before = {sign: signal.signal(sign, stop) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        with session:
            session.start("available" if available else job.trigger)
            note(f"the job runs on {session.checkpoint}; Ctrl-C stops it")
            gc.freeze()  # to look at all that modules hold, a collection would take as long as a batch
            session.wait()
            if available:
                session.end_available(finish)
                for sentence in session.waits:
                    note(f"{sentence}; --finish releases what waits")
            else:
                note("the job has stopped, as it was asked to; started again, it resumes")
            account = status(session)
        return {**account, "running": False, **session.job.standing.to_json()}
    finally:
        gc.unfreeze()
        for sign, handler in before.items():
            signal.signal(sign, handler)


def open_session(job: JobFile, replace: bool = False, drop: Sequence[str] = ()) -> Any:
    """The session that a job describes, ready to start, with the queries that were added to it and not those dropped.

    `replace` has queries whose texts have changed take the places of the old ones; `drop` names queries to end.
    """
    from midstream.cluster.checkpoint_session import CheckpointSession

    session = CheckpointSession(
        _spark(job) if job.on == "spark" else None, checkpoint=job.checkpoint, on=job.on, **vars(job.options)
    )
    for name in drop:
        session.drop(name)
        note(f"query {name} is dropped")
    for stream in job.streams:
        session.open_stream(
            stream.name,
            stream.format if stream.source is None else stream.source.made(),
            schema=stream.schema if stream.source is None else None,
            path=stream.path,
            options=stream.options,
            columns=stream.columns,
            **vars(stream.settings),
        )
    if job.ticks:
        session.ticks()
    for query in job.queries:
        if session.was_dropped(query.name, query.cql):
            note(f"query {query.name} was dropped from the job and stays so; midstream add brings it back")
            continue
        session.query(query.name, query.cql, **{**vars(query.options), "replace": replace})
        if query.sink is not None:
            session.sink(query.name, query.sink.made(query.name))
    for name in session.restore_added():
        note(f"query {name} was added to the running job and keeps running")
    return session


def _spark(job: JobFile) -> Any:
    """The SparkSession that a job asks for."""
    from midstream.checkpoint.spark_log import log_after
    from midstream.checkpoint.store import CheckpointStore
    from midstream.cluster.spark import spark_session
    from midstream.cluster.spark.frames.sources import NAMING

    store = CheckpointStore(job.checkpoint)
    naming = {} if log_after(store.files, store.latest()).is_by_order() else NAMING
    return spark_session(job.master, **{**naming, **job.spark})


class BatchNotes:
    """Tells of a session's batches in lines of text, with the results that each released, as many as sinks are given.

    What is suggested or decided for a query is told once, until it changes.
    """

    def __init__(self) -> None:
        self.said: dict[str, tuple[str, str]] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Tells of a batch."""
        rows, late = sum(event["rows"].values()), sum(event["late"].values())
        released = {name: query["results"] for name, query in event["queries"].items() if not is_rehearsal(name)}
        results = ", ".join(f"{name} {count:,}" for name, count in released.items())
        text = f"batch {event['batch_id']}: {plural(rows, 'row')}{f', {late:,} late' if late else ''}; "
        note(f"{text}results {results}; {event['seconds']['batch']:.2f} s")
        for name, decision in event["decisions"].items():
            if decision is not None:
                self._decided(name, decision)

    def _decided(self, name: str, decision: Mapping[str, Any]) -> None:
        found = (decision["action"], decision["target"])
        if decision["action"] != "stay" and self.said.get(name) != found:
            note(f"query {name}: {decision['reason']}")
        self.said[name] = found
