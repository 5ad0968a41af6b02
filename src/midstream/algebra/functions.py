"""The functions of the language: their names and result types, nothing about how they compute.

`SCALAR` and `AGGREGATE` map a name to a rule that takes argument types and gives the casts to apply and the result
type, or refuses. Both evaluators (the oracle's and the engine's) must know every name listed here; a test holds them
to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as kind

from midstream.algebra.signatures import (
    Rule,
    Signature,
    Types,
    alike,
    anything,
    arithmetic,
    as_double,
    as_wider,
    clock,
    comparison,
    concatenation,
    counted,
    fixed,
    joining,
    logic,
    membership,
    negation,
    number,
    refuse,
    require_condition,
    truncation,
    typed,
)
from midstream.algebra.types import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TEXT,
    as_number,
    common_type,
    is_nested,
    is_number,
    plain,
    scale_of,
    wide_decimal,
)
from midstream.errors import QueryError

__all__ = [
    "AGGREGATE",
    "SCALAR",
    "SYNONYMS",
    "TRUNCATION_UNITS",
    "Rule",
    "Signature",
    "Types",
    "common_type",
    "plain",
    "require_condition",
]

TRUNCATION_UNITS = (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
"""What `date_trunc` cuts to."""

SCALAR: Mapping[str, Rule] = {
    **{name: arithmetic(name) for name in ("+", "-", "*", "/", "%")},
    "negate": negation,
    "||": joining,
    **{name: comparison(name) for name in ("=", "<>", "<", "<=", ">", ">=")},
    "is_distinct_from": comparison("IS DISTINCT FROM"),
    "is_not_distinct_from": comparison("IS NOT DISTINCT FROM"),
    "and": logic("and", None),
    "or": logic("or", None),
    "not": logic("not", 1),
    "is_null": anything("IS NULL", BOOLEAN),
    "in": membership,
    "like": fixed("LIKE", (TEXT, TEXT), BOOLEAN),
    "ilike": fixed("ILIKE", (TEXT, TEXT), BOOLEAN),
    "coalesce": alike("coalesce", 1, None),
    "nullif": alike("nullif", 2, 2),
    "greatest": alike("greatest", 1, None),
    "least": alike("least", 1, None),
    "abs": number("abs", lambda t: t),
    "ceil": number("ceil", as_wider),
    "floor": number("floor", as_wider),
    "round": number("round", as_wider, most=2),
    "sign": number("sign", as_double),
    **{name: fixed(name, (DOUBLE,), DOUBLE) for name in ("sqrt", "exp", "ln", "log10")},
    "power": fixed("power", (DOUBLE, DOUBLE), DOUBLE),
    **{name: fixed(name, (TEXT,), TEXT) for name in ("upper", "lower", "trim", "ltrim", "rtrim", "reverse")},
    "length": fixed("length", (TEXT,), INTEGER),
    "substring": fixed("substring", (TEXT, INTEGER, INTEGER), TEXT, least=2),
    "replace": fixed("replace", (TEXT, TEXT, TEXT), TEXT),
    "concat": concatenation,
    **{name: fixed(name, (TEXT, TEXT), BOOLEAN) for name in ("starts_with", "ends_with", "contains")},
    "regexp_matches": fixed("regexp_matches", (TEXT, TEXT), BOOLEAN),
    "left": fixed("left", (TEXT, INTEGER), TEXT),
    "right": fixed("right", (TEXT, INTEGER), TEXT),
    **{name: clock(name, INTEGER) for name in ("year", "month", "day", "dayofweek", "dayofyear")},
    **{name: clock(name, INTEGER, of_dates=False) for name in ("hour", "minute", "second")},
    "epoch": clock("epoch", DOUBLE, of_dates=False),
    "epoch_ms": clock("epoch_ms", INTEGER, of_dates=False),
    "date_trunc": truncation,
}
"""Every scalar function and operator, by the name it has in a `Call`."""


def _count(types: Types) -> Signature:
    if len(types) > 1:
        raise QueryError(f"count takes one argument, not {len(types)}", hint="write count(*) to count tuples")
    return Signature(typed(types), INTEGER)


def _or_integer(type_: pa.DataType) -> pa.DataType:
    """The number that a value is; a null without a type is an integer."""
    return INTEGER if kind.is_null(type_) else as_number(type_)


def _sum(types: Types) -> Signature:
    counted("sum", types, 1, 1)
    type_ = _or_integer(types[0])
    if kind.is_decimal(type_):
        wide = wide_decimal(scale_of(type_))
        return Signature((wide,), wide)
    if not is_number(type_):
        raise refuse("sum", types, "it takes a number")
    wide = DOUBLE if kind.is_floating(type_) else INTEGER
    return Signature((wide,), wide)


def _moment(function: str) -> Rule:
    def rule(types: Types) -> Signature:
        counted(function, types, 1, 1)
        if not is_number(_or_integer(types[0])):
            raise refuse(function, types, "it takes a number")
        # What comes of integers comes of their exact sums, so they stay integers on the way in.
        exact = kind.is_integer(_or_integer(types[0]))
        return Signature((pa.int64() if exact else DOUBLE,), DOUBLE)

    return rule


def _extreme(function: str) -> Rule:
    def rule(types: Types) -> Signature:
        counted(function, types, 1, 1)
        if is_nested(types[0]) or kind.is_null(types[0]) or kind.is_interval(types[0]):
            raise refuse(function, types, "it takes values that have an order")
        return Signature((plain(types[0]),), plain(types[0]))

    return rule


AGGREGATE: Mapping[str, Rule] = {
    "count": _count,
    "sum": _sum,
    **{name: _moment(name) for name in ("avg", "stddev", "stddev_pop", "variance", "var_pop")},
    "min": _extreme("min"),
    "max": _extreme("max"),
}
"""Every built-in aggregate; `count` without an argument is `count(*)`."""

SYNONYMS: Mapping[str, str] = {
    "ceiling": "ceil",
    "pow": "power",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "approx_median": "median",
    "mean": "avg",
    **dict.fromkeys(("stddev_samp", "stddev_sample", "std"), "stddev"),
    "try_sum": "sum",
    "try_avg": "avg",
    "signum": "sign",
    "positive": "as_value",
    "div": "integer_division",
    "format_string": "printf",
    "translate3": "translate",
    "collect": "collect_list",
    "sum_list": "list_sum",
    "array_average": "list_avg",
    "arrays_zip": "list_zip",
    "array_join": "array_to_string",
    "timestamp_seconds": "to_timestamp",
    "date_from_unix_date": "from_days",
    "unix_millis": "epoch_ms",
    "unix_micros": "epoch_us",
    **dict.fromkeys(("unix_seconds", "to_unix_timestamp"), "unix_timestamp"),
    "day_of_month": "day",
    "day_of_year": "dayofyear",
    "day_of_week": "isodow",
    "week_of_year": "week",
    "to_jsonb": "to_json",
    "json_objectagg": "json_group_object",
    "map_from_key_values": "map",
    "map_access": "map_extract_value",
    "map_cat": "map_concat",
    "map_length": "cardinality",
    "map_contains_key": "map_contains",
    "split_to_map": "str_to_map",
    "var_samp": "variance",
    "dow": "dayofweek",
    "doy": "dayofyear",
    **dict.fromkeys(("regexp_like", "rlike", "regexp"), "regexp_matches"),
    "list": "array_agg",
    **dict.fromkeys(("listagg", "group_concat"), "string_agg"),
    **dict.fromkeys(("max_by", "argmax"), "arg_max"),
    **dict.fromkeys(("min_by", "argmin"), "arg_min"),
    **dict.fromkeys(("percentile_cont", "percentile", "percentile_exact"), "quantile_cont"),
    **dict.fromkeys(("percentile_disc", "percentile_approx", "approx_percentile", "approx_quantile"), "quantile_disc"),
    "quantile": "quantile_disc",
    **dict.fromkeys(("every", "logical_and"), "bool_and"),
    **dict.fromkeys(("any", "some", "logical_or"), "bool_or"),
    "first_value": "first",
    "last_value": "last",
    "arbitrary": "any_value",
    "countif": "count_if",
    "covar": "covar_samp",
    **dict.fromkeys(("json_agg", "jsonb_agg"), "json_group_array"),
    **dict.fromkeys(("json_object_agg", "jsonb_object_agg"), "json_group_object"),
    **dict.fromkeys(("json_build_object", "jsonb_build_object"), "json_object"),
    **dict.fromkeys(("json_build_array", "jsonb_build_array"), "json_array"),
    "jsonb_typeof": "json_typeof",
    "jsonb_array_length": "json_array_length",
    "json_arrayagg": "json_group_array",
    "latest_by_offset": "last_known",
    "earliest_by_offset": "any_value",
    "correlation": "corr",
    "arrays_overlap": "list_has_any",
    "array_upper": "array_length",
    "map_union": "map_concat",
    "sequence": "generate_series",
    "as_map": "map",
    "struct": "named_struct",
    **dict.fromkeys(("charindex", "position"), "locate"),
    "date_bin": "time_bucket",
    "timeadd": "timestampadd",
    "timesub": "timestampsub",
    **dict.fromkeys(("format_date", "format_time"), "to_char"),
    "parse_date": "to_date",
    "shiftleft": "shift_left",
    "shiftright": "shift_right",
    "convert_from": "decode",
    "convert_to": "encode",
    "jsonb_extract_path_text": "json_extract_path_text",
    "jsonb_extract_path": "json_extract_path",
    **dict.fromkeys(("ucase", "uppercase"), "upper"),
    **dict.fromkeys(("lcase", "lowercase"), "lower"),
    **dict.fromkeys(("ifnull", "nvl"), "coalesce"),
    **dict.fromkeys(("iff", "iif"), "if"),
    "mod": "%",
    "instr": "strpos",
    "btrim": "trim",
    **dict.fromkeys(("startswith", "prefix"), "starts_with"),
    "suffix": "ends_with",
    **dict.fromkeys(("list_aggr", "array_aggregate", "array_aggr"), "list_aggregate"),
    "endswith": "ends_with",
    "char": "chr",
    "truncate": "trunc",
    **dict.fromkeys(("split", "str_split", "string_to_array"), "string_split"),
    "regexp_substr": "regexp_extract",
    **dict.fromkeys(("datepart", "extract_part"), "date_part"),
    "dayofmonth": "day",
    **dict.fromkeys(("datediff", "timestampdiff"), "date_diff"),
    "datesub": "date_sub",
    "datetrunc": "date_trunc",
    **dict.fromkeys(("date_format", "format_timestamp"), "to_char"),
    "parse_timestamp": "to_timestamp",
    "to_unixtime": "epoch",
    "json_query": "json_extract",
    **dict.fromkeys(("json_extract_scalar", "get_json_object"), "json_extract_string"),
    **dict.fromkeys(("array_size", "size"), "array_length"),
    **dict.fromkeys(("array_contains", "array_has", "list_has"), "list_contains"),
    **dict.fromkeys(("array_sort", "sort_array"), "list_sort"),
    **dict.fromkeys(("array_concat", "array_cat", "list_cat"), "list_concat"),
    **{f"array_{verb}": f"list_{verb}" for verb in ("append", "prepend", "distinct", "position", "reverse", "slice")},
    **{f"array_{verb}": f"list_{verb}" for verb in ("min", "max", "sum", "intersect", "extract")},
    "array": "list_value",
    "struct_pack": "named_struct",
    "map_from_arrays": "map",
    **dict.fromkeys(("element_at", "try_element_at", "list_element", "array_element"), "subscript"),
    **{f"array_{verb}": f"list_{verb}" for verb in ("unique", "reverse_sort", "where", "zip")},
    **{f"array_{verb}": f"list_{verb}" for verb in ("has_all", "has_any", "resize", "select", "value", "any_value")},
    **dict.fromkeys(("array_push_back", "list_push_back"), "list_append"),
    **dict.fromkeys(("array_push_front", "list_push_front"), "list_prepend"),
    **dict.fromkeys(("array_indexof", "list_indexof"), "list_position"),
    **dict.fromkeys(("list_pack", "make_array", "make_list"), "list_value"),
    **dict.fromkeys(("row_to_json", "array_to_json"), "to_json"),
    **dict.fromkeys(("fsum", "kahan_sum", "sumkahan"), "sum"),
    **dict.fromkeys(("empty", "array_empty", "list_empty"), "is_empty"),
    **dict.fromkeys(("list_to_string", "list_join"), "array_to_string"),
    "string_to_list": "string_split",
    "str_split_regex": "string_split_regex",
    "favg": "avg",
    "var": "variance",
    "wavg": "weighted_avg",
    "geometric_mean": "geomean",
    "greatest_common_divisor": "gcd",
    "least_common_multiple": "lcm",
    "roundbankers": "round_even",
    "from_hex": "unhex",
    "from_binary": "unbin",
    "to_binary": "bin",
    "substr_index": "substring_index",
    "grade_up": "list_grade_up",
}
"""Other names for the same functions."""

UNWRITTEN = frozenset(
    {"negate", "and", "or", "not", "is_null", "in", "like", "ilike", "is_distinct_from", "is_not_distinct_from"}
)
"""Names of operators that cannot be called by name."""

UNIT_FIRST = frozenset({"date_diff", "dateadd", "date_sub", "timestampadd", "timestampsub", "date_trunc", "date_part"})
"""Functions whose first argument may be the name of a unit of time."""

ROW_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")

COMPARED = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "is_distinct_from", "is_not_distinct_from"})

CALCULATED = frozenset({"+", "-", "*", "/", "%"})

READS_LITERALS = COMPARED | CALCULATED | {"nullif", "greatest", "least", "coalesce"}
"""Where a string literal beside a date, a timestamp or a number is read as one."""

FIELDS = {"DOW": "dayofweek", "DOY": "dayofyear"}
"""Fields of times that are called otherwise in EXTRACT."""

NOW = frozenset({"now", "current_timestamp", "localtimestamp", "mz_now", "mz_logical_timestamp"})
"""What the time of the query is called."""
