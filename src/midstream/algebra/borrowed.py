"""Functions whose meaning is DuckDB's: a name, and the SQL that it stands for.

`{0}`, `{1}` are arguments, `{*}` is all of them, `{:}` pairs of names and values, `{::}` the list
of those at odd places and that of the others. Of several texts the first that
has a meaning for the arguments' types counts. Constants are written into the SQL, because some functions take nothing
else; types are whatever DuckDB says.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as kind

from midstream.algebra.database import column_name, type_of
from midstream.algebra.expressions import Call, Expression, Literal, filled
from midstream.algebra.signatures import refuse
from midstream.algebra.types import plain
from midstream.errors import QueryError


def _same(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"{name}({{*}})",) for name in names.split()}


_NUMBERS = (
    "acos acosh asin asinh atan atan2 atanh cos cosh cot sin sinh tan tanh degrees radians cbrt pi gamma lgamma log2"
    " gcd lcm even nextafter isnan isinf isfinite signbit bit_count trunc xor log fdiv fmod"
)
_TEXTS = (
    "ascii ord unicode repeat concat_ws format printf levenshtein damerau_levenshtein hamming jaccard jaro_similarity"
    " jaro_winkler_similarity translate strip_accents bit_length strlen md5 sha1 sha256 base64 from_base64"
    " bin hex unhex to_hex unbin url_encode url_decode nfc_normalize regexp_full_match regexp_escape regexp_replace"
    " regexp_extract_all regexp_split_to_array string_split string_split_regex like_escape ilike_escape"
)
_DATES = (
    "century dayname decade era isodow isoyear julian last_day make_date make_time make_timestamp"
    " microsecond millisecond millennium monthname quarter week weekofyear weekday yearweek date_part"
    " strptime try_strptime epoch_us epoch_ns time_bucket days_in_month timezone"
)
_JSON = (
    "json_extract json_array_length json_type json_keys json_valid json_value json_exists"
    " json_contains json_structure json_object json_array json_merge_patch to_json"
)
_LISTS = (
    "array_length array_to_string list_contains list_has_any list_has_all list_position list_concat list_append"
    " list_prepend list_unique list_sort list_reverse_sort list_reverse list_slice list_extract list_sum"
    " list_avg list_min list_max list_first list_last list_count list_median list_mode list_product list_bool_and"
    " list_bool_or list_intersect list_zip list_value flatten cardinality map map_keys map_values map_entries"
    " map_contains map_from_entries map_concat map_extract map_extract_value struct_extract struct_keys"
    " range generate_series list_aggregate list_where typeof"
)

QUANTIFIED = {"=": "equal", "<>": "unequal", "<": "less", "<=": "at_most", ">": "greater", ">=": "at_least"}
"""How a comparison with any or all elements of a list is called: `any_equal`, `all_less` and so on."""


def decided(word: str, truths: str) -> str:
    """Whether any or all of a list of truths hold, in SQL; null if those that are unknown could decide it."""
    enough, otherwise = ("TRUE", "FALSE") if word == "any" else ("FALSE", "TRUE")
    return (
        f"CASE WHEN {truths} IS NULL THEN NULL WHEN list_contains({truths}, {enough}) THEN {enough}"
        f" WHEN len(list_filter({truths}, lambda t: t IS NULL)) > 0 THEN NULL ELSE {otherwise} END"
    )


def _quantified(symbol: str, word: str) -> str:
    return decided(word, f"list_transform({{1}}, lambda e: {{0}} {symbol} e)")


_UTF8 = "lower({1}) IN ('utf-8', 'utf8', 'us-ascii')"

WRITTEN = "sql "
"""How the name of a function begins that is SQL itself, over its arguments."""


class _Templates(dict[str, tuple[str, ...]]):
    """The SQL of functions by name; some names are their own SQL."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and name.startswith(WRITTEN))

    def __missing__(self, name: str) -> tuple[str, ...]:
        if name in self:
            return (name.removeprefix(WRITTEN),)
        raise KeyError(name)


