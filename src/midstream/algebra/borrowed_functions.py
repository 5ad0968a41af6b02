"""The SQL of functions whose meaning is DuckDB's, by their names.

`{0}`, `{1}` are arguments, `{*}` is all of them, `{:}` pairs of names and values, `{::}` the list
of those at odd places and that of the others. Of several texts the first that has a meaning for the arguments' types
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product, starmap

from midstream.algebra.borrowed_foreign import FOREIGN
from midstream.algebra.borrowed_forms import (
    AMOUNT,
    CHOSEN,
    CODED,
    CONVERTED,
    DECODED,
    FLAGGED,
    MADE,
    PARAMETER,
    PART,
    QUANTIFIED,
    SOUNDEX,
    TRANSCODED,
    UNIT,
    URL,
    UTF8,
    WEEKDAYS,
    found,
    held,
    masked,
    match,
    matches,
    months_between,
    quantified,
    series,
)
from midstream.algebra.borrowed_json import JSON
from midstream.algebra.borrowed_times import TIMES


def _same(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (f"{name}({{*}})",) for name in names.split()}


def _of_times(names: str) -> dict[str, tuple[str, ...]]:
    """Functions of one time, which may be written as a text."""
    return {name: (f"{name}({{0}})", f"{name}(upper({{0}})::TIMESTAMP)") for name in names.split()}


_NUMBERS = (
    "acos acosh asin asinh atan atan2 atanh cos cosh cot sin sinh tan tanh degrees radians cbrt pi gamma lgamma log2"
    " gcd lcm even nextafter isnan isinf isfinite signbit bit_count xor log fdiv fmod add subtract multiply round_even"
)
_TEXTS = (
    "ascii ord unicode repeat concat_ws format printf levenshtein damerau_levenshtein hamming jaccard jaro_similarity"
    " jaro_winkler_similarity translate strip_accents bit_length strlen md5 sha1 sha256 base64 from_base64"
    " bin hex unhex to_hex unbin url_encode url_decode nfc_normalize regexp_full_match regexp_escape regexp_replace"
    " regexp_extract_all regexp_split_to_array string_split_regex like_escape ilike_escape bar format_bytes"
    " left_grapheme right_grapheme length_grapheme substring_grapheme mismatches parse_path"
    " parse_dirname parse_dirpath parse_filename"
)
_OF_TIMES = (
    "century dayname decade era isodow isoyear julian last_day microsecond millisecond millennium monthname quarter"
    " week weekofyear weekday yearweek epoch_us epoch_ns days_in_month"
)
_DATES = "make_date make_time make_timestamp make_timestamptz strptime try_strptime time_bucket timezone"
_LISTS = (
    "list_has_any list_concat list_append"
    " list_prepend list_unique list_reverse_sort list_reverse list_slice list_extract list_sum"
    " list_avg list_min list_max list_first list_last list_count list_median list_mode list_product list_bool_and"
    " list_bool_or list_zip list_value flatten cardinality map_keys map_values map_entries"
    " map_contains map_from_entries map_concat map_extract map_extract_value struct_extract struct_keys"
    " list_aggregate list_where typeof list_resize list_select list_grade_up list_any_value list_bit_and list_bit_or"
    " list_bit_xor list_entropy list_histogram list_kurtosis list_kurtosis_pop list_mad list_sem list_skewness"
    " list_stddev_pop list_stddev_samp list_string_agg list_var_pop list_var_samp list_distance list_inner_product"
    " list_cosine_similarity list_cosine_distance array_pop_back array_pop_front map_contains_entry map_contains_value"
    " struct_concat struct_extract_at struct_values"
)

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    **_same(f"{_NUMBERS} {_TEXTS} {_DATES} {_LISTS}"),
    **_of_times(_OF_TIMES),
    **FOREIGN,
    **JSON,
    **TIMES,
    "date_part": ("date_part({0}, {1})", "date_part({0}, upper({1})::TIMESTAMP)"),
    "trunc": (
        "trunc({0})",
        "trunc({0}, {1} + 0)",
        f"date_trunc({UNIT}, {{0}})::DATE",
        f"date_trunc({UNIT}, upper({{0}})::TIMESTAMP)::DATE",
    ),
    "string_split": ("string_split({0}, {1})", "list_transform(string_split({0}, {1}), lambda e: nullif(e, {2}))"),
    "array_length": ("cardinality({0})", "array_length({0})", "array_length({0}, {1})"),
    "list_position": ("list_position({0}, {1})", "list_position({0}[{2}:], {1}) + {2} - 1"),
    "list_sort": (
        "list_sort({0})",
        "list_sort({0}, {1})",
        "list_sort({0}, {1}, {2})",
        "CASE WHEN {1} THEN list_sort({0}, 'ASC', 'NULLS FIRST') ELSE list_sort({0}, 'DESC', 'NULLS LAST') END",
    ),
    "list_contains": ("list_contains({0}, {1})", "list_has_all({0}, {1})"),
    "list_has_all": ("list_has_all({0}, {1})", held("{0}", "{1}")),
    "list_within": ("list_has_all({1}, {0})", held("{1}", "{0}")),
    "array_to_string": (
        "array_to_string({0}, {1})",
        "array_to_string(list_transform({0}, lambda x: coalesce(x::VARCHAR, {2})), {1})",
    ),
    "factorial": ("factorial({0}::INTEGER)",),
    "list_distinct": ("list_filter({0}, lambda e, i: list_position({0}, e) = i)",),
    "chr": (CODED, "CASE WHEN {0} BETWEEN 0 AND 1114111 THEN chr({0}::INTEGER) END"),
    **{name: series(name) for name in ("range", "generate_series")},
    "series_either_way": ("generate_series({0}, {1}, CASE WHEN {0} <= {1} THEN 1 ELSE -1 END)",),
    "octet_length": ("strlen({0})", "octet_length({0})"),
    "initcap": (
        r"array_to_string(list_transform(regexp_extract_all({0}, '[\pL\pN_]+|[^\pL\pN_]+'),"
        " lambda w: upper(w[1]) || lower(w[2:])), '')",
    ),
    "regexp_extract": ("regexp_extract({0}, {1})", "regexp_extract({0}, {1}, {2}::INTEGER)"),
    "substring_index": (
        "array_to_string(CASE WHEN {2} >= 0 THEN string_split({0}, {1})[1:{2}]"
        " ELSE string_split({0}, {1})[{2}:] END, {1})",
    ),
    "strpos": (
        "instr({0}::VARCHAR, {1}::VARCHAR)",
        found("{0}", "{1}", "{2}"),
        found("{0}", "{1}", "{2}", "{3}"),
    ),
    "split_part": ("split_part({0}::VARCHAR, {1}::VARCHAR, {2}::BIGINT)",),
    "lpad": ("lpad({0}::VARCHAR, {1}::INTEGER, ' ')", "lpad({0}::VARCHAR, {1}::INTEGER, {2}::VARCHAR)"),
    "rpad": ("rpad({0}::VARCHAR, {1}::INTEGER, ' ')", "rpad({0}::VARCHAR, {1}::INTEGER, {2}::VARCHAR)"),
    "trim_of": ("trim({0}, {1})",),
    "ltrim_of": ("ltrim({0}, {1})",),
    "rtrim_of": ("rtrim({0}, {1})",),
    "overlay": ("overlay({0} PLACING {1} FROM {2})", "overlay({0} PLACING {1} FROM {2} FOR {3})"),
    "encode": (
        "encode({0})",
        f"CASE WHEN {UTF8} THEN encode({{0}}) ELSE error('only UTF-8') END",
        "CASE lower({1}) WHEN 'hex' THEN lower(hex({0})) WHEN 'base64' THEN base64({0}) END",
        TRANSCODED,
    ),
    "decode": (
        "decode({0})",
        "CASE lower({1}) WHEN 'hex' THEN unhex({0}) WHEN 'base64' THEN from_base64({0})"
        " ELSE error('decode reads hex and base64') END",
        f"CASE WHEN {UTF8} THEN decode({{0}}) ELSE error('only UTF-8') END",
        *DECODED,
    ),
    "named_struct": ("{{:}}",),
    "joined": ("({0} || {1})", "list_append({0}, {1})", "list_prepend({0}, {1})"),
    "plus": ("({0} + {1})", "({0} + ({1} * 1)::INTEGER)", "(({0} * 1)::INTEGER + {1})"),
    "minus": ("({0} - {1})", "({0} - ({1} * 1)::INTEGER)", "to_microseconds(epoch_us({0}) - epoch_us({1}))"),
    "times": ("({0} * {1})::INTERVAL",),
    "divided": ("({0} / nullif({1}, 0))::INTERVAL",),
    "raised": ("pow({0}, {1})",),
    "regexp_matches_any_case": ("regexp_matches({0}, {1}, 'i')",),
    "nvl2": ("CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END",),
    "glob": ("({0} GLOB {1})",),
    "as_type": ("cast_to_type({0}, {1})",),
    "as_list": ("cast_to_type(CASE WHEN {0} LIKE '{%' THEN translate({0}, '{}', '[]') ELSE {0} END, {1})",),
    **{"as_interval": (AMOUNT,), "make_interval": (MADE,)},
    **{"as_time": ("{0}::TIME",), "as_seconds": ("floor(epoch_us({0}) / 1000000)::BIGINT",)},
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
    **{f"{word}_{name}": (quantified(symbol, word),) for word in ("any", "all") for symbol, name in QUANTIFIED.items()},
    "list_places": ("generate_series({1}::BIGINT, len({0}) + {1} - 1)",),
    "array_except": (
        "CASE WHEN {1} IS NOT NULL THEN"
        " list_filter({0}, lambda e, i: list_position({1}, e) IS NULL AND list_position({0}, e) = i) END",
    ),
    "list_intersect": (
        "CASE WHEN {1} IS NOT NULL THEN"
        " list_filter({0}, lambda e, i: list_position({1}, e) IS NOT NULL AND list_position({0}, e) = i) END",
    ),
    "array_union": (
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN"
        " list_filter(list_concat({0}, {1}), lambda e, i: list_position(list_concat({0}, {1}), e) = i) END",
    ),
    "array_repeat": ("list_transform(range({1}), lambda i: {0})",),
    "array_replace": ("list_transform({0}, lambda e: CASE WHEN e IS NOT DISTINCT FROM {1} THEN {2} ELSE e END)",),
    "trim_array": ("{0}[1:len({0}) - {1}]",),
    "element": ("CASE WHEN len({0}) > 1 THEN error('more than one element') ELSE {0}[1] END",),
    "split_index": ("string_split({0}, {1})[{2} + 1]",),
    "locate": ("instr({1}::VARCHAR, {0}::VARCHAR)", found("{1}", "{0}", "{2}")),
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
        "CASE WHEN sign({2} - {1}) * ({0} - {1}) < 0 THEN 0 WHEN sign({2} - {1}) * ({0} - {2}) >= 0 THEN {3} + 1"
        " ELSE floor(({0} - {1}) * {3} / ({2} - {1}))::BIGINT + 1 END",
    ),
    "geo_distance": tuple(
        f"{radius} * 2 * asin(sqrt(pow(sin(radians({{2}} - {{0}}) / 2), 2)"
        " + cos(radians({0})) * cos(radians({2})) * pow(sin(radians({3} - {1}) / 2), 2)))"
        for radius in ("6371", "CASE upper({4}[1:2]) WHEN 'KM' THEN 6371 WHEN 'MI' THEN 3959 END")
    ),
    "from_days": ("(DATE '1970-01-01' + {0}::INTEGER)",),
    "unix_date": ("date_diff('day', DATE '1970-01-01', {0})",),
    "parse_time": ("strptime({0}, {1})::TIME",),
    "convert_tz": (
        "strftime(timezone({2}, timezone({1}, upper({0})::TIMESTAMP)), '%Y-%m-%d %H:%M:%S')",
        "timezone({2}, timezone({1}, {0}))",
    ),
    "to_utc_timestamp": (
        "timezone('UTC', timezone({1}, {0}))",
        "timezone('UTC', timezone({1}, upper({0})::TIMESTAMP))",
    ),
    "from_utc_timestamp": (
        "timezone({1}, timezone('UTC', {0}))",
        "timezone({1}, timezone('UTC', upper({0})::TIMESTAMP))",
    ),
    **{f"url_extract_{part}": (f"nullif(regexp_extract({{0}}, {sql}, 1), '')",) for part, sql in URL.items()},
    "url_extract_port": (r"TRY_CAST(regexp_extract({0}, '^[A-Za-z+.-]+://[^/?#]*:(\d+)', 1) AS INTEGER)",),
    "url_extract_parameter": (PARAMETER,),
    "parse_url": (
        f"nullif(regexp_extract({{0}}, CASE {{1}} {PART} ELSE error('parse_url has no such part') END, 1), '')",
        f"CASE WHEN {{1}} = 'QUERY' THEN {PARAMETER.replace('{1}', '{2}')} END",
    ),
    "as_value": ("{0}",),
    "timestamp_of_ms": ("epoch_ms({0})",),
    **{
        f"to_{unit}": (f"to_{unit}({{0}})",) for unit in ("hours", "minutes", "seconds", "milliseconds", "microseconds")
    },
    **{f"to_{unit}": (f"to_{unit}({{0}}::INTEGER)",) for unit in ("days", "weeks")},
    "to_base": ("to_base({0}, {1}::INTEGER)",),
    "is_empty": ("(len({0}) = 0)",),
    "generate_series_by_months": ("generate_series({0}, {1}, to_months({2}::INTEGER))",),
    "range_by_months": ("range({0}, {1}, to_months({2}::INTEGER))",),
    "soundex": (SOUNDEX,),
    "conv": (CONVERTED,),
    "mask": (masked("{0}", ""),),
    "mask_left": (f"{masked('{0}[:{1}]')} || {{0}}[{{1}} + 1:]",),
    "mask_right": (f"{{0}}[:greatest(len({{0}}) - {{1}}, 0)] || {masked('right({0}, {1}::INTEGER)')}",),
    "mask_keep_left": (f"{{0}}[:{{1}}] || {masked('{0}[{1} + 1:]')}",),
    "mask_keep_right": (f"{masked('{0}[:greatest(len({0}) - {1}, 0)]')} || right({{0}}, {{1}}::INTEGER)",),
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
    "map": ("CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN map({0}, {1}) END", "map({*})", "map({::})"),
    "field": (
        "struct_extract({0}, {1})",
        "json_extract_string(ltrim({0}), {1})",
        "coalesce(list_position([{*}][2:], ([{*}])[1]), 0)",
    ),
    "regexp_match": (match("{1}"), match(FLAGGED)),
    "regexp_matches_all": (matches("{1}"), matches(FLAGGED)),
    "regexp_matches_by": ("regexp_matches({0}, {1}, {2})",),
    "regexp_instr": (
        r"CASE regexp_matches({0}, {1}) WHEN FALSE THEN 0"
        r" ELSE length(regexp_extract({0}, '^([\s\S]*?)(?:' || {1} || ')', 1)) + 1 END",
    ),
    "elt": CHOSEN,
    "str_to_map": (
        "map_from_entries(list_transform(string_split({0}, {1}), lambda e: {'key': split_part(e, {2}, 1),"
        " 'value': CASE WHEN contains(e, {2}) THEN e[instr(e, {2}) + length({2}):] END}))",
    ),
    "quote_literal": ("chr(39) || replace({0}::VARCHAR, chr(39), repeat(chr(39), 2)) || chr(39)",),
    "find_in_set": ("ifnull(list_position(string_split({1}, ','), {0}), length({0} || {1}) * 0)",),
    "format_number": ("format('{:,.' || {1} || 'f}', {0}::DOUBLE)",),
    "space": ("repeat(' ', {0})",),
    "from_json": (
        "from_json({0}, {1})",
        r"""from_json({0}, '{' || regexp_replace({1}, '(\w+)\s*[: ]\s*(\w+)', '"\1":"\2"', 'g') || '}')""",
    ),
    **{f"{part}_of_amount": (f"date_part('{part}', {{0}})",) for part in ("epoch", "day", "hour", "minute", "second")},
    "num_nulls": ("len(list_filter(json_extract(json_array({*}), '$[*]'), lambda e: e = 'null'))",),
    "num_nonnulls": ("len(list_filter(json_extract(json_array({*}), '$[*]'), lambda e: e <> 'null'))",),
    "e": ("exp(1)",),
    "log1p": ("ln(1 + {0})",),
    "expm1": ("exp({0}) - 1",),
    "nanvl": ("CASE WHEN isnan({0}) THEN {1} ELSE {0} END",),
    "negative": ("(-{0})",),
    "zeroifnull": ("coalesce({0}, 0)",),
    "nullifzero": ("nullif({0}, 0)",),
    "equal_null": ("({0} IS NOT DISTINCT FROM {1})",),
    **{
        f"try_{name}": (f"TRY({{0}} {sign} {{1}})",)
        for name, sign in (("add", "+"), ("subtract", "-"), ("multiply", "*"))
    },
    "try_divide": ("({0} / nullif({1}, 0))",),
    **{f"{name}_to": (f"({name}({{0}} * pow(10, {{1}})) / pow(10, {{1}}))",) for name in ("ceil", "floor")},
    "date_trunc_of": ("timezone({2}, date_trunc({0}, timezone({2}, {1})))",),
    "months_between": tuple(
        starmap(months_between, product(*((f"{{{i}}}", f"upper({{{i}}})::TIMESTAMP") for i in (0, 1))))
    ),
    "next_day": tuple(
        f"{day} + (({WEEKDAYS} - isodow({day}) + 6) % 7 + 1)::INTEGER"
        for day in ("date_trunc('day', {0})::DATE", "upper({0})::DATE")
    ),
    "timestamp_millis": ("make_timestamptz({0}::BIGINT * 1000)",),
    "timestamp_micros": ("make_timestamptz({0}::BIGINT)",),
    "array_positions": ("list_filter(generate_series(1, len({0})), lambda i: {0}[i] IS NOT DISTINCT FROM {1})",),
    "array_lower": ("CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 END",),
    "array_compact": ("list_filter({0}, lambda e: e IS NOT NULL)",),
    "array_insert": (
        "CASE WHEN {1} NOT BETWEEN 1 AND len({0}) + 1 THEN error('array_insert takes a place of the list')"
        " ELSE list_concat({0}[:{1} - 1], [{2}], {0}[{1}:]) END",
    ),
    "map_insert": (
        "CASE WHEN {0} IS NOT NULL THEN map_from_entries(list_append("
        "list_filter(map_entries({0}), lambda e: e.key <> {1}), {'key': {1}, 'value': {2}})) END",
    ),
    "map_delete": ("map_from_entries(list_filter(map_entries({0}), lambda e: e.key <> {1}))",),
    "entries": ("CASE WHEN {1} THEN list_sort(map_entries({0})) ELSE map_entries({0}) END",),
    "integer_division": ("({0} // {1})",),
    "quotient": ("(({0} & -1) // nullif({1} & -1, 0))", "({0} / nullif({1}, 0))"),
    "bitwise_and": ("({0} & {1})",),
    "bitwise_or": ("({0} | {1})",),
    "bitwise_not": ("(~{0})",),
    **{f"shift_{way}": (f"({{0}} {sign} {{1}})",) for way, sign in (("left", "<<"), ("right", ">>"))},
}

OVERLOADS: Mapping[str, str] = {
    "length": "array_length",
    **{name: f"nested_{name}" for name in ("greatest", "least")},
    "contains": "list_contains",
    "concat": "list_concat",
    "||": "joined",
    "+": "plus",
    "-": "minus",
    "*": "times",
    "/": "divided",
    "epoch_ms": "timestamp_of_ms",
    **{part: f"{part}_of_amount" for part in ("epoch", "day", "hour", "minute", "second")},
    "ceil": "ceil_to",
    "floor": "floor_to",
    "date_trunc": "date_trunc_of",
    "regexp_matches": "regexp_matches_by",
    "reverse": "list_reverse",
    "trim": "trim_of",
    "ltrim": "ltrim_of",
    "rtrim": "rtrim_of",
}
"""What a function of the language is called where its arguments are other than its own."""
