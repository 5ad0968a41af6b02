"""Runs a query batch by batch so that a test can start and cancel migrations between any two batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from midstream.api import Question
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.cluster.local.live_query import LiveQuery, Running
from midstream.migration.execution import Execution, SingleBox
from midstream.operators.box import Box
from midstream.operators.elements import Elements, rows_without_columns
from midstream.operators.state.segment import Segment, make_segment
from midstream.optimizer.plans import Plan, plan_query

Action = Callable[[LiveQuery], None]


def drive(
    asked: Question,
    plan: Plan | str | None,
    batch_rows: int,
    actions: Sequence[tuple[int, Action]] = (),
    reopen: bool = False,
) -> tuple[pa.Table, LiveQuery]:
    """The whole result, and the query after its end; actions happen before the batch of their number.

    With `reopen`, everything alive is thrown away after every batch and opened again from what can be written down.
    """
    live = LiveQuery(plan_query(asked.plan, plan), asked.catalog.functions)
    streams = {name: StreamProgress(asked.catalog.streams[name]) for name in sorted(live.streams)}
    released = []
    for number, parts in enumerate(batches(streams, asked.tables, batch_rows)):
        for at, action in actions:
            if at == number:
                action(live)
        for name, rows in parts.items():
            live.feed(name, *streams[name].accept(rows))
        for stream in streams.values():
            stream.raise_register()
        released.append(live.advance({name: s.register for name, s in streams.items()}))
        if reopen:
            open_again(live)
    for stream in streams.values():
        stream.close()
    released.append(live.advance({name: s.register for name, s in streams.items()}))
    tables = [live.table(part) for part in released if part is not None]
    return pa.concat_tables(tables or [live.table(None)]), live


def open_again(live: LiveQuery) -> None:
    """Replaces the execution by one built from plans, a decision and named states alone."""
    running = live.migrations.running
    fresh: Execution = SingleBox(Box(live.plan.physical, live.functions), live.release)
    if running is not None:
        assert isinstance(fresh, SingleBox)
        migrating = running.strategy.open(fresh, Box(running.plan.physical, live.functions), dict(running.decision))
        migrating.figures = running.execution.figures
        fresh = migrating
        live.migrations.running = Running(running.plan, running.strategy, running.decision, migrating, running.recorder)
    _copy_states(live.execution, fresh)
    fresh.restore(live.frontier)
    live.execution = fresh


def _copy_states(old: Execution, new: Execution) -> None:
    written = dict(old.named_states())
    names = [name for name, _ in new.named_states()]
    assert len(names) == len(set(names)) and set(names) == set(written)
    for name, state in new.named_states():
        segments = [(s.to_batch(), s.bucket, s.born) for s in written[name].segments]
        state.replace_segments([segment_from_batch(batch, bucket, born) for batch, bucket, born in segments])


def in_order(result: pa.Table) -> bool:
    """Whether results left in order of their start."""
    times = result["valid_from" if "valid_from" in result.column_names else "ts"].to_pylist()
    return bool(times == sorted(times))


def segment_from_batch(batch: pa.RecordBatch, bucket: int, born: int) -> Segment:
    """A segment as it was written by `to_batch`."""
    hashes = batch.column(0).to_numpy(zero_copy_only=True)
    valid_from, valid_to = (batch.column(i).to_numpy(zero_copy_only=True) for i in (1, 2))
    names = batch.schema.names[3:]
    columns = batch.select(names) if names else rows_without_columns(batch.num_rows)
    return make_segment(Elements(columns, valid_from, valid_to), hashes, bucket, born)
