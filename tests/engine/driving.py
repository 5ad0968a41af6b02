"""Drives a live query in ways that `ms.run` does not: streams interleave at random, some lag far behind others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from midstream.algebra.declarations import ARRIVAL, Catalog
from midstream.algebra.plan import Relation, streams_of
from midstream.api import ask
from midstream.cluster.local.embedded import StreamProgress
from midstream.cluster.local.live_query import LiveQuery
from midstream.job.task.ingest import checked
from midstream.operators import join
from midstream.operators.state import sorted_state
from midstream.optimizer.plans import Plan, enumerate_plans, plan_query

SCHEDULES = ("dfs", "dfs", "dfs", "bfs", "rr")


@dataclass(frozen=True)
class Step:
    """Some rows of some streams, and whether the query then learns how far the streams are."""

    rows: dict[str, tuple[int, int]]
    advance: bool = True


@dataclass(frozen=True, repr=False)
class Drive:
    """All that a run depends on besides the query and its input; prints itself."""

    plan: Plan
    steps: tuple[Step, ...]
    schedule: str = "dfs"
    constants: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        steps = "; ".join(
            ", ".join(f"{s} {a}:{b}" for s, (a, b) in step.rows.items()) + ("" if step.advance else " (no advance)")
            for step in self.steps
        )
        return f"plan {self.plan.text!r}, schedule {self.schedule}, constants {self.constants}, steps: {steps}"


Watcher = Callable[[LiveQuery, pa.Table], None]


def question(query: str, inputs: Mapping[str, pa.Table], time: str = "ts") -> tuple[Relation, Catalog]:
    """A query bound to its inputs; nothing is late."""
    asked = ask(query, inputs, time=time)
    return asked.plan, asked.catalog


def run(drive: Drive, inputs: Mapping[str, pa.Table], catalog: Catalog, watch: Watcher | None = None) -> pa.Table:
    """All results of a drive; `watch` sees the query and everything released so far after every step."""
    with settings(drive.constants):
        query = LiveQuery(drive.plan, catalog.functions, drive.schedule)
        streams = {name: StreamProgress(catalog.streams[name]) for name in sorted(query.streams)}
        rows = {name: one_batch(checked(catalog.streams[name], inputs[name])) for name in streams}
        released = [query.table(None)]
        for step in drive.steps:
            for name, (start, end) in step.rows.items():
                query.feed(name, *streams[name].accept(rows[name].slice(start, end - start)))
            if step.advance:
                for stream in streams.values():
                    stream.raise_register()
                released.append(query.table(query.advance({n: s.register for n, s in streams.items()})))
                if watch is not None:
                    watch(query, pa.concat_tables(released))
        for stream in streams.values():
            stream.close()
        released.append(query.table(query.advance({n: s.register for n, s in streams.items()})))
        return pa.concat_tables(released)


def random_drive(random: Random, relation: Relation, inputs: Mapping[str, pa.Table]) -> Drive:
    """Any plan, any interleaving, any schedule, any settings of the state."""
    emit_every = random.choice([None, None, 1, 7, 1_000_000])
    if emit_every is not None and not relation.domain.is_integer:
        emit_every *= 100_000
    steps = tuple(random_steps(random, {s.name: inputs[s.name].num_rows for s in streams_of(relation)}))
    plan = plan_query(relation, None, emit_every)
    if random.random() < 0.5:
        plan = random.choice([plan, *enumerate_plans(relation, emit_every, limit=8)])
    return Drive(plan, steps, random.choice(SCHEDULES), random_constants(random))


def random_steps(random: Random, sizes: Mapping[str, int]) -> Iterator[Step]:
    """Every stream's rows in order, the streams side by side or far apart."""
    done = dict.fromkeys(sizes, 0)
    eagerness = {name: random.choice([0.05, 0.5, 1.0]) for name in sizes}
    largest = random.choice([1, 2, 4, 50])
    while any(done[name] < sizes[name] for name in sizes):
        rows = {}
        for name in random.sample(list(sizes), len(sizes)):
            if random.random() < eagerness[name]:
                start, end = done[name], min(sizes[name], done[name] + random.randint(1, largest))
                if start < end:
                    rows[name] = (start, end)
                    done[name] = end
        if rows or random.random() < 0.05:
            yield Step(rows, random.random() < 0.8)


def random_constants(random: Random) -> dict[str, float]:
    """Compaction at any moment, probes in any number of parts."""
    return {
        "TIER": random.choice([2, 3, 4]),
        "BUCKETS": random.choice([1, 2, 4, 16]),
        "SPAN": random.choice([1, 2, 5]),
        "RESTED": random.choice([0, 1, 2, 5]),
        "MERGE_ROWS": random.choice([0, 3, 65_536]),
        "DEAD_SHARE": random.choice([0.0, 0.15, 1.0]),
        "PAIRS_AT_ONCE": random.choice([1, 5, 4_000_000]),
    }


@contextmanager
def settings(constants: Mapping[str, float]) -> Iterator[None]:
    """The state's and the join's constants, for a while."""
    places = [(module, name) for name in constants for module in (sorted_state, join) if hasattr(module, name)]
    before = [(module, name, getattr(module, name)) for module, name in places]
    try:
        for module, name in places:
            setattr(module, name, constants[name])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def shuffled(random: Random, inputs: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The same rows, which tell their order, in another one: mostly as they are, sometimes a little or wholly mixed."""
    reach = random.choice([0, 0, 3, 1000])
    result = {}
    for name, table in inputs.items():
        places = sorted(range(table.num_rows), key=lambda i: i + random.uniform(0, reach))
        result[name] = numbered(table).take(pa.array(places, pa.int64()))
    return result


def numbered(table: pa.Table) -> pa.Table:
    """Rows with a column that tells in which order they came."""
    return table.add_column(0, ARRIVAL, pa.array(range(table.num_rows), pa.int64()))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    batches = table.combine_chunks().to_batches()
    return (
        batches[0]
        if batches
        else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    )
