"""The program as a process of its own that has not to load itself: it is forked off one that has. Functions too.

Loading takes longer than most commands. That the program starts from nothing is what README's commands,
`interface/test_query_command.py` and `interface/test_commanded_process.py` show, which start it as users do.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest.mock import patch

import midstream
from midstream.interface.cli import main
from midstream.interface.cli.app import COMMANDS

_FORKING = get_context("forkserver")
_LOADED = {f"midstream.interface.cli.{file or 'control'}" for file, _ in COMMANDS.values()}
_FORKING.set_forkserver_preload(["pandas", "midstream.cluster.local.backend", "midstream.cluster.listener", *_LOADED])


class Program:
    """`midstream` with some words, at work; as much of `subprocess.Popen` as tests need."""

    def __init__(
        self,
        words: Sequence[str],
        errors: Path,
        printed: Path = Path(os.devnull),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        for file in (printed, errors):
            file.write_text("")  # as a shell does it, before the process begins
        outside = (os.getcwd(), dict(os.environ if environment is None else environment), midstream.__file__)
        self._process = _started(_run, list(words), str(printed), str(errors), *outside)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, or less than nothing if it was killed, once it has ended."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, as soon as it has ended."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("midstream", timeout or 0.0)
        return self.returncode

    def send_signal(self, sign: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, sign)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it."""
        self.send_signal(signal.SIGKILL)


def forked(function: Callable[..., object], *arguments: object, **environment: str) -> int:
    """The exit code of a function in a process of its own, with more variables in its environment."""
    process = _started(_call, function, arguments, environment, midstream.__file__)
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _started(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """A process off one that has loaded the program from where it is tested, not from where it may be installed."""
    with patch.dict(os.environ, PYTHONPATH=str(Path(midstream.__file__).parents[1])):
        forkserver.ensure_running()
    process = _FORKING.Process(target=target, args=arguments)
    process.start()
    return process


def _call(
    function: Callable[..., object], arguments: tuple[object, ...], environment: dict[str, str], home: str
) -> None:
    _require_loaded_from(home)
    os.environ.update(environment)
    function(*arguments)


def _require_loaded_from(home: str) -> None:
    assert midstream.__file__ == home, f"{midstream.__file__} was loaded instead of {home}"


def _run(words: list[str], printed: str, errors: str, folder: str, environment: dict[str, str], home: str) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in ((1, printed), (2, errors)):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    _require_loaded_from(home)
    sys.argv = ["midstream", *words]
    try:
        main()
    finally:
        atexit._run_exitfuncs()