_BY_NAME: Mapping[str, tuple[str, ...]] = {
    **_same(f"{_NUMBERS} {_TEXTS} {_DATES} {_JSON} {_LISTS}"),
    "factorial": ("factorial({0}::INTEGER)",),
    "list_distinct": ("list_filter({0}, lambda e, i: list_position({0}, e) = i)",),
    "chr": ("chr({0}::INTEGER)",),
    "octet_length": ("strlen({0})", "octet_length({0})"),
    "initcap": (
        r"array_to_string(list_transform(regexp_extract_all({0}, '\w+|\W+'),"
        " lambda w: upper(w[1]) || lower(w[2:])), '')",
    ),
    "regexp_extract": ("regexp_extract({0}, {1})", "regexp_extract({0}, {1}, {2}::INTEGER)"),
    "substring_index": (
        "array_to_string(CASE WHEN {2} >= 0 THEN string_split({0}, {1})[1:{2}]"
        " ELSE string_split({0}, {1})[{2}:] END, {1})",
    ),
    "strpos": ("instr({0}::VARCHAR, {1}::VARCHAR)",),
    "split_part": ("split_part({0}::VARCHAR, {1}::VARCHAR, {2}::BIGINT)",),
    "lpad": ("lpad({0}::VARCHAR, {1}::INTEGER, ' ')", "lpad({0}::VARCHAR, {1}::INTEGER, {2}::VARCHAR)"),
    "rpad": ("rpad({0}::VARCHAR, {1}::INTEGER, ' ')", "rpad({0}::VARCHAR, {1}::INTEGER, {2}::VARCHAR)"),
    "trim_of": ("trim({0}, {1})",),
    "ltrim_of": ("ltrim({0}, {1})",),
    "rtrim_of": ("rtrim({0}, {1})",),
    "overlay": ("overlay({0} PLACING {1} FROM {2})", "overlay({0} PLACING {1} FROM {2} FOR {3})"),
    "encode": (
        "encode({0})",
        f"CASE WHEN {_UTF8} THEN encode({{0}}) ELSE error('only UTF-8') END",
        "CASE lower({1}) WHEN 'hex' THEN lower(hex({0})) WHEN 'base64' THEN base64({0}) END",
    ),
    "decode": (
        "decode({0})",
        f"CASE WHEN {_UTF8} THEN decode({{0}}) ELSE error('only UTF-8') END",
        "CASE lower({1}) WHEN 'hex' THEN unhex({0}) WHEN 'base64' THEN from_base64({0}) END",
    ),
    "to_timestamp": (
        "upper({0})::TIMESTAMP",
        "make_timestamptz(({0} * 1000000::BIGINT)::BIGINT)",
        "{0}::TIMESTAMP",
        "strptime({0}, {1})",
    ),
    "to_timestamp_ltz": (
        "make_timestamptz({0}::BIGINT * CASE {1} WHEN 0 THEN 1000000 WHEN 3 THEN 1000 ELSE 1 END)",
        "make_timestamptz({0} * 1000)",
        "{0}::TIMESTAMP::TIMESTAMPTZ",
    ),
    "to_date": ("{0}::DATE", "strptime({0}, {1})::DATE"),
    "to_char": ("strftime({0}, {1})", "strftime({0}::TIMESTAMP, {1})"),
    "from_unixtime": (
        "strftime(make_timestamp({0}::BIGINT * 1000000), '%Y-%m-%d %H:%M:%S')",
        "strftime(make_timestamp({0}::BIGINT * 1000000), {1})",
    ),
    "unix_timestamp": ("floor(epoch({0}::TIMESTAMPTZ))::BIGINT", "floor(epoch(strptime({0}, {1})))::BIGINT"),
    "moved": ("({0} + to_microseconds({1}::BIGINT))",),
    "add_months": ("({0} + to_months({1}::INTEGER))",),
    "date_add": ("({0} + {1})", "({0}::DATE + {1}::INTEGER)"),
    "date_sub": (
        "date_sub({0}, {1}, {2})",
        "({0} - {1})",
        "({0}::DATE - {1}::INTEGER)",
        "({2} - ({1} || ' ' || {0})::INTERVAL)",
    ),
    "date_diff": ("date_diff({0}, {1}, {2})", "date_diff('day', {1}, {0})"),
    "timestampadd": ("({2} + ({1} || ' ' || {0})::INTERVAL)",),
    "parse_json": ("json({0})",),
    "json_extract_string": ("json_extract_string({0}, {1})",),
    "array_join": (
        "array_to_string({0}, {1})",
        "array_to_string(list_transform({0}, lambda x: coalesce(x, {2})), {1})",
    ),
    "named_struct": ("{{:}}",),
    "joined": ("({0} || {1})",),
    "plus": ("({0} + {1})", "({0} + ({1} * 1)::INTEGER)", "(({0} * 1)::INTEGER + {1})"),
    "minus": ("({0} - {1})", "({0} - ({1} * 1)::INTEGER)"),
    "raised": ("pow({0}, {1})",),
    "regexp_matches_any_case": ("regexp_matches({0}, {1}, 'i')",),
    "nvl2": ("CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END",),
    "glob": ("({0} GLOB {1})",),
    "as_type": ("cast_to_type({0}, {1})",),
    "as_time": ("{0}::TIME",),
    "as_text": ("{0}::VARCHAR",),
    "as_uuid": ("{0}::UUID::VARCHAR",),
    "as_json": ("{0}::JSON",),
    "packed": ("to_json({0})::VARCHAR",),
    "nested_equal": ("({0} = {1})",),
    "nested_greatest": ("greatest({*})",),
    "nested_least": ("least({*})",),
    "nested_less": ("({0} < {1})",),
    "nested_at_most": ("({0} <= {1})",),
    "nested_greater": ("({0} > {1})",),
    "nested_at_least": ("({0} >= {1})",),
    **{
        f"{word}_{name}": (_quantified(symbol, word),) for word in ("any", "all") for symbol, name in QUANTIFIED.items()
    },
    "list_places": ("generate_series({1}::BIGINT, len({0}) + {1} - 1)",),
    "array_except": (
        "list_filter({0}, lambda e, i: NOT coalesce(list_contains({1}, e), FALSE) AND list_position({0}, e) = i)",
    ),
    "array_union": ("list_filter(list_concat({0}, {1}), lambda e, i: list_position(list_concat({0}, {1}), e) = i)",),
    "array_repeat": ("list_transform(range({1}), lambda i: {0})",),
    "array_replace": ("list_transform({0}, lambda e: CASE WHEN e IS NOT DISTINCT FROM {1} THEN {2} ELSE e END)",),
    "trim_array": ("{0}[1:len({0}) - {1}]",),
    "element": ("CASE WHEN len({0}) > 1 THEN error('more than one element') ELSE {0}[1] END",),
    "split_index": ("string_split({0}, {1})[{2} + 1]",),
    "locate": ("instr({1}::VARCHAR, {0}::VARCHAR)",),
    "regexp_count": ("len(regexp_extract_all({0}, {1}))",),
    "is_alpha": (r"regexp_full_match({0}, '\pL+')",),
    "is_digit": (r"regexp_full_match({0}, '\d+')",),
    "is_decimal": ("(TRY_CAST({0} AS DOUBLE) IS NOT NULL)",),
    "sha2": ("CASE {1} WHEN 256 THEN sha256({0}) ELSE error('sha2 takes 256') END",),
    "to_bytes": (
        "CASE lower({1}) WHEN 'hex' THEN unhex({0}) WHEN 'base64' THEN from_base64({0}) ELSE encode({0}) END",
    ),
    "from_bytes": ("CASE lower({1}) WHEN 'hex' THEN hex({0}) WHEN 'base64' THEN base64({0}) ELSE decode({0}) END",),
    "to_base64": ("to_base64({0})", "to_base64(encode({0}))"),
    "pmod": ("(({0} % {1} + {1}) % {1})",),
    "hypot": ("sqrt({0} * {0} + {1} * {1})",),
    "rint": ("round_even({0}, 0)",),
    "bround": ("round_even({0}, {1})", "round_even({0}, 0)"),
    "width_bucket": (
        "CASE WHEN {0} < {1} THEN 0 WHEN {0} >= {2} THEN {3} + 1"
        " ELSE floor(({0} - {1}) * {3} / ({2} - {1}))::BIGINT + 1 END",
    ),
    "geo_distance": (
        "6371 * 2 * asin(sqrt(pow(sin(radians({2} - {0}) / 2), 2)"
        " + cos(radians({0})) * cos(radians({2})) * pow(sin(radians({3} - {1}) / 2), 2)))",
    ),
    "from_days": ("(DATE '1970-01-01' + {0}::INTEGER)",),
    "unix_date": ("date_diff('day', DATE '1970-01-01', {0})",),
    "parse_time": ("strptime({0}, {1})::TIME",),
    "stringtotimestamp": ("epoch_ms(strptime({0}, {1}))",),
    "timestamptostring": ("strftime(make_timestamp_ms({0}), {1})",),
    "timestampsub": ("({2} - ({1} || ' ' || {0})::INTERVAL)",),
    "convert_tz": (
        "strftime(timezone({2}, timezone({1}, upper({0})::TIMESTAMP)), '%Y-%m-%d %H:%M:%S')",
        "timezone({2}, timezone({1}, {0}))",
    ),
    "to_utc_timestamp": ("timezone('UTC', timezone({1}, {0}))",),
    "from_utc_timestamp": ("timezone({1}, timezone('UTC', {0}))",),
    "url_extract_protocol": (r"nullif(regexp_extract({0}, '^([A-Za-z+.-]+):', 1), '')",),
    "url_extract_host": (r"nullif(regexp_extract({0}, '^[A-Za-z+.-]+://(?:[^/@]*@)?([^/:?#]+)', 1), '')",),
    "url_extract_port": (r"TRY_CAST(regexp_extract({0}, '^[A-Za-z+.-]+://[^/?#]*:(\d+)', 1) AS INTEGER)",),
    "url_extract_path": (r"nullif(regexp_extract({0}, '^[A-Za-z+.-]+://[^/?#]*(/[^?#]*)', 1), '')",),
    "url_extract_query": (r"nullif(regexp_extract({0}, '\?([^#]*)', 1), '')",),
    "url_extract_fragment": ("nullif(regexp_extract({0}, '#(.*)', 1), '')",),
    "url_extract_parameter": ("nullif(regexp_extract({0}, '[?&]' || regexp_escape({1}) || '=([^&#]*)', 1), '')",),
    "substring_from": ("substring({0}, CASE {1} WHEN 0 THEN 1 ELSE {1} END, {2})",),
    "url_encode_param": ("replace(url_encode({0}), '%20', '+')",),
    "url_decode_param": ("url_decode(replace({0}, '+', '%20'))",),
    "to_json_string": ("to_json({0})::VARCHAR",),
    "json_array_elements": ("json_extract({0}, '$[*]')",),
    "json_array_elements_text": ("json_extract_string({0}, '$[*]')",),
    "json_object_keys": ("json_keys({0})",),
    "json_array_contains": ("json_contains({0}, to_json({1}))",),
    "as_value": ("{0}",),
    "array_remove": ("list_filter({0}, lambda e: e IS DISTINCT FROM {1})",),
    "list_or_empty": ("coalesce({0}, [])",),
    "list_or_null": ("CASE WHEN len({0}) > 0 THEN {0} ELSE [NULL] END",),
    "list_field": ("list_transform({0}, lambda s: struct_extract(s, {1}))",),
    "subscript": ("{0}[{1}]",),
    "get": ("map_extract_value({0}, {1})", "CASE WHEN {1} >= 0 THEN {0}[{1} + 1] END"),
    "slice": (
        "CASE WHEN {1} = 0 OR {2} < 0 THEN error('slice counts from 1, and takes no less than 0 elements')"
        " WHEN {1} < -len({0}) THEN [] WHEN {1} < 0 THEN {0}[len({0}) + {1} + 1:len({0}) + {1} + {2}]"
        " ELSE {0}[{1}:{1} + {2} - 1] END",
    ),
    "map_of": ("map({::})",),
    "field": ("struct_extract({0}, {1})", "json_extract_string(ltrim({0}), {1})"),
    "integer_division": ("({0} // {1})",),
    "bitwise_and": ("({0} & {1})",),
    "bitwise_or": ("({0} | {1})",),
    "bitwise_not": ("(~{0})",),
    "shift_left": ("({0} << {1})",),
    "shift_right": ("({0} >> {1})",),
}

