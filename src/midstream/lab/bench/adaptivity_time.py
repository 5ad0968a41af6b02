"""Adaptive runs against hindsight, in processor time.

All runs take turns and the least time of each counts, so that a busy moment does not decide. In every phase hindsight
chooses among the plans that are best in some phase.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence

from midstream.adaptation.policy import Policy
from midstream.api import Question
from midstream.lab.bench.adaptivity_runs import Run, drive

Span = tuple[int, int]

REPEATS = 3


def times(
    question: Question, plans: Iterable[str], spans: Sequence[Span], batch_rows: int, repeats: int = REPEATS
) -> tuple[float, float, float]:
    """Seconds of the adaptive run, of the best choice for each span, and of the best choice for all of them."""
    static: dict[str, list[Run]] = {text: [] for text in sorted(plans)}
    adaptive = []
    for _ in range(repeats):
        for text, runs in static.items():
            runs.append(_alone(question, text, batch_rows, None))
        adaptive.append(_alone(question, None, batch_rows, Policy("auto")))
    require_same_results([run for runs in static.values() for run in runs], adaptive[0])
    clairvoyant = sum(min(_least(runs, span) for runs in static.values()) for span in spans)
    single = min(min(run.time for run in runs) for runs in static.values())
    return min(run.time for run in adaptive), clairvoyant, single


def _alone(question: Question, plan: str | None, batch_rows: int, policy: Policy | None) -> Run:
    """A run that does not pay for what earlier ones, and the modules, have left to the garbage collector."""
    gc.collect()
    gc.freeze()
    try:
        return drive(question, plan, batch_rows, policy)
    finally:
        gc.unfreeze()


def _least(runs: Sequence[Run], span: Span) -> float:
    return min(run.time_in(*span) for run in runs)


def require_same_results(static: Sequence[Run], adaptive: Run) -> None:
    """Refuses to compare runs that did not answer the same."""
    counts = {run.results for run in [*static, adaptive]}
    if len(counts) != 1:
        raise AssertionError(f"plans of one query gave different numbers of results: {sorted(counts)}")
