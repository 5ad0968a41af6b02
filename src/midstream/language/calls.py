"""Function calls: built-in ones, the user's, aggregates, and what is written instead of what is none of them."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.borrowed import BORROWED
from midstream.algebra.borrowed_aggregates import AGGREGATES
from midstream.algebra.declarations import AggregateFunction, ScalarFunction, SqlFunction
from midstream.algebra.elsewhere import INSTEAD
from midstream.algebra.expressions import Call, Expression, Literal
from midstream.algebra.formats import FORMATTED, directives
from midstream.algebra.functions import AGGREGATE, SCALAR, SYNONYMS, TRUNCATION_UNITS, UNIT_FIRST, UNWRITTEN
from midstream.algebra.over import ONLY_OVER
from midstream.algebra.time import UNITS, plural
from midstream.algebra.type_names import TYPES
from midstream.errors import QueryError
from midstream.language.aggregates import Aggregates
from midstream.language.binding import nearest
from midstream.language.literals import months
from midstream.language.nodes import Node, at_same, place, with_arguments
from midstream.language.over import Overs
from midstream.language.text import read_value
from midstream.language.unnesting import Unnests, gives_rows
from midstream.language.values import ValueBinder


class CallBinder(ValueBinder, Protocol):
    """Binds values among which there may be aggregates, if `aggregates` has a place for them."""

    aggregates: Aggregates | None
    overs: Overs | None
    unnests: Unnests | None

    def inside(self, clause: str, aggregates: Aggregates | None = None) -> ValueBinder:
        """A binder for what a call of an aggregate, or with OVER, looks at."""


def bind_call(binder: CallBinder, node: exp.Anonymous) -> Expression:
    """The meaning of a function call."""
    written = node.name
    name = SYNONYMS.get(written.lower(), written.lower())
    if name in ("grouping", "grouping_id") and binder.aggregates is not None:
        return _grouping(binder, node)
    user = binder.binding.catalog.functions.get(written.lower())
    if gives_rows(node) and user is None:
        return _unnest(binder, node)
    if node.args.get("over") is not None:
        return _over(binder, node, name)
    own = name == "if" or (name in SCALAR and name not in UNWRITTEN) or name in AGGREGATE
    built_in = own or name in BORROWED or name in AGGREGATES
    if user is not None and own:
        raise binder.binding.error(
            f"{written} is a function of the language", node, hint="give your function another name"
        )
    if isinstance(user, SqlFunction):
        _plain_call(binder, node)
        return binder.bind(_in_place(binder, user, node))
    if isinstance(user, ScalarFunction):
        _plain_call(binder, node)
        return Call(user.name, tuple(binder.bind(a) for a in node.expressions), user.returns)
    if user is not None or name in AGGREGATES:
        return _aggregate(binder, node, name)
    if not built_in and written.upper() in TYPES and len(node.expressions) == 1:
        to = at_same(exp.DataType(this=written.upper(), expressions=[]), node)
        return binder.bind(at_same(exp.Cast(this=node.expressions[0], to=to), node))
    if not built_in:
        raise _unknown_function(binder, node)
    _plain_call(binder, node)
    return _conditional(binder, node) if name == "if" else _built_in(binder, name, node)


def _in_place(binder: ValueBinder, function: SqlFunction, node: exp.Anonymous) -> Node:
    """What a function of SQL stands for, with a call's arguments in place of its parameters."""
    if len(node.expressions) != len(function.parameters):
        takes = plural(len(function.parameters), "argument")
        message = f"{function.name} takes {takes}, not {len(node.expressions)}"
        raise binder.binding.error(message, node)
    try:
        body = read_value(function.sql)
    except QueryError as error:
        raise binder.binding.error(f"function {function.name} cannot be read", node, detail=str(error)) from None
    for part in body.walk():
        part.meta["start"] = place(node)
    return with_arguments(body, function.parameters, node.expressions)


def _grouping(binder: CallBinder, node: exp.Anonymous) -> Expression:
    """Which keys are null because a set of GROUPING SETS is without them: a bit each, the last argument's lowest."""
    assert binder.aggregates is not None
    bound = [binder.bind(argument) for argument in node.expressions]
    for argument, expression in zip(node.expressions, bound, strict=True):
        if not binder.aggregates.is_key(expression):
            hint = "give it keys of the GROUP BY beside it, not of another query's"
            raise binder.binding.error(f"{node.name} is asked about what is not grouped by", argument, hint=hint)
    bits = "".join(str(int(expression in binder.aggregates.nulled)) for expression in bound)
    return Literal(int(bits or "0", 2), pa.int64())


def _unnest(binder: CallBinder, node: exp.Anonymous) -> Expression:
    _plain_call(binder, node)
    if binder.unnests is None:
        hint = f"write it in FROM: FROM A, {node.name}(A.list) AS t(x)"
        raise binder.binding.error(f"{node.name} gives rows: it cannot stand in {binder.clause}", node, hint=hint)
    return binder.unnests.add(binder, node)


