"""Executors need no library besides those that the deployment guide names."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle
from tests.job.test_later_stages import LATER
from tests.job.test_sharing import filled
from tests.scheduling.watched import drawn, table

from midstream.cluster.slot_threads import SlotThreads
from midstream.cluster.spark.in_task import in_task

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md"

EXECUTOR = """
import pickle, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sqlglot", "typer", "rich", "starlette", "obstore"):
            raise ModuleNotFoundError(f"this executor has no {name}")

sys.meta_path.insert(0, Missing())
tasks, threads, steps, slots = pickle.load(sys.stdin.buffer)
for report in threads.run(steps, slots, len(slots)):
    if report.error is not None:
        raise report.error
print(len(tasks), "stages ran")
"""


def test_tasks_run_with_the_libraries_that_the_guide_names(tmp_path):
    many = filled(tmp_path, LATER[2:9:3], batches=2).many
    batch, rng = many.made(), random.Random(7)
    slots = many.cluster._dealt(batch, {name: table(drawn(rng, 9, 12)).to_batches()[0] for name in "ABC"})
    steps = batch.steps()
    assert len(steps) > 1
    executor = subprocess.run(
        [sys.executable, "-c", EXECUTOR],
        input=cloudpickle.dumps(([in_task(step) for step in steps], SlotThreads(), steps, slots)),
        capture_output=True,
        check=False,
    )
    assert executor.stdout.decode() == f"{len(steps)} stages ran\n", executor.stderr.decode()
    assert "their Python needs `pyarrow`, `numpy` and `pandas`" in " ".join(GUIDE.read_text().split())


def test_text_files_are_read_with_the_same_libraries():
    from midstream.cluster.spark.frames.sources import text_contents
    from midstream.cluster.spark.text_files import TextFiles
    from midstream.inputs import NamedSource

    contents, _ = text_contents(NamedSource("A", "csv", "/nowhere", "ts BIGINT, d STRING", columns=("ts + 1 AS ts",)))
    read = "import pickle, sys\n" + EXECUTOR[EXECUTOR.index("class Missing") : EXECUTOR.index("tasks, threads")]
    read += "print(pickle.load(sys.stdin.buffer).contents.of_bytes('a.csv', b'1,x\\n').num_rows)"
    given = cloudpickle.dumps(TextFiles(contents))
    executor = subprocess.run([sys.executable, "-c", read], input=given, capture_output=True, check=False)
    assert executor.stdout.decode() == "1\n", executor.stderr.decode()
