"""Families of queries and their equivalent plans, and streams that make them meet: what migrations are tried on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from midstream.algebra.emission import emission_of
from midstream.algebra.expressions import Column, Named
from midstream.algebra.plan import Aggregate, Distinct, Relation, ToStream, rewrite_plan, walk_plan
from midstream.api import Question, ask
from midstream.optimizer.plans import Plan, plan_query
from midstream.optimizer.rules import RULES

NAMES = "ABCDEF"
WINDOWS = (
    "[RANGE 10]",
    "[RANGE 10]",
    "[RANGE 4]",
    "[RANGE 15]",
    "[HOP 8, 4]",
    "[CUMULATE 12, 4]",
    "[TUMBLE 6]",
    "[NOW]",
)


@dataclass(frozen=True)
class Setting:
    """A question with the plans of its query that are tried."""

    text: str
    asked: Question
    plans: tuple[Plan, ...]

    def __repr__(self) -> str:
        tables = {name: table.to_pylist() for name, table in self.asked.tables.items()}
        return f"{self.text!r} over {tables}"


@st.composite
def streams(draw: st.DrawFn, names: str, rows: int = 14, last: int = 40) -> dict[str, pa.Table]:
    """Streams whose keys meet often; some are empty, end early, start late or are out of order: registers differ."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    tables = {}
    for name in names:
        low, high = draw(st.sampled_from([(0, last), (0, last), (0, last), (0, last // 2), (last // 2, last)]))
        count = draw(st.sampled_from([rows, rows, rows, rows // 2, 1, 0]))
        times = sorted(rng.randint(low, high) for _ in range(count))
        if draw(st.integers(0, 4)) == 0:
            times.sort(key=lambda time: time + rng.randint(0, 4))
        keys = [rng.choice([0, 0, 1, 2, None]) for _ in times]
        tables[name] = pa.table(
            {
                "ts": pa.array(times, pa.int64()),
                "k": pa.array(keys, pa.int64()),
                "v": pa.array([rng.randint(0, 2) for _ in times], pa.int64()),
            }
        )
    return tables


@st.composite
def join_settings(draw: st.DrawFn, most: int = 4) -> Setting:
    """Inner joins in every shape, trees and multi-way joins."""
    names = NAMES[: draw(st.integers(3, most))]
    windows = draw(st.lists(st.sampled_from(WINDOWS), min_size=len(names), max_size=len(names)))
    from_ = ", ".join(f"{n} {w}" for n, w in zip(names, windows, strict=True))
    links = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(names, names[1:], strict=False))
    more = draw(st.sampled_from(["", " AND A.v <= B.v", " AND A.v = C.v", " AND C.v > 0"]))
    outputs = draw(st.sampled_from(["A.v", "A.k, B.v, C.v AS w", "A.k + B.v AS s"]))
    top = draw(st.sampled_from(["", "", "", "ISTREAM ", "DSTREAM "]))
    text = f"SELECT {top}{outputs} FROM {from_} WHERE {links}{more}"
    asked = ask(text, draw(streams(names, rows=14 if len(names) < 5 else 8)))
    shapes = draw(st.lists(_shape_text(names), min_size=2, max_size=3, unique=True))
    return Setting(text, asked, tuple(plan_query(asked.plan, shape) for shape in shapes))


TOPS = (
    "SELECT A.k, count(*) AS n, sum(C.v) AS s {from_} GROUP BY A.k",
    "SELECT max(B.v) AS m {from_}",
    "SELECT DISTINCT A.v, B.v AS w {from_}",
    "SELECT x.k, D.v FROM (SELECT A.k, B.v {from_}) AS x LEFT JOIN D {window} ON x.k = D.k",
    "SELECT D.v FROM D {window} WHERE D.k IN (SELECT A.k {from_})",
    "SELECT A.k {from_} EXCEPT ALL SELECT k FROM D {window}",
    "SELECT A.k {from_} INTERSECT SELECT k FROM D {window}",
    "SELECT A.k, A.v {from_} UNION ALL SELECT k, v FROM D {window}",
    "SELECT x.w, y.n FROM (SELECT A.k, C.v AS w {from_}) AS x, "
    "(SELECT k, count(*) AS n FROM D {window} GROUP BY k) AS y WHERE x.k = y.k",
)


@st.composite
def topped_settings(draw: st.DrawFn) -> Setting:
    """Joins in every shape below operators that stay: what is above and beside them must not notice."""
    windows = draw(st.lists(st.sampled_from(WINDOWS), min_size=4, max_size=4))
    aliases = ", ".join(f"{name} {window}" for name, window in zip("ABC", windows, strict=False))
    from_ = f"FROM {aliases} WHERE A.k = B.k AND B.k = C.k{draw(st.sampled_from(['', ' AND A.v <= C.v']))}"
    text = draw(st.sampled_from(TOPS)).format(from_=from_, window=windows[3])
    if draw(st.integers(0, 4)) == 0:
        text = f"SELECT {draw(st.sampled_from(['ISTREAM', 'DSTREAM']))} * FROM ({text}) AS top"
    asked = ask(text, draw(streams("ABCD" if " D " in text else "ABC", rows=10)))
    shapes = draw(st.lists(_shape_text("ABC"), min_size=2, max_size=3, unique=True))
    return Setting(text, asked, tuple(plan_query(asked.plan, shape) for shape in shapes))


@st.composite
def _shape_text(draw: st.DrawFn, names: str) -> str:
    if draw(st.integers(0, 3)) == 0:
        orders = (f"{n}: {' '.join(draw(st.permutations([o for o in names if o != n])))}" for n in names)
        return ", ".join(orders)
    parts = list(draw(st.permutations(list(names))))
    while len(parts) > 1:
        i = draw(st.integers(0, len(parts) - 2))
        parts[i : i + 2] = [f"({parts[i]} {parts[i + 1]})"]
    return parts[0]


QUERIES = (
    "SELECT DISTINCT A.k FROM A {0}, B {1} WHERE A.k = B.k",
    "SELECT DISTINCT A.v, B.v AS w FROM A {0}, B {1} WHERE A.k = B.k AND A.v > 0",
    "SELECT DISTINCT A.v FROM A {0}, B {1}, C {2} WHERE A.k = B.k AND B.k = C.k",
    "SELECT A.k, count(*) AS n, sum(B.v) AS s FROM A {0}, B {1} WHERE A.k = B.k GROUP BY A.k",
    "SELECT B.v, sum(A.v) AS s, count(*) AS n FROM A {0}, B {1}, C {2} WHERE A.k = B.k AND B.k = C.k GROUP BY B.v",
    "SELECT count(*) AS n, max(A.v) AS m FROM A {0}, B {1} WHERE A.k = B.k",
    "SELECT x.k, x.v FROM (SELECT k, v FROM A {0} UNION ALL SELECT k, v FROM B {1}) AS x WHERE x.v > 0",
    "SELECT x.k + 1 AS l FROM (SELECT k, v FROM A {0} UNION ALL SELECT k, v FROM B {1}) AS x, C {2} "
    "WHERE x.k = C.k AND x.v > 0 AND C.v < 2",
    "SELECT U.k FROM (SELECT k FROM A {0} UNION ALL SELECT k FROM B {1}) AS U, C {2} WHERE U.k = C.k",
    "SELECT DISTINCT U.k FROM (SELECT k FROM A {0} UNION ALL SELECT k FROM B {1}) AS U",
    "SELECT x.k FROM (SELECT k, v FROM A {0} EXCEPT ALL SELECT k, v FROM B {1}) AS x WHERE x.v > 0",
    "SELECT x.k FROM (SELECT k, v FROM A {0} INTERSECT SELECT k, v FROM B {1}) AS x WHERE x.v > 0",
    "SELECT x.v FROM (SELECT k, v FROM A {0} EXCEPT SELECT k, v FROM B {1}) AS x, C {2} WHERE x.k = C.k AND x.v < 2",
    "SELECT A.k, A.v, B.v AS w FROM A {0} LEFT JOIN B {1} ON A.k = B.k WHERE A.v > 0",
    "SELECT A.k, B.v FROM A {0} FULL JOIN B {1} ON A.k = B.k AND A.v < B.v",
    "SELECT A.v FROM A {0} WHERE A.k IN (SELECT k FROM B {1})",
    "SELECT A.v FROM A {0} WHERE NOT EXISTS (SELECT 1 FROM B {1} WHERE B.k = A.k)",
    "SELECT A.k, x.n FROM A {0}, (SELECT k, count(*) AS n FROM B {1} GROUP BY k) AS x, C {2} "
    "WHERE A.k = x.k AND A.k = C.k",
    "SELECT k, v FROM A {0} UNION ALL SELECT B.k, count(*) AS v FROM B {1} GROUP BY B.k",
)
KEEPING = tuple(query for query in QUERIES if "UNION ALL" in query and "DISTINCT" not in query and "count" not in query)
ENDLESS = (
    "SELECT A.k FROM A [UNBOUNDED], B {1}, C {2} WHERE A.k = B.k AND B.k = C.k",
    "SELECT DISTINCT A.k FROM A [UNBOUNDED], B [UNBOUNDED] WHERE A.k = B.k",
    "SELECT A.v, B.v AS w FROM A [PARTITION BY k ROWS 2], B {1}, C {2} WHERE A.k = B.k AND B.k = C.k",
    "SELECT A.k FROM A FOLLOWED BY B ALL ON A.k = B.k WITHIN 9",
    "SELECT A.k FROM A NOT FOLLOWED BY B ON A.k = B.k AND A.v < B.v WITHIN 5 WHERE A.v > 0",
    "SELECT x.k, x.n, B.v FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES MATCH_NUMBER() AS n ALL ROWS PER "
    "MATCH PATTERN (S U+) DEFINE U AS v <= NEXT(v)) [RANGE 3] AS x, B {1}, C {2} WHERE x.k = B.k AND B.k = C.k",
    "SELECT x.k, B.v FROM (SELECT k FROM A {0}) [RANGE 3] AS x, B {1}, C {2} WHERE x.k = B.k AND B.k = C.k",
)


@st.composite
def rule_settings(draw: st.DrawFn, queries: tuple[str, ...] = QUERIES) -> Setting:
    """Other queries, with the plans that the rewrite rules lead to."""
    text = draw(st.sampled_from(queries))
    windows = [draw(st.sampled_from(WINDOWS)) for _ in range(3)]
    text = text.format(*windows)
    if draw(st.integers(0, 5)) == 0:
        kinds = ["ISTREAM", "DSTREAM"] if queries is ENDLESS else ["ISTREAM", "DSTREAM", "RSTREAM"]
        text = f"SELECT {draw(st.sampled_from(kinds))} * FROM ({text}) AS top"
    names = "".join(name for name in NAMES if f" {name} " in text)
    asked = ask(text, draw(streams(names)))
    plans = list(equivalent_plans(asked.plan))
    chosen = draw(st.lists(st.sampled_from(range(len(plans))), min_size=2, max_size=3, unique=len(plans) > 2))
    return Setting(text, asked, tuple(plans[i] for i in chosen))


def equivalent_plans(query: Relation) -> Iterator[Plan]:
    """The query as the optimizer prepares it, as it is written, and after each rule applied everywhere.

    The last rule is none of the optimizer's: it makes plans that answer by slices of time of those that need not.
    """
    prepared = plan_query(query)
    yield prepared
    emission = emission_of(query)
    seen = {prepared.logical}
    for base in (query, prepared.logical):
        for rule in (lambda node: node, *RULES, group_for_distinct):
            logical = rewrite_plan(base, rule)
            if logical not in seen and logical.schema.equals(query.schema):
                seen.add(logical)
                yield Plan(query, logical, emission)


def group_for_distinct(node: Relation) -> Relation:
    """Grouping by all columns for a DISTINCT."""
    match node:
        case Distinct(inner) if len(inner.schema):
            return Aggregate(inner, tuple(Named(f.name, Column(f.name, f.type)) for f in inner.schema), ())
    return node


def gives_a_stream(plan: Plan) -> bool:
    """Whether results have a time instead of an interval."""
    return any(isinstance(node, ToStream) for node in walk_plan(plan.query))
