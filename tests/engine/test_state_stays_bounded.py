"""State is bounded by the window: over six windows it holds no more, in rows and in segments, than over three."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.engine import driving
from tests.engine.kinds import KINDS, Kind
from tests.profiles import always

from midstream.cluster.local.embedded import StreamProgress
from midstream.cluster.local.live_query import LiveQuery
from midstream.operators.state.sorted_state import BUCKETS, SortedState
from midstream.optimizer.plans import plan_query

WINDOW, RATE = 100, 2
BATCH = 10
FEW, MANY = 5, 300
SEQUENCES = {"sequence", "choosy sequence", "row before", "as-of join"}
"""They tidy up now and then; their own tests say what they keep."""
COUNTING = {"row window", "partitioned row window", "batches of rows", "pattern", "over a stream"}
"""What they keep is by partition, and its validity tells nothing of it."""
LEFT_OUT = SEQUENCES | COUNTING | {"rstream", "theta join"}


def streams(windows: int, keys: int) -> dict[str, pa.Table]:
    """Rows at a steady rate, with keys that come again."""
    rows = windows * WINDOW * RATE
    times = [i // RATE for i in range(rows)]
    texts = [str(i * 7919 % keys) for i in range(rows)]
    values = list(range(rows)) if keys == MANY else [i * 7 % 13 for i in range(rows)]
    return {name: pa.table({"ts": times, "k": texts, "v": values}) for name in "ABC"}


def widened(query: str) -> str:
    for size in ("10", "4", "3"):
        query = query.replace(f"[RANGE {size}]", f"[RANGE {WINDOW}]")
    return (
        query.replace("[HOP 8, 4]", f"[HOP {WINDOW}, 20]")
        .replace("[TUMBLE 6]", f"[TUMBLE {WINDOW}]")
        .replace("v > 2", "v > -1")
    )


def sizes(kind: Kind, windows: int, keys: int = MANY) -> Iterator[tuple[SortedState, int, int]]:
    """Every state after every batch: how many of its rows are stored, and how many are alive."""
    inputs = streams(windows, keys)
    relation, catalog = driving.question(widened(kind.query), inputs)
    query = LiveQuery(plan_query(relation, kind.plan), catalog.functions)
    rows = {name: driving.one_batch(inputs[name]) for name in sorted(query.streams)}
    progress = {name: StreamProgress(catalog.streams[name]) for name in rows}
    for start in range(0, windows * WINDOW * RATE, BATCH):
        for name, stream in progress.items():
            query.feed(name, *stream.accept(rows[name].slice(start, BATCH)))
            stream.raise_register()
        query.advance({name: stream.register for name, stream in progress.items()})
        for state in query.execution.states():
            assert len(state.segments) <= 6 * BUCKETS
            yield state, state.rows, len(state.alive(query.frontier))


@pytest.mark.parametrize("name", always(9, (name for name in KINDS if name not in LEFT_OUT)))
def test_states_hold_what_is_alive_and_little_more(name: str) -> None:
    kind = KINDS[name]
    short, long = ([(stored, alive) for _, stored, alive in sizes(kind, windows)] for windows in (3, 6))
    if not short:
        return
    most_alive = max(alive for _, alive in short)
    assert max(alive for _, alive in long) <= most_alive * 1.05 + BATCH
    assert max(stored for stored, _ in long) <= 2.5 * most_alive + 4 * BATCH


@pytest.mark.parametrize("name", sorted(COUNTING))
def test_what_is_kept_by_partition_does_not_grow_with_time(name: str) -> None:
    short, long = (max(stored for _, stored, _ in sizes(KINDS[name], windows, FEW)) for windows in (3, 6))
    assert BATCH < long <= short * 1.05 + BATCH
