"""Aggregates whose meaning is DuckDB's: a name, and the SQL that it stands for.

`{a}`, `{b}`, `{c}` are arguments, `{distinct}` and `{order}` what may be said about the rows, `{then}` what their order
is behind another. The rows of a group come
in the order of all that the aggregate looks at, and an order that is asked for is completed by its arguments, so a
value never depends on how the rows came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.types as kind

from midstream.algebra.borrowed import candidates, columns_among, constant, json_type
from midstream.algebra.borrowed_forms import AMOUNT
from midstream.algebra.database import column_name, fitted, measured, run, type_of
from midstream.algebra.expressions import TRUE, AggregateCall, Expression, filled
from midstream.algebra.functions import AGGREGATE
from midstream.algebra.over import OrderKey
from midstream.algebra.signatures import refuse
from midstream.algebra.types import is_nested
from midstream.errors import QueryError


def _one(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"{name}({{distinct}}{{a}})",) for name in names.split()}


def _two(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"{name}({{a}}, {{b}})",) for name in names.split()}


_KNOWN = "FILTER (WHERE {a} IS NOT NULL)"
_PAIRS = "list({'key': {a}, 'value': {b}} ORDER BY {a}{then})"
_NEWEST = (
    f"CASE WHEN count(*) > 0 THEN map_from_entries(list_transform(list_filter(list_zip({_PAIRS}, {_PAIRS}[2:]),"
    " lambda p: p[2] IS NULL OR p[2].key IS DISTINCT FROM p[1].key), lambda p: p[1])) END"
)
"""A map of keys and the last value of each."""

_TOP = "(list({'sort_col': {a}, 'col0': {b}} ORDER BY {a} DESC{then}) FILTER (WHERE {a} IS NOT NULL))[1:{c}]"
_REGRESSIONS = "regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy"

_BY_TIME = "list({a}{order})"
_FIRST, _LAST = "any_value({a}{order})", f"last({{a}}{{order}}) {_KNOWN}"


def _several(part: str) -> tuple[str, ...]:
    return (
        f"coalesce({_BY_TIME} {_KNOWN}, [])[{part}]",
        f"(CASE WHEN bool_and({{c}}) THEN coalesce({_BY_TIME} {_KNOWN}, []) ELSE {_BY_TIME} END)[{part}]",
    )


BORROWED_AGGREGATES: Mapping[str, tuple[str, ...]] = {
    **_one("median mad skewness kurtosis kurtosis_pop entropy product bit_and bit_or bit_xor histogram sem geomean"),
    **_two(f"corr covar_pop covar_samp weighted_avg {_REGRESSIONS}"),
    **{f"nested_{n}": (f"{n}({{a}})", f"{n}({{a}}, {{b}} + 0)") for n in ("min", "max")},
    "nested_sum": ("to_microseconds(sum({distinct}epoch_us({a}))::BIGINT)",),
    "nested_avg": ("avg({distinct}{a})",),
    **{n: (f"{n}({{a}}, {{b}}{{order}})", f"{n}({{a}}, {{b}}, {{c}}{{order}})") for n in ("arg_min", "arg_max")},
    "mode": ("mode({distinct}{a}{order})",),
    "quantile_cont": ("quantile_cont({distinct}{a}, {b}{order})",),
    "quantile_disc": (
        "quantile_disc({distinct}{a}, {b}{order})",
        "quantile_disc({distinct}{a}, {b}{order}) FILTER (WHERE {c} IS NOT NULL)",
    ),
    "first": ("first({distinct}{a}{order})", f"CASE WHEN bool_and({{b}}) THEN {_FIRST} ELSE first({{a}}{{order}}) END"),
    "last": ("last({distinct}{a}{order})", f"CASE WHEN bool_and({{b}}) THEN {_LAST} ELSE last({{a}}{{order}}) END"),
    "any_value": (
        _FIRST,
        *_several("1:{b} + 0"),
        f"CASE WHEN bool_and({{b}}) THEN {_FIRST} ELSE first({{a}}{{order}}) END",
    ),
    "last_known": (
        _LAST,
        *_several("-({b} + 0):"),
        f"CASE WHEN bool_and({{b}}) THEN {_LAST} ELSE last({{a}}{{order}}) END",
    ),
    "array_agg": ("list({distinct}{a}{order})",),
    "collect_list": (f"coalesce(list({{distinct}}{{a}}{{order}}) {_KNOWN}, [])",),
    "collect_set": (f"coalesce(list(DISTINCT {{a}} ORDER BY {{a}}) {_KNOWN}, [])",),
    "string_agg": (
        "string_agg({distinct}{a}{order})",
        "string_agg({distinct}{a}, {b}{order})",
        f"array_to_string(list_transform(list({{distinct}}{{'a': {{a}}, 'b': {{b}}}}{{order}}) {_KNOWN},"
        " lambda x, i: CASE WHEN i = 1 THEN x.a ELSE coalesce(x.b, '') || x.a END), '')",
    ),
    "json_group_array": ("to_json(list({distinct}{a}{order}){json})",),
    "json_group_object": (f"to_json({_NEWEST})",),
    "topk": (f"(list({{a}} ORDER BY {{a}} DESC) {_KNOWN})[1:{{b}}]", _TOP),
    "topkdistinct": (f"(list(DISTINCT {{a}} ORDER BY {{a}} DESC) {_KNOWN})[1:{{b}}]",),
    "count_distinct": ("count(DISTINCT {a})",),
    "sum0": ("coalesce(sum({a}), 0)",),
    "array_concat_agg": ("flatten(list({a}{order}))",),
    "only_value": ("CASE WHEN count(*) > 1 THEN error('a sub-query gives more than one row') ELSE first({a}) END",),
    "map_agg": (_NEWEST,),
    "collect_map": (f"list_reduce(list({{a}}{{order}}) {_KNOWN}, lambda x, y: map_concat(x, y))",),
    "attr": ("CASE WHEN count(DISTINCT {a}) = 1 AND count({a}) = count(*) THEN any_value({a}) END",),
}
"""Every aggregate that DuckDB computes."""

GIVE_JSON = frozenset({"json_group_array", "json_group_object"})

GIVE_ONE = frozenset({"first", "last", "any_value", "last_known", "only_value"})
"""Aggregates that give one of their values."""

IN_ORDER = frozenset(
    {"first", "last", "any_value", "last_known", "array_agg", "collect_list", "string_agg", "arg_min", "arg_max"}
    | {"array_concat_agg", "json_group_array", "json_group_object", "map_agg", "collect_map", "topk"}
)
"""Aggregates whose value depends on the order of the rows."""

BY_PLACE = re.compile(r"(list|first|last)\(\{(\d+)\}(?: ORDER BY (.+))?\)")
"""Forms that need no database: a column's values in an order, or the first or last of them."""

