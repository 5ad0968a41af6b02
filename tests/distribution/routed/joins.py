"""Random joins with rows: join graphs of every shape, equal keys and other conditions, and plans for them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pyarrow as pa
from tests.distribution.routed.drawing import SHAPES

from midstream.algebra.placements import Placement
from midstream.api import ask
from midstream.lab.papers.node_operator_sets.join_plan import JoinPlan
from midstream.lab.papers.node_operator_sets.query import RoutedQuery
from midstream.optimizer.routed.conditions import RoutedConditions
from midstream.optimizer.routed.plan import HeadPlan, OneWay

THETA = ("{a}.v <= {b}.v", "{a}.v < {b}.v + 2", "{a}.v <> {b}.v", "{a}.v + {b}.v > 3")


@dataclass(frozen=True)
class Joined:
    """A query with its inputs; prints itself."""

    text: str
    tables: dict[str, pa.Table]

    @property
    def query(self) -> RoutedQuery:
        return RoutedQuery(ask(self.text, self.tables).plan)


def draw_join(random: Random, count: int, rows: int, theta: float = 0.25, window: int = 6) -> Joined:
    names = [chr(ord("A") + i) for i in range(count)]
    edges = sorted(tuple(sorted(pair)) for pair in random.choice(SHAPES)(names).sets)
    # Many streams need wide windows and few different keys, or nothing is found.
    one_key, domain = random.random() < 0.3, random.choice([2, 3, 4] if count < 5 else [1, 2, 2])
    window = window if count < 5 else 2 * rows
    conditions = []
    for number, (a, b) in enumerate(edges):
        if random.random() < theta and len(edges) < 8:
            conditions.append(random.choice(THETA).format(a=a, b=b))
        else:
            key = 0 if one_key else number % 3
            conditions.append(f"{a}.k{key} = {b}.k{key}")
    windows = [f"{s} [{_window(random, window)}]" for s in names]
    text = f"SELECT {', '.join(f'{s}.v AS {s.lower()}' for s in names)} FROM {', '.join(windows)}"
    tables = {s: _table(random, rows, domain) for s in names}
    return Joined(f"{text} WHERE {' AND '.join(conditions)}", tables)


def _window(random: Random, window: int) -> str:
    other = random.random()
    if other < 0.1:
        return "UNBOUNDED"
    if other < 0.2:
        return f"HOP {2 * random.randint(1, window)}, 2"
    return f"RANGE {random.randint(1, window)}"


def _table(random: Random, rows: int, domain: int) -> pa.Table:
    ts = sorted(random.randrange(2 * rows) for _ in range(rows))
    columns = {
        "ts": pa.array(ts, pa.int64()),
        "v": pa.array([random.randrange(6) for _ in ts], pa.int64()),
        "k0": pa.array([random.randrange(domain) for _ in ts], pa.int64()),
        "k1": pa.array([random.choice("pqrst"[:domain]) for _ in ts], pa.string()),
        "k2": pa.array([None if random.random() < 0.1 else random.randrange(domain) for _ in ts], pa.int32()),
    }
    return pa.table(columns)


def draw_plan(random: Random, conditions: RoutedConditions) -> JoinPlan:
    """Any valid plan."""
    ways = []
    for head in conditions.streams:
        met, joins = [head], list[OneWay]()
        while len(met) < len(conditions.streams):
            target = random.choice(conditions.next(met, [s for s in conditions.streams if s not in met]))
            joins.append(OneWay(target, random.choice(list(Placement))))
            met.append(target)
        ways.append(HeadPlan(head, tuple(joins)))
    return JoinPlan(tuple(ways))
