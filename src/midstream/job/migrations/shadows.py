"""Another text for a query, which runs beside it before it takes its place, and what is compared of both.

A selection and a projection of a relation are those of its snapshots. So two answers can be compared on some of their
columns, or where a condition holds, by comparing what is left of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.expressions import TRUE, Expression
from midstream.algebra.plan import Project, Select, ToStream, Window
from midstream.checkpoint.commands import ReplaceQuery
from midstream.errors import QueryError
from midstream.language import parse
from midstream.operators.expressions import Functions, Predicate
from midstream.optimizer.plans import Plan

_RESULTS, _TIME = "results", "#time"


@dataclass(frozen=True, slots=True)
class ShadowText:
    """The other text of a query, and on which columns both are compared, of the results that `where` holds of.

    Without columns nothing is compared: it takes the place once its windows are full, and those of all texts of the
    same `change`. If it `waits`, it takes the place when somebody says so. `withhold`: it then gives no results that
    lack rows.
    """

    cql: str
    columns: tuple[str, ...] = ()
    where: str | None = None
    waits: bool = False
    withhold: bool = False
    change: str = ""

    def compared(self, results: pa.Table, functions: Functions) -> pa.Table:
        """What is compared of the results of either text."""
        times = ["valid_from", "valid_to"] if "valid_from" in results.column_names else ["ts"]
        if self.where is not None:
            own = results.drop_columns(times)
            schema = pa.schema([pa.field(f"{_RESULTS}.{field.name}", field.type) for field in own.schema])
            holds = Predicate(condition(self.where, own.schema, functions), schema, functions)
            masks = [pa.array(holds(batch)) for batch in own.rename_columns(schema.names).to_batches()]
            results = results.filter(pa.chunked_array(masks, pa.bool_()))
        return results.select([*self.columns, *times])


def shadow_of(command: ReplaceQuery, old: Plan, new: Plan, cql: str, functions: Functions) -> ShadowText:
    """Another text as it is to be compared with a query; refuses what does not fit both."""
    if isinstance(old.query, ToStream) != isinstance(new.query, ToStream):
        raise QueryError(
            "a text that gives changes cannot be compared with one that gives what holds",
            hint="leave verify out, or give both texts ISTREAM, DSTREAM or RSTREAM",
        )
    types = {field.name: field.type for field in new.query.schema}
    both = pa.schema([field for field in old.query.schema if types.get(field.name) == field.type])
    columns = tuple(part.strip() for part in command.columns.split(",")) if command.columns else tuple(both.names)
    missing = [name for name in columns if name not in both.names]
    if missing or not columns:
        raise QueryError(
            f"the texts do not both have the columns to compare, of the same types: {', '.join(missing) or 'none'}",
            detail=f"both have {', '.join(both.names) or 'none'}",
        )
    if command.where is not None:
        condition(command.where, both, functions)
    return ShadowText(cql, columns, command.where, command.then == "wait")


def condition(text: str, columns: pa.Schema, functions: Functions) -> Expression:
    """The condition of a text on results with these columns."""
    declared = StreamDeclaration(_RESULTS, columns.append(pa.field(_TIME, pa.int64())), _TIME)
    catalog = Catalog({_RESULTS: declared}, functions)
    try:
        relation = parse(f"SELECT 1 AS one FROM {_RESULTS} [NOW] WHERE {text}", catalog)
    except QueryError as error:
        raise QueryError(
            f"where {text!r:.80} is no condition on what both texts give: {error.message}",
            detail=f"both have {', '.join(columns.names)}",
        ) from error
    match relation:
        case Project(Select(Window(), predicate)):
            return predicate
        case Project(Window()):
            return TRUE
    raise QueryError(f"where {text!r:.80} is not one condition on a result", hint="write for instance n > 3")
