"""What is left to the longer profile is there."""

from __future__ import annotations

from pathlib import Path

from tests.longer import CASES, NONE

HERE = Path(__file__).parent


def test_every_test_that_is_named_as_long_is_there():
    assert all((HERE / f"{file}.py").is_file() for file in NONE)
    for file, names in CASES.items():
        text = (HERE / f"{file}.py").read_text()
        assert [name for name in names if f"def {name}(" not in text] == [], file
