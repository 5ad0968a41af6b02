"""The program `midstream`: its commands."""

from __future__ import annotations

from typing import Annotated

import typer

import midstream
from midstream.interface.cli import control
from midstream.interface.cli.bench import bench
from midstream.interface.cli.check import check
from midstream.interface.cli.dashboard import dashboard
from midstream.interface.cli.demo import demo
from midstream.interface.cli.doctor import doctor
from midstream.interface.cli.endings import show_tracebacks
from midstream.interface.cli.experiment import experiment
from midstream.interface.cli.explain import explain
from midstream.interface.cli.init import init
from midstream.interface.cli.output import keep_quiet
from midstream.interface.cli.query import query
from midstream.interface.cli.results import results
from midstream.interface.cli.run import run
from midstream.interface.cli.shell import shell
from midstream.interface.cli.state import state
from midstream.interface.cli.top import top

app = typer.Typer(
    name="midstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # brackets in help are windows, not styles
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(run)
app.command()(init)
app.command()(check)
app.command()(doctor)
app.command()(query)
app.command()(shell)
app.command()(explain)
app.command()(results)
app.command()(dashboard)
app.command()(top)
app.command()(state)
app.command()(bench)
app.command()(experiment)

for command in (
    control.status,
    control.plan,
    control.migrate,
    control.rebalance,
    control.rescale,
    control.adapt,
    control.add,
    control.drop,
    control.resume,
    control.repair,
    control.stop,
):
    app.command()(command)


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
