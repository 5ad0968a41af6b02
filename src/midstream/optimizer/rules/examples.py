"""Small plans for the rules' documentation: a query over streams with a time `ts` and the columns `k` and `v`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.expressions import Column, Literal, call
from midstream.algebra.plan import Relation, Select
from midstream.language import parse

_COLUMNS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
CATALOG = Catalog({name: StreamDeclaration(name, _COLUMNS, "ts") for name in "ABCD"})


def example(query: str, at: int = 0) -> Relation:
    """The plan of a query, or the node `at` steps below its top along first inputs."""
    plan = parse(query, CATALOG)
    for _ in range(at):
        plan = plan.inputs[0]
    return plan


def show(rule: Callable[[Relation], Relation], query: str, at: int = 0) -> None:
    """Prints the node before and after a rule."""
    before = example(query, at)
    print(before)
    print("becomes")
    print(rule(before))


def where(plan: Relation, column: str, value: int) -> Relation:
    """The plan's tuples with a value in a column."""
    return Select(plan, call("=", Column(column, pa.int64()), Literal(value, pa.int64())))
