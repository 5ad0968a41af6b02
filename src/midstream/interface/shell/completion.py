"""What a shell offers when Tab is pressed: streams, columns, functions, words of the language, commands and paths."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

from midstream.algebra.borrowed import BORROWED
from midstream.algebra.functions import AGGREGATE, SCALAR, SYNONYMS
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
