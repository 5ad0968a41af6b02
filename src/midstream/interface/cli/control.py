"""Commands that talk to a job: `midstream status`, `plan`, `migrate`, `add`, `stop` and others, made from their table.

A field that must be given is an argument, any other an option. A command that is part of another is an option of it:
`midstream migrate CHECKPOINT QUERY --cancel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from midstream.checkpoint.command_fields import CQL, LINKS, NUMBER, CommandField
from midstream.checkpoint.commands import COMMANDS, ChangeLinks, Command, ShowStatus, command_of
from midstream.checkpoint.lease import is_running
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.status import job_at, status_record
from midstream.checkpoint.store import CheckpointStore
from midstream.interface.answers import answer_text, forecast_text
from midstream.interface.asking import AT_REST, asked, no_job
from midstream.interface.cli import options
from midstream.interface.cli.endings import USER_ERROR, ends_clearly
from midstream.interface.cli.output import note, show_json, show_text
from midstream.interface.plain_values import plain
from midstream.interface.status_text import status_text, with_instants

Checkpoint = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The job's checkpoint.")]

COMMON = {
    "dry_run": (Annotated[bool, typer.Option("--dry-run", help="Only show what it would do and cost.")], False),
    "timeout": (Annotated[float, typer.Option("--timeout", help="Seconds to wait for the job's answer.")], 60.0),
    "json": (options.Json, False),
}
"""The options that commands have beside their own, each with its type and what it is if it is not given."""


def command_line(name: str) -> Callable[..., None]:
    """A command as Typer takes it: a function whose parameters are the fields of the command."""
    kind = COMMANDS[name]
    parts = {_sign(other): other for other in COMMANDS.values() if other.part_of == name}

    def run(checkpoint: str, timeout: float, json: bool, dry_run: bool = False, **given: Any) -> None:
        wanted = [sign for sign in parts if given.get(sign)]
        chosen = parts[wanted[0]] if wanted else kind
        flags = [sign for sign, other in parts.items() if sign not in _fields(other)]
        command = _command(chosen, {key: v for key, v in given.items() if v is not None and key not in flags})
        if isinstance(command, ShowStatus):
            _show_job(job_at(checkpoint), json)
            return
        if command is None:
            answer = {"links": job_at(checkpoint).links}
        else:
            _say_if_nobody_runs(checkpoint, command, timeout, dry_run)
            answer = asked(checkpoint, command, timeout, dry_run=dry_run)
        _show(command, answer, dry_run, json)

    run.__name__, run.__doc__ = name, _help(kind, parts.values())
    parameters = list(_parameters(kind, parts))
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return ends_clearly(run)


def _fields(kind: type[Command]) -> dict[str, CommandField]:
    return {each.name: asked for each, asked in kind.fields()}


def _sign(part: type[Command]) -> str:
    """The option by which a part of a command is chosen: its own field, or a flag of its name."""
    own = [name for name in _fields(part) if name not in _fields(COMMANDS[part.part_of])]
    return own[0] if own else part.name.partition("_")[0]


def _parameters(kind: type[Command], parts: Mapping[str, type[Command]]) -> Iterator[Parameter]:
    yield _parameter("checkpoint", Checkpoint)
    for each, field in kind.fields():
        typed = int if field.kind is NUMBER else list[str] if field.kind is LINKS else str
        if each.default is not MISSING:
            shown = str(each.default) if each.default is not None else False
            flag = f"--{each.name.replace('_', '-')}"
            yield _parameter(
                each.name, Annotated[typed | None, typer.Option(flag, help=field.help, show_default=shown)], None
            )
            continue
        least = 1 if field.kind is NUMBER else None
        argument = typer.Argument(metavar=each.name.upper(), help=field.help, min=least, show_default=False)
        if parts or field.kind is LINKS:  # another command, or none, may be meant
            yield _parameter(each.name, Annotated[typed | None, argument], None)
        else:
            yield _parameter(each.name, Annotated[typed, argument])
    for sign, part in parts.items():
        field_or_none = _fields(part).get(sign)
        if field_or_none is None:
            yield _parameter(sign, Annotated[bool, typer.Option(f"--{sign}", help=_first_line(part))], False)
        else:
            yield _parameter(sign, Annotated[str | None, typer.Option(f"--{sign}", help=field_or_none.help)], None)
    for name, (typed_as, default) in COMMON.items():
        if name != "dry_run" or kind.forecast:
            yield _parameter(name, typed_as, default)


def _parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _first_line(kind: type[Command]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _help(kind: type[Command], parts: Any) -> str:
    examples = [text for each in (kind, *parts) for text in each.examples]
    shown = "\n".join(f"  midstream {kind.name} orders.checkpoint {text}".rstrip() for text in examples)
    return f"{_first_line(kind)}\n\n\b\nExample:\n{shown}"


def _command(kind: type[Command], values: dict[str, Any]) -> Command | None:
    """The command that is meant; None where links are only to be shown."""
    if kind is ChangeLinks and not values.get("links"):
        return None
    known = _fields(kind)
    read = {
        name: options.query_text(value) if name in known and known[name].kind is CQL else value
        for name, value in values.items()
    }
    return command_of(kind, read)


def _say_if_nobody_runs(checkpoint: str, command: Command, timeout: float, dry_run: bool) -> None:
    store = CheckpointStore(checkpoint)
    if (dry_run or type(command) not in AT_REST) and store.batch_ids() and not is_running(store.files):
        note(f"no job runs on {checkpoint} now; waiting {timeout:g} seconds for one")


def _show_job(job: StoredJob, json: bool) -> None:
    show_json(plain(with_instants(status_record(job)))) if json else show_text(status_text(job))


def _show(command: Command | None, answer: dict[str, Any], dry_run: bool, json: bool) -> None:
    if json:
        show_json(answer)
    else:
        show_text(forecast_text(command, answer) if dry_run and command is not None else answer_text(command, answer))


@ends_clearly
def repair(
    checkpoint: Checkpoint,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Continue without results and dead letters whose files are lost.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Repair the checkpoint of a stopped job, and report what cannot be repaired.

    \b
    Example:
      midstream repair orders.checkpoint
      midstream repair orders.checkpoint --give-up
    """
    from midstream.job.repairing import repair_at_rest

    store = CheckpointStore(checkpoint)
    if not store.batch_ids():
        raise no_job(store)
    found = repair_at_rest(store, give_up)
    lost = [{"path": store.files.full(output.path), "rows": output.rows} for output in found.lost]
    if json:
        restored: Sequence[str] = list(found.restored)
        show_json({"restored": restored, "lost": lost, "given_up": found.given_up, "whole": found.is_whole})
    else:
        lines = [f"restored {path}" for path in found.restored]
        lines += [f"{'given up' if found.given_up else 'lost'}: {file['path']}, {file['rows']:,} rows" for file in lost]
        ending = "the job can go on" if found.is_whole else "restore the lost files from a copy, or use --give-up"
        show_text("\n".join([*lines, ending]))
    if not found.is_whole:
        raise typer.Exit(USER_ERROR)
