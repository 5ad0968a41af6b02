"""Rows that make a query's expressions fail, found one by one.

A row can be identified as long as only selections and projections have processed it: what these give of
a row depends on that row alone. So rows are put through the expressions above a source, halved as long as they fail,
until those that fail are left. What fails further up, where rows have met others, no single row can be blamed for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.algebra import physical as p
from midstream.algebra.declarations import UserFunction
from midstream.errors import InputError
from midstream.job.task.ingest import source_elements
from midstream.operators.base import Operator
from midstream.operators.build import build
from midstream.operators.elements import Elements, Ticks
from midstream.operators.vectors import gather_rows

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sieve:
    """The expressions above a source that see its rows one by one."""

    source: p.SourceNode
    operators: Sequence[Operator]

    @staticmethod
    def above(source: p.SourceNode, plan: p.PhysicalNode, functions: Mapping[str, UserFunction]) -> Sieve:
        """The selections and projections above a source of a plan, up to the first other operator."""
        return Sieve(source, [build(node, functions) for node in _plain_above(source, plan)])

    def split(self, rows: pa.RecordBatch, ticks: Ticks) -> tuple[Rows, dict[int, str]]:
        """The numbers of the rows that go through, and of the others with the reason."""
        bad = {int(i): reason for some, reason in self._failing(rows, ticks, np.arange(len(ticks))) for i in some}
        return np.setdiff1d(np.arange(len(ticks)), np.fromiter(bad, np.int64, len(bad))), bad

    def _failing(self, rows: pa.RecordBatch, ticks: Ticks, some: Rows) -> Iterator[tuple[Rows, str]]:
        reason = self._reason(source_elements(self.source, gather_rows(rows, some), ticks[some])) if len(some) else None
        if reason is None:
            return
        if len(some) == 1:
            yield some, reason
            return
        for half in np.array_split(some, 2):
            yield from self._failing(rows, ticks, half)

    def _reason(self, elements: Elements) -> str | None:
        """Why elements do not go through; None if they do."""
        given: Elements | None = elements
        try:
            for operator in self.operators:
                given = None if given is None else operator.process(0, given)
        except InputError as error:
            return str(error.message)
        except pa.ArrowException as error:
            return str(error)
        return None


def _plain_above(source: p.SourceNode, plan: p.PhysicalNode) -> list[p.PhysicalNode]:
    """The selections and projections above a source, lowest first."""
    path = _path_to(lambda node: node is source or node == source, plan)
    above: list[p.PhysicalNode] = []
    for node in reversed(path[:-1]):
        if not isinstance(node, p.Filter | p.Compute):
            break
        above.append(node)
    return above


def _path_to(wanted: Callable[[p.PhysicalNode], bool], node: p.PhysicalNode) -> list[p.PhysicalNode]:
    """The nodes from a plan's root down to a wanted one; nothing if there is none."""
    if wanted(node):
        return [node]
    for child in node.inputs:
        if below := _path_to(wanted, child):
            return [node, *below]
    return []
