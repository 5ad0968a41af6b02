"""WITH RECURSIVE: the least table that holds what the first query gives and what the second gives of its own rows.

It is reached in rounds: the second query reads the rows that the round before brought, until a round brings none. Its
inputs have always been there, so the table has too, and is read like any other.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.plan import Relation
from midstream.errors import QueryError
from midstream.language.binding import Binding
from midstream.language.constants import is_timeless
from midstream.language.dependent import Environment, Queries
from midstream.language.nodes import Node, everything_of
from midstream.language.set_operations import cast, common_types

Definition = tuple[Node, Environment]
"""What a name of WITH means: a query, and the environment in which it is bound."""


def defined(binder: Queries, cte: exp.CTE, environment: Environment) -> Definition:
    """What a query of WITH means: after WITH RECURSIVE, what reads itself is answered, and becomes a table."""
    name, body = cte.args["alias"].this, cte.this
    if not (cte.args.get("recursive") and any(_is_named(table, name) for table in body.find_all(exp.Table))):
        return body, environment
    binding, first, second = binder.binding, body.this, body.args.get("expression")
    if (
        not isinstance(body, exp.Union)
        or any(body.args.get(k) for k in ("with_", "order", "limit", "offset", "by_name", "corresponding"))
        or any(_is_named(table, name) for table in first.find_all(exp.Table))
    ):
        hint = (
            f"write WITH RECURSIVE {name.name} AS (SELECT … UNION [ALL] SELECT … FROM {name.name} …), ORDER BY outside"
        )
        raise binding.error("a query that reads itself is a UNION whose second query does", cte, hint=hint)
    if binding.catalog.fixpoint is None:
        raise binding.error(
            "recursive queries are answered once, over whole tables",
            cte,
            detail="a query that keeps running would have to compute all rounds again when a row comes or goes",
            hint="midstream query and ms.run answer them",
        )
    alone = environment.apart()
    begun = _timeless(binding, binder.query(first, alone), first)
    columns = cte.args["alias"].args.get("columns") or []
    if len(columns) > len(begun.schema):
        raise binding.error(f"{len(columns)} names are given to {len(begun.schema)} columns", cte)
    names = [*(column.name for column in columns), *begun.schema.names[len(columns) :]]
    schema = pa.schema([(name, field.type) for name, field in zip(names, begun.schema, strict=True)])

    def step(catalog: Catalog, declared: StreamDeclaration) -> Relation:
        binding.catalog = catalog
        inner = replace(alone, ctes={**alone.ctes, name.name: (_rows_of(declared, cte), alone)})
        again = _timeless(binding, binder.query(second, inner), second)
        types = common_types(binding, body, "UNION", begun, again)
        for field, type_ in zip(schema, types, strict=True):
            if field.type != type_:
                hint = f"CAST column {field.name} in the first query"
                raise binding.error(f"{name.name} begins with {field.type} and goes on with {type_}", cte, hint=hint)
        return cast(again, types)

    try:
        declared = binding.catalog.fixpoint(name.name, begun, schema, step, binding.time_type, body.args["distinct"])
    except QueryError as error:
        raise error.at(binding.text, cte.meta.get("start")) from None
    return _rows_of(declared, cte), alone


def _rows_of(declared: StreamDeclaration, cte: exp.CTE) -> Node:
    table = exp.Table(this=exp.Identifier(this=declared.name, quoted=True))
    table.meta["start"] = cte.meta.get("start")
    query = everything_of(table)
    query.meta["start"] = cte.meta.get("start")
    return query


def _is_named(table: exp.Table, name: exp.Identifier) -> bool:
    return table.name == name.name or (not name.args.get("quoted") and table.name.casefold() == name.name.casefold())


def _timeless(binding: Binding, plan: Relation, node: Node) -> Relation:
    if is_timeless(plan, binding.catalog):
        return plan
    raise binding.error("a recursive query reads tables without times", node, hint="their rows have always been there")
