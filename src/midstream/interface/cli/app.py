"""The program `midstream`: its commands, each in a file that is loaded when the command is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import midstream
from midstream.checkpoint.commands import COMMANDS as JOB_COMMANDS
from midstream.checkpoint.commands import Command
from midstream.interface.cli.endings import USER_ERROR, show_tracebacks
from midstream.interface.cli.output import complain, keep_quiet


def _short(kind: type[Command]) -> str:
    """What a command does in a few words: its help up to the first pause."""
    return re.split(r"[,;:.] |\.$", (kind.__doc__ or "").partition("\n")[0])[0]


COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo", "See a query change its plan while results keep flowing"),
    "run": ("run", "Run a job file"),
    "init": ("init", "Write a starter job for a folder of files"),
    "check": ("check", "Check a job file without starting anything"),
    "try": ("try_", "Try a changed job file on a job's last batches, beside it"),
    "doctor": ("doctor", "Check what jobs need on this machine"),
    "query": ("query", "Answer a query over files"),
    "shell": ("shell", "Run queries over files, one after the other"),
    "explain": ("explain", "Show a query's plan, what it costs, and why"),
    "results": ("results", "Show the results of a query of a job"),
    "dead": ("dead", "Show the rows that a job could not use, or replay them"),
    "top": ("top", "Show a job in the terminal while it runs"),
    "dashboard": ("dashboard", "Serve a live page of a job"),
    "serve": ("serve", "Serve the results of a job over HTTP"),
    "state": ("state", "Show what a checkpoint holds"),
    **{name: ("", _short(kind)) for name, kind in JOB_COMMANDS.items() if kind.examples and not kind.part_of},
    "repair": ("control", "Repair the checkpoint of a stopped job"),
    "bench": ("bench", "Measure ratios against Spark and others"),
    "experiment": ("experiment", "Rerun papers' experiments"),
}
"""The commands in the order in which help lists them: the file that has each, and what it does in a few words.

Those without a file ask a job for something, and are made from the table of what it can be asked."""


@cache
def command_named(name: str) -> Any:
    """A command; its file is loaded now."""
    file, short = COMMANDS[name]
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    module = import_module(f"midstream.interface.cli.{file or 'control'}")
    alone.command(name, short_help=short)(
        getattr(module, f"{name}_" if iskeyword(name) else name) if file else module.command_line(name)
    )
    return typer.main.get_command(alone)


class Commands(TyperGroup):
    """The commands; one that is not there is told with the nearest that is."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, if there is one."""
        return command_named(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists them without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is meant, or why there is none."""
        name = args[0] if args else ""
        if name and self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.list_commands(ctx), 1)
            hint = f"did you mean {near[0]}?" if near else "midstream --help lists the commands"
            complain(f"there is no command {name}\n  hint: {hint}")
            raise typer.Exit(USER_ERROR)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="midstream",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # brackets in help are windows, not styles
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"midstream {midstream.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show results and errors only.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Continuous queries over streams, whose running plans can be changed in midstream.

    \b
    Example:
      midstream init data
      midstream --quiet run data.toml --available

    Exit codes: 0 success, 2 an error in the command, the job file, the input or the checkpoint, 70 a defect of
    Midstream, 75 the cluster failed and the job can be restarted. NO_COLOR turns colours off.
    """
    keep_quiet(quiet)
    show_tracebacks(debug)


def main() -> None:
    """Runs the program with the arguments of this process."""
    app(prog_name="midstream")
