"""The shell at a terminal: lines with history and completion; a mistake is shown, and the shell goes on.

When Tab is pressed it offers streams, columns, functions, words of the language, commands and paths.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from midstream.algebra.borrowed import BORROWED
from midstream.algebra.functions import AGGREGATE, SCALAR, SYNONYMS
from midstream.errors import MidstreamError
from midstream.interface.cli.output import complain
from midstream.interface.shell.commands import COMMANDS, Leave, Shell
from midstream.interface.shell.statements import Splitter, Statement
from midstream.interface.shell.streams import FileStream
from midstream.language.dialect import CQL

WINDOWS = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "PARTITION BY", "HOP", "TUMBLE", "SLIDE")
OTHERS = (
    "ISTREAM",
    "DSTREAM",
    "RSTREAM",
    "KEEP",
    "BY",
    "WITHIN",
    "EXPLAIN",
    "CREATE STREAM",
    "CAST",
    "INTERVAL",
    "OUTER",
)
WORDS = sorted({*(word for word in CQL.Tokenizer.KEYWORDS if word.isalpha()), *WINDOWS, *OTHERS})
FUNCTIONS = sorted(name for name in {*SCALAR, *AGGREGATE, *BORROWED, *SYNONYMS} if name.isidentifier())


def candidates(line: str, word: str, streams: Mapping[str, FileStream], commands: tuple[str, ...]) -> list[str]:
    """What may stand in place of a word that ends a line.

    >>> candidates("SELECT cou", "cou", {}, ())
    ['count(', 'countif(']
    """
    before = line[: len(line) - len(word)].strip()
    if word.startswith("\\") and not before:
        return [command for command in commands if command.startswith(word)]
    if before.startswith(("\\stream", "\\read")):
        return _paths(word)
    alias, dot, start = word.rpartition(".")
    if dot:
        known = streams.get(alias)
        columns = known.columns.names if known is not None else _columns(streams)
        return [f"{alias}.{name}" for name in columns if name.startswith(start)]
    if before.upper().endswith((" FROM", " JOIN")):
        return [name for name in streams if name.startswith(word)]
    names = [*streams, *_columns(streams)]
    found = [name for name in dict.fromkeys(names) if name.startswith(word)]
    found += [f"{name}(" for name in FUNCTIONS if word and name.startswith(word.lower())]
    upper = word.upper()
    return found + [w if word[:1].isupper() else w.lower() for w in WORDS if word and w.startswith(upper)]


def _columns(streams: Mapping[str, FileStream]) -> list[str]:
    return sorted({name for stream in streams.values() for name in stream.columns.names})


def _paths(word: str) -> list[str]:
    found = sorted(glob.glob(glob.escape(os.path.expanduser(word)) + "*"))
    return [f"{path}/" if os.path.isdir(path) else path for path in found]


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
