"""Steps as Spark calls them in its tasks.

Executors load this module and what it imports, so it may import only what they are said to need: PySpark, `pyarrow`,
`numpy` and `pandas`.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from midstream.cluster.slot_threads import Step
from midstream.job.task.step import StageStep


def in_task(step: Step) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step as Spark calls it, in each task with the number of its slot."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _keep_modules_from_collections()
        context: Any = TaskContext.get()
        slot = context.partitionId()
        if isinstance(step, StageStep):
            yield from step.run(slot, batches, executor=_executor())
        else:
            yield from step.run(slot, batches)

    return call


def _executor() -> str:
    """The executor of a task: by its id where Spark tells workers, else by its host and the parent of its workers."""
    return os.environ.get("SPARK_EXECUTOR_ID") or f"{socket.gethostname()}:{os.getppid()}"


_modules = 0
"""How many modules this process had when they were last kept from garbage collections."""


def _keep_modules_from_collections() -> None:
    """Keeps what modules hold from garbage collections.

    Spark's worker collects garbage after every task, before it takes the next one. To look at every object of a
    thousand modules takes it 50 ms, as long as all else that a small task costs.
    """
    global _modules
    if len(sys.modules) > _modules:
        gc.freeze()
        _modules = len(sys.modules)
