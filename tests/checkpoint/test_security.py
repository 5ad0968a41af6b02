"""What a checkpoint is made with and read by: private files, and never any code."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import send
from midstream.job.task.reports import Report

SOURCE = Path(ms.__file__).parent
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
BETWEEN_PROCESSES = {
    "job/task/shipping.py",
    "job/task/reports.py",
    "lab/simulated_cluster/cluster.py",
    "lab/simulated_cluster/tasks.py",
    "testing/sinks.py",
}
"""Where a driver, or a test of sinks, and its own workers talk: none of it reads or writes the checkpoint."""

CODE = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
RUNNING = {"eval", "exec", "compile", "__import__"}


def job(folder: Path) -> None:
    with ms.Session(checkpoint=str(folder), on="local", slots=2, retained=2) as session:
        session.stream("A", SCHEMA)
        session.query("q", "SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k")
        session.query("r", "SELECT k FROM A [RANGE 20]")
        session.start()
        for first in range(0, 60, 10):
            times = [None, *range(first, first + 9)]
            session.push("A", pa.table({"ts": times, "k": [t or 0 for t in times]}, schema=SCHEMA))
            if first == 20:
                send(files_at(str(folder)), {"command": "rescale", "slots": 3})
        session.finish()


def test_everything_that_a_job_creates_is_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "checkpoint"
    job(folder)
    rights = {path: path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}
    kinds = {"results", "state", "manifests", "dead_letters", "control", "lease"}
    assert kinds <= {path.name for path in folder.iterdir()}
    assert {oct(mode) for path, mode in rights.items() if path.is_dir()} == {"0o700"}
    assert {oct(mode) for path, mode in rights.items() if path.is_file()} == {"0o600"}


def test_what_exists_keeps_its_rights(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(0o750)
    folder.chmod(0o750)
    job(folder)
    assert folder.stat().st_mode & 0o777 == 0o750


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module.split(".")[0], *(name.name for name in node.names)}
    return found


def called(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name)}


def test_only_what_talks_between_processes_of_a_job_unpickles() -> None:
    words = re.compile("|".join(map(re.escape, sorted({*CODE, *RUNNING}))))
    for path in sorted(SOURCE.rglob("*.py")):
        text, name = path.read_text(), path.relative_to(SOURCE).as_posix()
        if not words.search(text):  # far less than parsing all files
            continue
        tree = ast.parse(text)
        assert name in BETWEEN_PROCESSES or not imported(tree) & CODE, name
        own = imported(tree) | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        assert not called(tree) & (RUNNING - own), name


READING = """
import sys
import midstream as ms
from midstream.checkpoint.check import check
from midstream.checkpoint.status import job_at, status_record

def read(folder):
    job = ms.open(folder)
    for name in job.queries:
        job.results(name).to_pylist(); ms.read_results(folder, name, current=True)
    job.dead_letters(); job.metrics(); job.history; job.decisions; job.streams; job.slots; job.requests
    status_record(job_at(job.store.uri)); check(job.store.files, job.manifest)
    for path in job.store.files.list(""):
        job.store.files.read(path)

warm, folder = sys.argv[1:]
read(warm)
events = []
def hook(event, args):
    if watching and event in ("exec", "compile", "import", "marshal.loads", "pickle.find_class"):
        events.append((event, str(args)[:200]))
watching = False
sys.addaudithook(hook)
watching = True
read(folder)
watching = False
print(events)
"""


def test_reading_a_checkpoint_runs_and_loads_no_code(tmp_path: Path) -> None:
    job(tmp_path / "warm")
    job(tmp_path / "read")
    told = subprocess.run(
        [sys.executable, "-c", READING, str(tmp_path / "warm"), str(tmp_path / "read")],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert told.stdout.strip() == "[]"


def test_a_resumed_job_unpickles_nothing_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened() -> Any:
        session = ms.Session(checkpoint=str(tmp_path), on="local", slots=2)
        session.stream("A", SCHEMA)
        session.query("q", "SELECT k, count(*) AS n FROM A [RANGE 20] GROUP BY k")
        return session.start()

    def refused(*content: Any, **options: Any) -> Any:
        raise AssertionError("something was unpickled")

    with opened() as session:
        session.push("A", pa.table({"ts": [1, 2], "k": [1, 1]}, schema=SCHEMA))
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, refused)
    with opened() as session:
        session.push("A", pa.table({"ts": [40, 41], "k": [1, 1]}, schema=SCHEMA))
        assert session.queries["q"].table().num_rows
    with pytest.raises(AssertionError, match="unpickled"):
        Report.from_bytes(Report(0, 0).to_bytes())
