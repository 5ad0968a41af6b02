"""A fragment's life in a slot: open its state, go on from its frontier, take the batch, write what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.algebra.declarations import UserFunction
from midstream.distribution.fragments import Fragment
from midstream.migration.execution import SingleBox
from midstream.operators.box import Box
from midstream.operators.elements import Elements, concatenate
from midstream.operators.state.segment import Segment
from midstream.optimizer.plans import Plan
from midstream.runtime.checkpoint.files import Files
from midstream.runtime.checkpoint.manifest import ResultFile
from midstream.runtime.checkpoint.names import name_for
from midstream.runtime.checkpoint.packs import SegmentEntry, StateKey, kept_entries, open_states, write_pack
from midstream.runtime.live_query import result_table
from midstream.runtime.spark.reports import FragmentReport


@dataclass(frozen=True, slots=True)
class FragmentWork:
    """What a fragment of a query has to do in a batch, in every slot.

    `plan` is set for the fragment that gives the results. `restored_to` and `advance_to` are frontiers of this
    fragment; `segments` are those of each slot; `port` is the one its output travels by.
    """

    query: str
    fragment: Fragment
    plan: Plan
    functions: Mapping[str, UserFunction]
    restored_to: int
    advance_to: int
    segments: Mapping[int, Sequence[SegmentEntry]]
    port: int
    received: Mapping[int, str]

    @property
    def name(self) -> tuple[str, int]:
        """What reports call it."""
        return self.query, self.fragment.number


class FragmentLife:
    """One fragment at work in one slot."""

    def __init__(self, work: FragmentWork, files: Files, slot: int) -> None:
        self.work = work
        self.files = files
        self.slot = slot
        self.given: list[Elements] = []
        self.entries = list(work.segments.get(slot, ()))
        self.rows_in = 0
        box = Box(work.fragment.plan, work.functions)
        self.execution = SingleBox(box, self.given.append)
        self._open(box)
        box.restore(work.restored_to)

    def _open(self, box: Box) -> None:
        schemas = {state.id: state.schema for state in box.states()}
        stored = open_states(self.files, self.entries, schemas)
        for state in box.states():
            state.replace_segments(stored.get((state.id, state.key), ()))

    def feed(self, alias: str, elements: Elements) -> None:
        """Takes elements of a source."""
        if len(elements):
            self.rows_in += len(elements)
            self.execution.feed(alias, elements)

    def advance(self) -> None:
        """Learns how far the streams are."""
        if self.work.advance_to > self.work.restored_to:
            self.execution.advance(self.work.advance_to)

    def output(self) -> Elements | None:
        """All it has given, in one batch."""
        return concatenate(self.given) if self.given else None

    def close(self, batch_id: int, states: dict[StateKey, list[Segment]]) -> FragmentReport:
        """Writes new segments and results; says what there is now."""
        total = self.execution.box.work
        held = {(state.id, state.key): list(state.segments) for state in self.execution.states()}
        path = name_for("state", batch_id, self.slot, self.work.fragment.number)
        entries = [*kept_entries(self.entries, held), *write_pack(self.files, path, held)]
        results = [] if self.work.fragment.reader is not None else self._results(batch_id)
        return FragmentReport(
            entries=entries,
            results=results,
            rows_in=self.rows_in,
            rows_out=sum(map(len, self.given)),
            state_rows=sum(entry.rows for entry in entries),
            state_bytes=sum(entry.bytes for entry in entries),
            probed=total.probed,
            matched=total.matched,
            inserted=total.inserted,
        )

    def _results(self, batch_id: int) -> list[ResultFile]:
        elements = self.output()
        if elements is None:
            return []
        path = name_for(f"results/{self.work.query}", batch_id, self.slot, 0)
        self.files.write_atomic(
            path, parquet_bytes(result_table(self.work.plan, elements)), point="results", sync=False
        )
        starts = elements.valid_from
        return [ResultFile(path, len(elements), int(starts.min()), int(starts.max()), batch_id)]


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """A table as the content of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=False, write_statistics=True)
    return sink.getvalue()
