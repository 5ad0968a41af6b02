"""One-way joins with rows: a batch of partial results meets a window as it was at that batch.

The delta rule: in batch b, head i sees the rows of batch b of the streams before it in the query and only rows of
earlier batches of those after it. Of the parts of a result, the one whose (batch, number) is greatest is the only head
that sees all others, so every result is found once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream.algebra.physical import ProbeStep
from midstream.lab.papers.node_operator_sets.query import RoutedQuery, batch_column
from midstream.lab.papers.node_operator_sets.window import Window
from midstream.operators.base import Work
from midstream.operators.elements import Elements, concatenate, empty_elements
from midstream.operators.expressions import Predicate
from midstream.operators.join import PAIRS_AT_ONCE, Probe, output_of, prepare


@dataclass(slots=True)
class Probed:
    """What a one-way join found, and how many pairs it looked at."""

    rows: Elements
    candidates: int


class Prober:
    """Probes windows for a query; what a probe compares is looked up once."""

    def __init__(self, query: RoutedQuery) -> None:
        self.query = query
        self._steps: dict[tuple[str, tuple[str, ...], str], tuple[ProbeStep, Predicate | None]] = {}

    def needed(self, head: str, batch: int, target: str) -> int:
        """The last batch of a target that a head's rows of a batch may see."""
        numbers = self.query.conditions.numbers
        return batch if numbers[target] < numbers[head] else batch - 1

    def step(self, head: str, met: tuple[str, ...], target: str) -> tuple[ProbeStep, Predicate | None]:
        """What a probe compares."""
        known = (head, met, target)
        if known not in self._steps:
            step = self.query.step(*known)
            residual = None
            if step.residual is not None:
                residual = Predicate(step.residual, step.gathered, self.query.functions)
            self._steps[known] = step, residual
        return self._steps[known]

    def probe(self, head: str, met: tuple[str, ...], rows: Elements, target: str, window: Window, batch: int) -> Probed:
        """The partial results of a head's batch joined with the window of a target."""
        step, residual = self.step(head, met, target)
        state = window.by(step.target_key)
        tagged = step.gathered.append(batch_column())
        output = output_of(tagged, rows.columns.schema, state.schema)
        ready, hashes = prepare(rows.without_hashes(), step.key, step.nulls_equal)
        probe, work = Probe(step.key, state, step.nulls_equal, output), Work()
        parts = list(probe.pieces(ready, hashes, work, PAIRS_AT_ONCE)) if len(ready) else []
        if not parts:
            return Probed(empty_elements(step.gathered), work.matched)
        found = _up_to(concatenate(parts), self.needed(head, batch, target), step.gathered)
        if residual is not None and len(found):
            found = found.where(residual(found.columns))
        return Probed(found, work.matched)


def _up_to(found: Elements, batch: int, schema: pa.Schema) -> Elements:
    """The pairs whose window row is of a batch up to one; the batch column goes."""
    batches = np.asarray(found.columns.column(found.columns.num_columns - 1))
    kept = found.without_hashes().where(batches <= batch)
    return kept.with_columns(kept.columns.select(schema.names))