BORROWED: Mapping[str, tuple[str, ...]] = _Templates(_BY_NAME)
"""Every function that DuckDB computes."""

OVERLOADS: Mapping[str, str] = {
    "length": "array_length",
    **{name: f"nested_{name}" for name in ("greatest", "least")},
    "contains": "list_contains",
    "concat": "list_concat",
    "||": "joined",
    "+": "plus",
    "-": "minus",
    "reverse": "list_reverse",
    "trim": "trim_of",
    "ltrim": "ltrim_of",
    "rtrim": "rtrim_of",
}
"""What a function of the language is called where its arguments are other than its own."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The SQL of a call over its arguments that are no constants, in their order, and its type."""

    sql: str
    type: pa.DataType


def borrow(function: str, arguments: Sequence[Expression]) -> Borrowed:
    """What a function makes of its arguments; a QueryError if it has no meaning for them."""
    types = tuple(plain(a.type) for a in arguments)
    if function not in BORROWED:
        raise refuse(function, types)
    texts = _texts(arguments)
    columns = tuple(plain(a.type) for a in arguments if constant(a) is None)
    problem = "it takes other arguments"
    for template in BORROWED[function]:
        sql = _filled(template, texts)
        if sql is None:
            continue
        try:
            return Borrowed(sql, type_of(sql, columns))
        except QueryError as error:
            problem = candidates(error.message)
    raise refuse(function, types, problem)


