"""How a command ends.

A user's mistake, or an input or a checkpoint that is damaged, is said in its own words on standard error and ends with
code 2. The death of a process that the job runs on ends with code 75: started again, the job goes on. A defect of ours
says that it is one and ends with code 70. Standard output stays for results.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

import typer

from midstream.errors import ClusterError, InternalError, MidstreamError
from midstream.interface.cli.output import complain

USER_ERROR = 2
INTERNAL_ERROR = 70
CLUSTER_ERROR = 75
TRACEBACK = "MIDSTREAM_TRACEBACK"

_DEBUG = [False]

P = ParamSpec("P")
R = TypeVar("R")


def show_tracebacks(wanted: bool) -> None:
    """Whether errors are shown with the place in the code where they were raised."""
    _DEBUG[0] = wanted


def ends_clearly(command: Callable[P, R]) -> Callable[P, R]:
    """The command with every error turned into words and an exit code."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except InternalError as error:
            _stop(error, INTERNAL_ERROR)
        except ClusterError as error:
            _stop(error, CLUSTER_ERROR)
        except MidstreamError as error:
            _stop(error, USER_ERROR)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of a pipe went away: the program's main knows what to do
            _stop(_unexpected(error), INTERNAL_ERROR)

    return wrapped


def _unexpected(error: Exception) -> InternalError:
    return InternalError(
        "internal error: this is a defect of Midstream",
        detail=f"{type(error).__name__}: {str(error)[:500]}",
        hint="midstream --debug … shows where it happened",
    )


def _stop(error: MidstreamError, code: int) -> NoReturn:
    complain("\n".join([str(error), *(f"  {note}" for note in getattr(error, "__notes__", ()))]))
    if _DEBUG[0] or os.environ.get(TRACEBACK):
        traceback.print_exc()
    raise typer.Exit(code)