def _plain_call(binder: ValueBinder, node: exp.Anonymous) -> None:
    """A scalar function takes neither DISTINCT nor FILTER nor a star."""
    if any(node.args.get(key) for key in ("distinct", "filter", "order", "within")):
        raise binder.binding.error(f"{node.name} is no aggregate: it takes no DISTINCT, FILTER or ORDER BY", node)
    for argument in node.expressions:
        if isinstance(argument, exp.Star):
            raise binder.binding.error(f"{node.name}(*) has no meaning", argument, hint="only count takes *")


def _built_in(binder: ValueBinder, name: str, node: exp.Anonymous) -> Expression:
    nodes = list(node.expressions)
    if name in UNIT_FIRST and nodes:
        nodes[0] = _spelled(nodes[0])
    if name in ("generate_series", "range") and nodes and (count := months(nodes[-1])) is not None:
        name, nodes[-1] = f"{name}_by_months", exp.Literal.number(count)
    arguments = [binder.bind(a) for a in nodes]
    if name == "date_trunc" and arguments:
        arguments[0] = _unit(binder, arguments[0], nodes[0])
    if name in FORMATTED:
        arguments[1:2] = [_format(a, name == "to_char") for a in arguments[1:2]]
    return binder.call(name, arguments, nodes, node)


def _spelled(node: Node) -> Node:
    """A unit of time that is written as a bare word."""
    word = node.this.name if isinstance(node, exp.Column) and not node.args.get("table") else ""
    unit = word.lower().removeprefix("sql_tsi_")
    known = len(unit) > 2 and unit.removesuffix("s") in UNITS
    return exp.Literal(this=unit, is_string=True) if known else node


def _format(argument: Expression, shows: bool) -> Expression:
    written = argument.value if isinstance(argument, Literal) else None
    return Literal(directives(written, shows), pa.string()) if isinstance(written, str) else argument


def _unit(binder: ValueBinder, argument: Expression, node: Node) -> Expression:
    value: Any = argument.value if isinstance(argument, Literal) else None
    if not isinstance(value, str) or value.lower() not in TRUNCATION_UNITS:
        raise binder.binding.error(
            "date_trunc needs the name of a unit", node, hint="one of " + ", ".join(TRUNCATION_UNITS)
        )
    return Literal(value.lower(), pa.string())


def _conditional(binder: ValueBinder, node: exp.Anonymous) -> Expression:
    if len(node.expressions) != 3:
        raise binder.binding.error("if takes a condition and two values", node)
    condition, then, otherwise = node.expressions
    return binder.bind(exp.Case(ifs=[exp.If(this=condition, true=then)], default=otherwise))


def _aggregate(binder: CallBinder, node: exp.Anonymous, name: str) -> Expression:
    if binder.aggregates is None:
        hint = {
            "WHERE": "WHERE looks at tuples one by one; put conditions on groups in HAVING",
            "GROUP BY": "group by the columns, and aggregate in SELECT",
            "an aggregate": "aggregate in a sub-query first, then aggregate over it",
        }.get(binder.clause)
        raise binder.binding.error(f"aggregates are not allowed in {binder.clause}: {node.name}", node, hint=hint)
    return binder.aggregates.add(node, name, binder.inside("an aggregate"))


def _over(binder: CallBinder, node: exp.Anonymous, name: str) -> Expression:
    user = binder.binding.catalog.functions.get(node.name.lower())
    if name not in ONLY_OVER | AGGREGATES and not isinstance(user, AggregateFunction):
        raise binder.binding.error(f"{node.name} cannot stand before OVER", node, hint="it looks at one row only")
    if binder.overs is None:
        hint = "put it into a sub-query"
        if binder.clause in ("WHERE", "HAVING"):
            hint = "write its condition in QUALIFY, or in the WHERE of a query around this one"
        raise binder.binding.error(f"OVER is not allowed in {binder.clause}", node, hint=hint)
    return binder.overs.add(node, name, lambda: binder.inside("OVER", binder.aggregates))


def _unknown_function(binder: ValueBinder, node: exp.Anonymous) -> Exception:
    if node.name.lower() in ONLY_OVER:
        hint = f"for instance {node.name}(…) OVER (PARTITION BY k ORDER BY v)"
        return binder.binding.error(f"{node.name} needs OVER", node, hint=hint)
    if (instead := INSTEAD.get(node.name.lower())) is not None:
        return binder.binding.error(f"there is no function {node.name}", node, hint=instead)
    known = [n for n in SCALAR if n.isidentifier() and n not in UNWRITTEN]
    known += [*AGGREGATES, *BORROWED, *SYNONYMS, *binder.binding.catalog.functions]
    close = nearest(node.name, known, "functions", 0.75)
    hint = close if close and close.startswith("did") else "register your own with functions="
    return binder.binding.error(f"unknown function {node.name}", node, hint=hint)
