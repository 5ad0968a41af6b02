"""Aggregates whose meaning is DuckDB's: a name, and the SQL that it stands for.

`{a}`, `{b}`, `{c}` are arguments, `{distinct}` and `{order}` what may be said about the rows. The rows of a group come
in the order of all that the aggregate looks at, and an order that is asked for is completed by its arguments, so a
value never depends on how the rows came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from midstream.algebra.borrowed import candidates, columns_among, constant
from midstream.algebra.database import column_name, run, type_of
from midstream.algebra.expressions import TRUE, AggregateCall, Expression, filled
from midstream.algebra.over import OrderKey
from midstream.algebra.signatures import refuse
from midstream.errors import QueryError


def _one(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"{name}({{distinct}}{{a}})",) for name in names.split()}


def _two(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"{name}({{a}}, {{b}})",) for name in names.split()}


_KNOWN = "FILTER (WHERE {a} IS NOT NULL)"
_REGRESSIONS = "regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy"

BORROWED_AGGREGATES: Mapping[str, tuple[str, ...]] = {
    **_one("median mad skewness kurtosis kurtosis_pop entropy product bit_and bit_or bit_xor histogram sem geomean"),
    **_two(f"corr covar_pop covar_samp weighted_avg {_REGRESSIONS}"),
    "nested_min": ("min({a})",),
    "nested_max": ("max({a})",),
    **{n: (f"{n}({{a}}, {{b}}{{order}})", f"{n}({{a}}, {{b}}, {{c}}{{order}})") for n in ("arg_min", "arg_max")},
    "mode": ("mode({distinct}{a}{order})",),
    "quantile_cont": ("quantile_cont({distinct}{a}, {b}{order})",),
    "quantile_disc": ("quantile_disc({distinct}{a}, {b}{order})",),
    "first": ("first({distinct}{a}{order})",),
    "last": ("last({distinct}{a}{order})",),
    "any_value": ("any_value({a}{order})",),
    "last_known": (f"last({{a}}{{order}}) {_KNOWN}",),
    "array_agg": ("list({distinct}{a}{order})",),
    "collect_list": (f"coalesce(list({{distinct}}{{a}}{{order}}) {_KNOWN}, [])",),
    "collect_set": (f"coalesce(list(DISTINCT {{a}} ORDER BY {{a}}) {_KNOWN}, [])",),
    "string_agg": ("string_agg({distinct}{a}{order})", "string_agg({distinct}{a}, {b}{order})"),
    "json_group_array": ("to_json(list({distinct}{a}{order}))",),
    "json_group_object": ("to_json(map(list({a} ORDER BY {a}, {b}), list({b} ORDER BY {a}, {b})))",),
    "topk": (f"(list({{a}} ORDER BY {{a}} DESC) {_KNOWN})[1:{{b}}]",),
    "topkdistinct": (f"(list(DISTINCT {{a}} ORDER BY {{a}} DESC) {_KNOWN})[1:{{b}}]",),
    "count_distinct": ("count(DISTINCT {a})",),
    "sum0": ("coalesce(sum({a}), 0)",),
    "array_concat_agg": ("flatten(list({a}{order}))",),
    "only_value": ("CASE WHEN count(*) > 1 THEN error('a sub-query gives more than one row') ELSE first({a}) END",),
    "map_agg": ("map(list({a} ORDER BY {a}, {b}), list({b} ORDER BY {a}, {b}))",),
}
"""Every aggregate that DuckDB computes."""

IN_ORDER = frozenset(
    {"first", "last", "any_value", "last_known", "array_agg", "collect_list", "string_agg", "arg_min", "arg_max"}
    | {"array_concat_agg"}
)
"""Aggregates whose value depends on the order of the rows."""

BY_PLACE = re.compile(r"(list|first|last)\(\{(\d+)\}(?: ORDER BY (.+))?\)")
"""Forms that need no database: a column's values in an order, or the first or last of them."""

PLAIN = frozenset({pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")})
"""Types that a database leaves as they are."""


def borrow_aggregate(
    function: str, arguments: Sequence[Expression], order: Sequence[OrderKey], distinct: bool
) -> AggregateCall:
    """An aggregate call over its arguments that are no constants; a QueryError if it has no meaning for them."""
    if distinct and any(key.key not in arguments for key in order):
        raise QueryError(f"{function}(DISTINCT …) can only be ordered by its argument")
    order = [key for key in order if not constant(key.key)]  # which orders nothing
    columns = list(dict.fromkeys([*(arguments[i] for i in columns_among(arguments)), *(key.key for key in order)]))
    columns = columns or [TRUE]  # of constants alone, there are as many as there are rows
    texts = {a: constant(a) or f"{{{columns.index(a)}}}" for a in (*arguments, *(key.key for key in order))}
    keys = [key.sql(texts[key.key]) for key in order] + [
        texts[a]
        for a in arguments[:1]
        if (order or distinct) and not constant(a) and all(key.key != a for key in order)
    ]
    problem = "it takes other arguments"
    for template in BORROWED_AGGREGATES[function]:
        if {letter for letter in "abc" if f"{{{letter}}}" in template} != set("abc"[: len(arguments)]):
            continue
        form = template.replace("{order}", f" ORDER BY {', '.join(keys)}" if keys else "")
        form = form.replace("{distinct}", "DISTINCT " if distinct else "")
        for letter, argument in zip("abc", arguments, strict=False):
            form = form.replace(f"{{{letter}}}", texts[argument])
        try:
            kind = type_of_form(form, tuple(c.type for c in columns))
        except QueryError as error:
            problem = candidates(error.message)
            continue
        return AggregateCall(function, tuple(columns), kind, form=form)
    raise refuse(function, tuple(a.type for a in arguments), problem)


def type_of_form(form: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of an aggregate's form over columns of these types; a QueryError if it has no meaning."""
    placed = BY_PLACE.fullmatch(form)
    if placed is None or (value := types[int(placed[2])]) not in PLAIN:
        return type_of(in_sql(form, len(types)), types)
    return pa.list_(value) if placed[1] == "list" else value


def in_sql(form: str, count: int) -> str:
    """The form of an aggregate over columns as they are called in SQL."""
    return filled(form, [column_name(i) for i in range(count)])


def aggregate_of(call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
    """The aggregate of all rows: one value."""
    names = [column_name(i) for i in range(len(columns))]
    rows = pa.table(list(columns), names=names)
    return run(f"SELECT {in_sql(call.form, len(columns))} AS r FROM given", rows, str(call)).column("r").cast(call.type)
