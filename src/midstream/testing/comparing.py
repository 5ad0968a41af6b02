"""Results are compared by their snapshots: plans may cut the same result into different intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from midstream import api
from midstream.algebra.snapshots import snapshot_equal
from midstream.inputs import table_of
from midstream.testing.literals import stream

SHOWN = 20


def assert_snapshot_equal(actual: Any, expected: Any) -> None:
    """Fails unless two results have the same snapshots; `expected` may be a literal, as `stream` takes it.

    Columns of a literal take the types of the actual ones. What fails says at which instant results differ first.

    >>> found = pa.table({"k": [1, 1], "valid_from": [0, 4], "valid_to": [4, 9]})
    >>> assert_snapshot_equal(found, '''
    ...     k | valid_from | valid_to
    ...     1 | 0          | 9
    ... ''')
    """
    __tracebackhide__ = True
    found = _table(actual)
    wanted = _as(found.schema, _table(expected))
    difference = snapshot_equal(found, wanted)
    if not difference:
        text = str(difference).replace("only in x", "only in actual").replace("only in y", "only in expected")
        text = text.replace("x has", "actual has").replace("y has", "expected has")
        raise AssertionError(f"{text}\n\nactual\n{_shown(found)}\n\nexpected\n{_shown(wanted)}")


def assert_every_plan_agrees(
    query: str,
    inputs: Mapping[str, object],
    *,
    time: Any = "ts",
    batch_rows: Sequence[int] = (1, 7, 10_000),
    migrations: bool = True,
    **options: Any,
) -> None:
    """Fails unless every plan, in batches of any size and with a migration to each other plan, answers as the oracle.

    For small inputs: the oracle looks at every instant. Further options are those of `ms.run`.
    """
    __tracebackhide__ = True
    named = {name: value for name, value in options.items() if name in ("lateness", "functions")}
    wanted = api.reference(query, inputs, time=time, **named)
    plans = api.plans(query, inputs, time=time, functions=named.get("functions", ()))
    for plan in plans:
        for rows in batch_rows:
            found = api.run(query, inputs, time=time, plan=plan, batch_rows=rows, **options)
            _require(snapshot_equal(found, wanted), f"plan {plan}, {rows} rows a batch")
    if migrations and len(plans) > 1:
        _migrate_between(query, inputs, time, plans, wanted, options)


def _migrate_between(
    query: str, inputs: Mapping[str, object], time: Any, plans: Sequence[Any], wanted: pa.Table, options: Any
) -> None:
    __tracebackhide__ = True
    moment = _middle(inputs, time)
    for old, new in zip(plans, [*plans[1:], plans[0]], strict=True):
        change = api.Migration(at=moment, plan=new)
        found = api.run(query, inputs, time=time, plan=old, migrations=[change], batch_rows=3, **options)
        _require(snapshot_equal(found, wanted), f"a migration from {old} to {new} at {moment}")


def _middle(inputs: Mapping[str, object], time: Any) -> Any:
    """A time in the middle of the rows, as `Migration` takes it."""
    found: list[Any] = []
    for name, rows in inputs.items():
        table = table_of(name, rows)
        column = time if isinstance(time, str) else time[name]
        found += [value for value in table.column(column).to_pylist() if value is not None]
    found.sort()
    return found[len(found) // 2] if found else 0


def _require(difference: Any, text: str) -> None:
    __tracebackhide__ = True
    if not difference:
        raise AssertionError(f"{text}: {difference}")


def _table(value: Any) -> pa.Table:
    if isinstance(value, str):
        return stream(value)
    if isinstance(value, api.Result):
        return value.table
    results = getattr(value, "table", None)
    return results() if callable(results) and not hasattr(value, "columns") else table_of("result", value)


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """A table with the types of a schema, where they can be had and the names agree."""
    if sorted(schema.names) != sorted(table.column_names) or len(set(schema.names)) < len(schema.names):
        return table
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError):
        return table


def _shown(table: pa.Table) -> str:
    rows = [{name: str(value) for name, value in row.items()} for row in table.slice(0, SHOWN).to_pylist()]
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in table.column_names}
    lines = [" | ".join(name.ljust(width) for name, width in widths.items())]
    lines += [" | ".join(row[name].ljust(width) for name, width in widths.items()) for row in rows]
    more = [f"… {table.num_rows - SHOWN:,} more rows"] if table.num_rows > SHOWN else []
    return "\n".join(line.rstrip() for line in [*lines, *more])
