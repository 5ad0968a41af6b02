"""The project as a whole: its version is said once, its parts import on their own, and CI keeps the README's word."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import midstream

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = sorted(m.name for m in pkgutil.walk_packages(midstream.__path__, "midstream.") if "__main__" not in m.name)


def test_the_package_and_the_project_agree_on_the_version():
    assert midstream.__version__ == PROJECT["project"]["version"]


def test_every_module_imports_and_says_what_is_true_in_it():
    modules = [importlib.import_module(m) for m in MODULES if not m.startswith("midstream.cluster.spark")]
    assert [module.__name__ for module in modules if not module.__doc__] == []


def test_no_module_imports_itself_by_way_of_others():
    try:
        TopologicalSorter(_imports()).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other: {error.args[1]}")


def _imports() -> dict[str, set[str]]:
    """The modules of the package that each of them imports anywhere in its text, for type checkers too."""
    source = ROOT / "src"
    files = {}
    for path in (source / "midstream").rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: {found for found in _imported(path, files) if found != name} for name, path in files.items()}


def _imported(path, modules):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found = inner if inner in modules else node.module
                if found in modules:
                    yield found


def test_importing_midstream_does_not_load_spark():
    code = "import sys, midstream; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def test_ci_runs_the_test_command_that_the_readme_gives():
    command = "pip install '.[dev]' && pytest"
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci/run").read_text()


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page.name} links to {link}"


SHARING_TEST = """
import os, pathlib, pytest

@pytest.mark.parametrize("i", range(6))
def test_where(i):
    pathlib.Path(__file__).with_suffix(f".{i}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_what_shares_something_costly_runs_in_one_process(tmp_path):
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    for name in ("test_spark_a.py", "test_spark_b.py", "tests/dashboard/test_page.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SHARING_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=tmp_path, env=_environment(), capture_output=True, check=True)
    for pattern, count in (("test_spark_*.[0-9]", 12), ("test_page.[0-9]", 6)):
        workers = [path.read_text() for path in tmp_path.rglob(pattern)]
        assert len(workers) == count and len(set(workers)) == 1


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def test_the_package_has_its_public_names_and_its_modules_and_nothing_else() -> None:
    own = {name for name, value in vars(midstream).items() if not inspect.ismodule(value)}
    names = {name for name in own if not name.startswith("_")}
    assert names <= set(midstream.__all__) and set(dir(midstream)) == set(midstream.__all__)