PLAIN = frozenset({pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")})
"""Types that a database leaves as they are."""


EXACT = {"approx_count_distinct": "count", "approx_distinct": "count"}
"""Approximations that are exact here, of distinct values."""

KNOWN = {"first": "any_value", "last": "last_known"}
"""What IGNORE NULLS makes of an aggregate."""

CONDITIONS = {"bool_and": "min", "bool_or": "max", "count_if": "count"}
"""Aggregates of conditions: false is less than true."""

AGGREGATES = frozenset({*AGGREGATE, *BORROWED_AGGREGATES, *CONDITIONS, *EXACT})
"""Every aggregate of the language."""


def overloaded(function: str, types: Sequence[pa.DataType]) -> str:
    """What an aggregate of the language is called where its arguments are other than its own."""
    if function in ("min", "max"):
        other = len(types) > 1 or any(is_nested(t) or kind.is_interval(t) for t in types)
    else:
        other = function in ("sum", "avg") and any(kind.is_duration(t) or kind.is_interval(t) for t in types)
    return f"nested_{function}" if other else function


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
    if function.startswith("nested_"):
        texts |= {a: AMOUNT.replace("{0}", texts[a]) for a in arguments if kind.is_interval(a.type)}
    keys = [key.sql(texts[key.key]) for key in order] + [
        texts[a]
        for a in arguments[:1]
        if (order or distinct) and not constant(a) and all(key.key != a for key in order)
    ]
    problem = f"it takes {_counts(BORROWED_AGGREGATES[function])} arguments"
    for template in BORROWED_AGGREGATES[function]:
        if {letter for letter in "abc" if f"{{{letter}}}" in template} != set("abc"[: len(arguments)]):
            continue
        form = template.replace("{order}", f" ORDER BY {', '.join(keys)}" if keys else "")
        form = form.replace("{then}", "".join(f", {key}" for key in keys))
        form = form.replace("{distinct}", "DISTINCT " if distinct else "")
        known = json_type(arguments[-1]) if function in GIVE_JSON else ""
        form = form.replace("{json}", f"::{known}[]" if known else "")
        form = form.replace("'value': {b}", f"'value': {{b}}::{known}" if known else "'value': {b}")
        for letter, argument in zip("abc", arguments, strict=False):
            form = form.replace(f"{{{letter}}}", texts[argument])
        try:
            found = type_of_form(form, tuple(c.type for c in columns))
        except QueryError as error:
            problem = candidates(error.message)
            continue
        return AggregateCall(function, tuple(columns), found, form=measured(form, found))
    raise refuse(function.removeprefix("nested_"), tuple(a.type for a in arguments), problem)


def _counts(templates: Sequence[str]) -> str:
    """How many arguments the templates of an aggregate take."""
    return " or ".join(sorted({str(sum(f"{{{letter}}}" in template for letter in "abc")) for template in templates}))


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
    found = run(f"SELECT {in_sql(call.form, len(columns))} AS r FROM given", rows, str(call)).column("r")
    return fitted(found, call.type, str(call))
