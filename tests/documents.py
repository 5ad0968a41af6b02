"""The blocks of README and docs, and what a block shows as its output.

A `text` block of README and the tutorial is what the block before it prints: line by line, with `…` for any number of
lines where it stands alone, and for any text within a line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import Program

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- no-run -->\n)?^```(\w*)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLLOWED = ("README.md", "docs/tutorial.md")
"""The pages that are followed as a newcomer would, by processes."""


@dataclass(frozen=True)
class Example:
    """A block that does something, whether tests run it as it stands, and what it shows as its output."""

    kind: str
    text: str
    runs: bool
    output: str | None


def examples(page: str) -> Iterator[Example]:
    """The Python and shell blocks of a page, or of a part of it, in order."""
    found = BLOCK.findall(page)
    for at, (mark, kind, _, text) in enumerate(found):
        if kind in ("python", "sh"):
            shown = found[at + 1][3] if at + 1 < len(found) and found[at + 1][1] == "text" else None
            yield Example(kind, text, not mark, shown)


def check_output(example: Example, printed: str) -> None:
    """Fails unless a block prints what the page shows."""
    if example.output is not None:
        lines = [re.escape(line.rstrip()) for line in example.output.splitlines()]
        pattern = "".join("(?:.*\n)*?" if line == "…" else line.replace("…", ".*") + "\n" for line in lines)
        plain = "".join(line.rstrip() + "\n" for line in printed.splitlines())
        assert re.fullmatch(pattern, plain), f"{example.text}\nshows\n{example.output}\nand prints\n{plain}"


def copy_of_the_folder(target: Path) -> dict[str, str]:
    """Copies what commands of pages use, and gives the environment of their processes: `midstream` is this tree's."""
    ignored = shutil.ignore_patterns("*.checkpoint", "flights", "orders.paid")
    shutil.copytree(ROOT / "examples", target / "examples", ignore=ignored)
    shutil.copytree(ROOT / "docs" / "example", target / "docs" / "example")
    programs = target / "programs"
    programs.mkdir()
    for name, command in {"python": "", "midstream": "-m midstream"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (programs / name).chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    return {**os.environ, **path, "COLUMNS": "160", "NO_COLOR": "1"}


def run_loaded(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """The same of a program that is loaded, if the block has nothing but commands of it."""
    words = [shlex.split(line) for line in commands.splitlines()]
    if not all(line[:1] == ["midstream"] and not set("|&;<>$*") & set("".join(line)) for line in words):
        return run(commands, folder, environment)
    said = ""
    for _, *arguments in words:
        printed, errors = folder / "printed.txt", folder / "errors.txt"
        code = Program(arguments, errors, printed, environment).wait()
        said += printed.read_text()
        assert code == 0, f"{commands}\n{said}{errors.read_text()}"
    return said


def run(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """Runs a shell block as a user would, and gives what it prints on standard output."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout
