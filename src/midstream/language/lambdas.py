"""Functions of lists that take a function: `list_transform(l, x -> x + k)`, `list_filter`, `list_reduce` and their kin.

DuckDB computes them. The body is bound as any value is, so that names and types are checked, and then written as
DuckDB's SQL, in which the columns that it reads are arguments like any other.
"""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.borrowed import BORROWED, WRITTEN, borrow, columns_among, constant
from midstream.algebra.expressions import INFIX, Call, Case, Cast, Column, Expression, Literal, columns_of, walk
from midstream.algebra.types import has_elements, show_type
from midstream.errors import QueryError
from midstream.language.binding import Binding
from midstream.language.literals import TYPES as NAMED
from midstream.language.nodes import LIST_FUNCTIONS, Node
from midstream.language.scope import Scope, ScopeSource
from midstream.language.values import ValueBinder

_TYPES = "TINYINT SMALLINT INTEGER BIGINT FLOAT DOUBLE VARCHAR BOOLEAN DATE TIMESTAMP"

TYPES = {NAMED[name]: name for name in _TYPES.split()}


def bind_lambda(binder: ValueBinder, scope: Scope, node: exp.Anonymous) -> Call:
    """A call whose second argument is a function."""
    binding, form = binder.binding, LIST_FUNCTIONS[node.name.lower()]
    subject, function = binder.bind(node.expressions[0]), node.expressions[1]
    if not has_elements(subject.type):
        raise binding.error(f"{node.name} takes a list, not {show_type(subject.type)}", node)
    element, names = subject.type.value_type, [name.name for name in function.expressions]
    types = [element, element if "reduce" in form else pa.int64(), pa.int64()]
    columns = {n: Column(f"#p{i}", t) for i, (n, t) in enumerate(zip(names, types, strict=False))}
    if len(columns) < len(names):
        raise binding.error(f"{node.name} takes a function of at most three values", node)
    body = binder.within(Scope(binding, [ScopeSource("", columns)], outer=scope)).bind(function.this)
    own = {column.name: f"p{i}" for i, column in enumerate(columns.values())}
    read = sorted(columns_of(body) - own.keys())
    places = {**own, **{name: f"{{{i + 1}}}" for i, name in enumerate(read)}}
    with binding.at(node):
        written = form.replace("{f}", f"lambda {', '.join(own.values())}: {_sql(body, places, binding)}")
    given = {part.name: part for part in walk(body) if isinstance(part, Column)}
    return binder.borrowed(WRITTEN + written, [subject, *(given[name] for name in read)], node)


def _sql(value: Expression, names: dict[str, str], binding: Binding) -> str:
    """A value as SQL of DuckDB."""
    match value:
        case Column(name):
            return names[name]
        case Literal():
            return "NULL" if value.value is None else constant(value) or _refused(value)
        case Cast(inner, type_, attempt):
            kind = TYPES.get(type_) or _refused(value)
            return f"{'TRY_' if attempt else ''}CAST({_sql(inner, names, binding)} AS {kind})"
        case Case(branches, default):
            whens = (f"WHEN {_sql(c, names, binding)} THEN {_sql(v, names, binding)}" for c, v in branches)
            return f"CASE {' '.join(whens)} ELSE {_sql(default, names, binding)} END"
    assert isinstance(value, Call)
    texts = [_sql(argument, names, binding) for argument in value.args]
    if value.function in BORROWED:
        columns = [texts[i] for i in columns_among(value.args)]
        return re.sub(r"\bc(\d+)\b", lambda found: columns[int(found[1])], borrow(value.function, value.args).sql)
    if value.function in binding.catalog.functions:
        raise QueryError(f"{value.function} cannot be called within a function of elements")
    if value.function in INFIX:
        return "(" + f" {value.function.upper()} ".join(texts) + ")"
    match value.function:
        case "not" | "negate":
            return f"({'NOT ' if value.function == 'not' else '-'}{texts[0]})"
        case "is_null":
            return f"({texts[0]} IS NULL)"
        case "in":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        case "like" | "ilike" | "is_distinct_from" | "is_not_distinct_from":
            return f"({texts[0]} {value.function.replace('_', ' ').upper()} {texts[1]})"
    return f"{value.function}({', '.join(texts)})"


def _refused(value: Expression) -> str:
    raise QueryError(f"{value} cannot stand within a function of elements")


def is_lambda(node: Node) -> bool:
    """Whether a call is one of a list and a function."""
    return len(node.expressions) == 2 and isinstance(node.expressions[1], exp.Lambda)
