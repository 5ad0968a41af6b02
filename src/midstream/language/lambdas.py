"""Functions of lists that take a function: `list_transform(l, x -> x + k)`, `list_filter`, `list_reduce` and their kin.

DuckDB computes them. The body is bound as any value is, so that names and types are checked, and then written as
DuckDB's SQL, in which the columns that it reads are arguments like any other.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.borrowed import WRITTEN
from midstream.algebra.expressions import Call, Column, Expression, columns_of, walk
from midstream.algebra.list_functions import LIST_FUNCTIONS, body_in_sql
from midstream.algebra.types import has_elements, show_type
from midstream.language.literals import coerce
from midstream.language.nodes import Node
from midstream.language.scope import Scope, ScopeSource
from midstream.language.values import ValueBinder


def bind_lambda(binder: ValueBinder, scope: Scope, node: exp.Anonymous) -> Call:
    """A call of a list and a function of its elements; one that reduces the list may begin with a value."""
    binding, form = binder.binding, LIST_FUNCTIONS[node.name.lower()]
    given = [binder.bind(one) for one in node.expressions if not isinstance(one, exp.Lambda)]
    function, reduces = next(one for one in node.expressions if isinstance(one, exp.Lambda)), "reduce" in form
    subject, names = given[0], [name.name for name in function.expressions]
    if len(node.expressions) - len(given) > 1 or len(given) > 1 + reduces or len(names) > 2 + reduces:
        takes = f"a list, a function of at most {2 + reduces} values{' and a value to begin with' * reduces}"
        raise binding.error(f"{node.name} takes {takes}", node)
    if not has_elements(subject.type):
        raise binding.error(f"{node.name} takes a list, not {show_type(subject.type)}", node)
    element = subject.type.value_type

    def body_of(begun: pa.DataType) -> tuple[Expression, dict[str, str]]:
        types = [begun, element, pa.int64()] if reduces else [element, pa.int64()]
        columns = {n: Column(f"#p{i}", t) for i, (n, t) in enumerate(zip(names, types, strict=False), around(scope))}
        body = binder.within(Scope(binding, [ScopeSource("", columns)], outer=scope)).bind(function.this)
        return body, {column.name: column.name[1:] for column in columns.values()}

    body, own = body_of(given[-1].type if len(given) > 1 else element)
    if len(given) > 1 and body.type != given[1].type:
        given[1] = coerce(given[1], body.type)
        body, own = body_of(body.type)
        if body.type != given[1].type:
            shown = f"{show_type(given[1].type)} and {show_type(body.type)}"
            raise binding.error(f"{node.name} begins and goes on with other types: {shown}", node)
    read = sorted(columns_of(body) - own.keys())
    places = {**own, **{name: f"{{{i + len(given)}}}" for i, name in enumerate(read)}}
    with binding.at(node):
        written = form.replace(
            "{f}", f"lambda {', '.join(own.values())}: {body_in_sql(body, places, binding.catalog.functions)}"
        )
    written = written[:-1] + ", {1})" if len(given) > 1 else written
    columns = {part.name: part for part in walk(body) if isinstance(part, Column)}
    return binder.borrowed(WRITTEN + written, [*given, *(columns[name] for name in read)], node)


def around(scope: Scope | None) -> int:
    """How many values the functions around this one have, so that each has a name of its own."""
    if scope is None:
        return 0
    return sum(len(source.columns) for source in scope.sources if not source.name) + around(scope.outer)


def is_lambda(node: Node) -> bool:
    """Whether a call is one of a list and a function."""
    return any(isinstance(one, exp.Lambda) for one in node.expressions)
