"""The positive-negative representation: streams of signed tuples instead of elements with intervals (GenMig 2.3, 4.6).

A tuple is sent when it starts to count, and once more with the other sign when it stops. The answer is the same, GenMig
works there too, and no job runs by it: every operator would need a second form that does what the first one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from midstream.api import Migration, ask
from midstream.cluster.finite_run import FiniteRun
from midstream.inputs import Time
from midstream.lab.papers.positive_negative.signed_query import run_signed
from midstream.optimizer.plans import Plan


def run(
    query: str,
    inputs: Mapping[str, object],
    *,
    time: Time = "ts",
    plan: Plan | str | None = None,
    migrations: Sequence[Migration] = (),
    batch_rows: int = 10_000,
) -> pa.Table:
    """Answers a query over finite inputs as `ms.run` does, over signed tuples.

    >>> rows = {"A": [{"ts": 1, "k": 5}, {"ts": 2, "k": 5}]}
    >>> run("SELECT DISTINCT k FROM A [RANGE 3]", rows).to_pylist()
    [{'k': 5, 'valid_from': 1, 'valid_to': 6}]
    """
    question = ask(query, inputs, time=time)
    how = FiniteRun(plan, tuple(migrations), batch_rows)
    return run_signed(question.plan, question.tables, question.catalog, how)
