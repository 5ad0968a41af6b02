"""Programs that tests start, wherever a package has put them."""

from __future__ import annotations

import shutil
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files

import pytest


def program(name: str, package: str) -> str:
    """The path of a program; a test that needs it is skipped where neither the system nor the package has it."""
    found = shutil.which(name)
    if found is None:
        with suppress(PackageNotFoundError):
            found = next((str(file.locate()) for file in files(package) or () if file.name == name), None)
    if found is None:
        pytest.skip(f"there is no {name} here: pip install {package}")
    return found
