"""The program `midstream`: its commands."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import midstream
from midstream.interface.cli import control
from midstream.interface.cli.bench import bench
from midstream.interface.cli.check import check
from midstream.interface.cli.dashboard import dashboard
from midstream.interface.cli.dead import dead
from midstream.interface.cli.demo import demo
from midstream.interface.cli.doctor import doctor
from midstream.interface.cli.endings import USER_ERROR, show_tracebacks
from midstream.interface.cli.experiment import experiment
from midstream.interface.cli.explain import explain
from midstream.interface.cli.init import init
from midstream.interface.cli.output import complain, keep_quiet
from midstream.interface.cli.query import query
from midstream.interface.cli.results import results
from midstream.interface.cli.run import run
from midstream.interface.cli.shell import shell
from midstream.interface.cli.state import state
from midstream.interface.cli.top import top


class Commands(TyperGroup):
    """The commands; one that is not there is told with the nearest that is."""

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

for command, short in (
    (demo, "See a query change its plan while results keep flowing"),
    (run, "Run a job file"),
    (init, "Write a starter job for a folder of files"),
    (check, "Check a job file without starting anything"),
    (doctor, "Check what jobs need on this machine"),
    (query, "Answer a query over files"),
    (shell, "Run queries over files, one after the other"),
    (explain, "Show a query's plan, what it costs, and why"),
    (results, "Show the results of a query of a job"),
    (dead, "Show the rows that a job could not use, or replay them"),
    (control.status, "Show the progress of a job"),
    (top, "Show a job in the terminal while it runs"),
    (dashboard, "Serve a live page of a job"),
    (state, "Show what a checkpoint holds"),
    (control.plan, "Show the current plan of a query"),
    (control.migrate, "Migrate a running query to another plan"),
    (control.adapt, "Change the adaptivity of a running query"),
    (control.add, "Add a query to a running job"),
    (control.drop, "Drop a query of a job"),
    (control.resume, "Resume a query that was stopped by a bad value"),
    (control.rebalance, "Balance load between the slots of a running job"),
    (control.rescale, "Change the number of slots of a running job"),
    (control.links, "Show the links between the sites of a job, or change those of a running one"),
    (control.stop, "Stop a running job"),
    (control.repair, "Repair the checkpoint of a stopped job"),
    (bench, "Measure ratios against Spark and others"),
    (experiment, "Rerun papers' experiments"),
):
    app.command(short_help=short)(command)


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
