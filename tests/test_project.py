"""The project as a whole: its version is said once, its parts import on their own, and CI keeps the README's word."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import midstream

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = sorted(m.name for m in pkgutil.walk_packages(midstream.__path__, "midstream.") if "__main__" not in m.name)


def test_the_package_and_the_project_agree_on_the_version():
    assert midstream.__version__ == PROJECT["project"]["version"]


@pytest.mark.parametrize("name", [m for m in MODULES if not m.startswith("midstream.runtime.spark")])
def test_every_module_imports(name):
    assert importlib.import_module(name).__doc__, f"{name} does not say what is true in it"


def test_importing_midstream_does_not_load_spark():
    code = "import sys, midstream; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def test_ci_runs_the_test_command_that_the_readme_gives():
    command = "pip install '.[dev]' && pytest"
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci/run").read_text()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}