def columns_among(arguments: Sequence[Expression]) -> list[int]:
    """Which arguments are columns in SQL, and no constants."""
    return [i for i, argument in enumerate(arguments) if constant(argument) is None]


def _texts(arguments: Sequence[Expression]) -> list[str]:
    places = iter(range(len(arguments)))
    return [constant(a) or column_name(next(places)) for a in arguments]


def _filled(template: str, texts: list[str]) -> str | None:
    """The template with its arguments in place; None if it is for another number of them."""
    if "{*}" in template:
        return template.replace("{*}", ", ".join(texts))
    if "{:}" in template:
        pairs = zip(texts[::2], texts[1::2], strict=False)
        return template.replace("{:}", ", ".join(f"{name}: {value}" for name, value in pairs))
    if "{::}" in template:
        return template.replace("{::}", f"[{', '.join(texts[::2])}], [{', '.join(texts[1::2])}]")
    if f"{{{len(texts)}}}" in template or not all(f"{{{i}}}" in template for i in range(len(texts))):
        return None
    return filled(template, texts)


def candidates(message: str) -> str:
    """What DuckDB says could be meant."""
    found = [line.strip() for line in message.splitlines() if line.startswith("\t") and "(" in line]
    if found:
        return f"it is {' or '.join(found[:4])}"
    return message.splitlines()[0].partition("Error: ")[2] or message.splitlines()[0]


def constant(expression: Expression) -> str | None:
    """A constant as SQL; None for what has to be a column."""
    if isinstance(expression, Call) and expression.function == "list_value":
        parts = [constant(a) for a in expression.args]
        return None if None in parts else f"[{', '.join(p for p in parts if p is not None)}]"
    if not isinstance(expression, Literal):
        return None
    match expression.value:
        case None:
            return "NULL" if kind.is_null(expression.type) else None
        case bool(value):
            return str(value).upper()
        case int(value):
            return str(value) if abs(value) < 2**31 else f"{value}::BIGINT"
        case float(value):
            return f"{value!r}::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
        case Decimal():
            return f"{expression.value}::DECIMAL({expression.type.precision}, {expression.type.scale})"
        case str(value) if "\0" not in value:
            return "'" + value.replace("'", "''") + "'"
        case dt.date() as value if not isinstance(value, dt.datetime):
            return f"DATE '{value.isoformat()}'"
    return None
