"""The shell at a terminal: lines with history and completion; a mistake is shown, and the shell goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from midstream.errors import MidstreamError
from midstream.interface.cli.output import complain
from midstream.interface.shell.commands import COMMANDS, Leave, Shell
from midstream.interface.shell.completion import candidates
from midstream.interface.shell.statements import Splitter, Statement

PROMPT, GOING_ON = "midstream> ", "       ... "
REMEMBERED = 2_000


def converse(shell: Shell, read: Callable[[str], str]) -> None:
    """Reads statements until the end. Ctrl-C leaves what was begun, or stops a query; Ctrl-D ends the shell."""
    splitter = Splitter()
    while True:
        try:
            line = read(GOING_ON if splitter.is_waiting else PROMPT)
            for statement in splitter.take(line):
                attempt(shell, statement)
        except (EOFError, Leave):
            return
        except KeyboardInterrupt:
            splitter.forget()
            shell.write("")


def attempt(shell: Shell, statement: Statement) -> None:
    """Carries out a statement; a mistake is shown."""
    try:
        shell.do(statement)
    except MidstreamError as error:
        complain("\n".join([str(error), *getattr(error, "__notes__", ())]))


@contextmanager
def line_editing(shell: Shell) -> Iterator[None]:
    """Gives `input` history and completion, where the system has a library for it; the history outlives the shell."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = history_file()
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(REMEMBERED)
    readline.set_completer_delims(" \t\n,()[];=<>+*/")
    readline.parse_and_bind("tab: complete")
    commands = tuple(f"\\{name}" for name in COMMANDS)

    def complete(word: str, state: int) -> str | None:
        line = readline.get_line_buffer()[: readline.get_endidx()]
        found = candidates(line, word, shell.streams.named, commands)
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


def history_file() -> Path:
    """Where the lines of earlier shells are kept."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "midstream" / "history"
