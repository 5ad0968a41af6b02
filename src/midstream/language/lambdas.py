"""Functions of lists and maps that take a function: `list_transform(l, x -> x + k)`, `map_filter` and their kin.

DuckDB computes them; to it a map is the list of its entries, and two lists are one of pairs. The body is bound as any
value is, so that names and types are checked, and then written as DuckDB's SQL, in which the columns that it reads are
arguments like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from midstream.algebra.borrowed import WRITTEN
from midstream.algebra.expressions import Column, Expression, columns_of, walk
from midstream.algebra.list_functions import LIST_FUNCTIONS, body_in_sql, form_of, parts_of
from midstream.algebra.types import show_type
from midstream.language.literals import coerce
from midstream.language.nodes import Node, at_same
from midstream.language.scope import Scope, ScopeSource
from midstream.language.values import ValueBinder


def bind_lambda(binder: ValueBinder, scope: Scope, node: exp.Anonymous) -> Expression:
    """A call of a list and a function of its elements; one that reduces the list may begin with a value."""
    binding, name, first = binder.binding, node.name.lower(), around(scope)
    if len(node.expressions) > 2 and all(isinstance(one, exp.Lambda) for one in node.expressions[-2:]):
        return binder.bind(at_same(_of_two_functions(name, node.expressions), node))
    given = [binder.bind(one) for one in node.expressions if not isinstance(one, exp.Lambda)]
    function, zips = next(one for one in node.expressions if isinstance(one, exp.Lambda)), name == "zip_with"
    names, reduces = [name.name for name in function.expressions], "reduce" in LIST_FUNCTIONS[name]
    begins, most = reduces and len(given) > 1, 1 + (reduces or zips)
    fits = 1 + (name == "array_sort") <= len(names) <= 2 + reduces and 1 + zips <= len(given) <= most
    if len(node.expressions) - len(given) > 1 or not fits:
        takes = f"a list, a function of at most {2 + reduces} values{' and a value to begin with' * reduces}"
        raise binding.error(f"{node.name} takes {takes}", node)
    begins_first = begins and not parts_of([given[0].type])
    given = given[::-1] if begins_first else given
    sides = [given[0], *(given[1:] if zips else given * (name == "array_sort"))]
    form, parts = form_of(name, given[0].type), parts_of([one.type for one in sides])
    if form is None or not parts:
        raise binding.error(f"{node.name} takes a list or a map, not {show_type(given[0].type)}", node)

    def body_of(begun: pa.DataType) -> tuple[Expression, dict[str, str]]:
        values = [(f"p{first}", begun)] * reduces + [(f"p{first + reduces}{part}", type_) for part, type_ in parts]
        values += [(f"p{first + reduces + 1}", pa.int64())] * (len(parts) == 1)
        columns = {n: Column(f"#p{i}", t) for i, (n, (_, t)) in enumerate(zip(names, values, strict=False), first)}
        body = binder.within(Scope(binding, [ScopeSource("", columns)], outer=scope)).bind(function.this)
        return body, {c.name: sql for c, (sql, _) in zip(columns.values(), values, strict=False)}

    body, own = body_of(given[1].type if begins else parts[0][1])
    if begins and body.type != given[1].type:
        given[1] = coerce(given[1], body.type)
        body, own = body_of(body.type)
        if body.type != given[1].type:
            shown = f"{show_type(given[1].type)} and {show_type(body.type)}"
            raise binding.error(f"{node.name} begins and goes on with other types: {shown}", node)
    read = sorted(columns_of(body) - own.keys())
    places = {**own, **{name: f"{{{i + len(given)}}}" for i, name in enumerate(read)}}
    with binding.at(node):
        text = body_in_sql(body, places, binding.catalog.functions)
    taken = ", ".join(dict.fromkeys(re.split(r"\W", sql)[0] for sql in own.values()))
    written = form.replace("{f}", "lambda {p}: {b}").replace("{p}", taken).replace("{b}", text)
    written = written[:-1] + ", {1})" if begins else written
    written = f"CASE WHEN {{0}} IS NULL THEN {{1}} ELSE {written} END" if begins_first else written
    columns = {part.name: part for part in walk(body) if isinstance(part, Column)}
    return binder.borrowed(WRITTEN + written, [*given, *(columns[name] for name in read)], node)


def _of_two_functions(name: str, given: Sequence[Node]) -> Node:
    """A list that is reduced, with a last step; a map whose keys and values are made by a function each."""
    if "reduce" in LIST_FUNCTIONS[name]:
        listed = exp.Anonymous(this="list_value", expressions=[exp.Anonymous(this=name, expressions=given[:-1])])
        last = exp.Anonymous(this="list_transform", expressions=[listed, given[-1]])
        return exp.Anonymous(this="list_first", expressions=[last])
    sides = [exp.Anonymous(this=f"map_{part}", expressions=given[:-2]) for part in ("keys", "values")]
    made = [exp.Anonymous(this="zip_with", expressions=[*sides, function]) for function in given[-2:]]
    return exp.Anonymous(this="map", expressions=made)


def around(scope: Scope | None) -> int:
    """How many values the functions around this one have, so that each has a name of its own."""
    if scope is None:
        return 0
    return sum(len(source.columns) for source in scope.sources if not source.name) + around(scope.outer)


def is_lambda(node: Node) -> bool:
    """Whether a call is one of a list and a function."""
    return any(isinstance(one, exp.Lambda) for one in node.expressions)
