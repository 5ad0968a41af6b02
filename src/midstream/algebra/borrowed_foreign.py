"""The SQL of functions that stand for those of other systems whose names mean something else here."""

from __future__ import annotations

from collections.abc import Mapping

from midstream.algebra.borrowed_forms import HALF_UP, ISO, LOGARITHM, MATCHED, URL

FOREIGN: Mapping[str, tuple[str, ...]] = {
    "regexp_found": tuple(
        f"CASE WHEN regexp_matches({{1}}, {{0}}) THEN regexp_extract({{1}}, {{0}}{group}) END"
        for group in ("", ", {2}::INTEGER")
    ),
    "regexp_found_all": ("regexp_extract_all({1}, {0})", "regexp_extract_all({1}, {0}, {2}::INTEGER)"),
    "initcap_of_words": (
        r"array_to_string(list_transform(regexp_extract_all({0}, '\s+|\S+'), lambda w: upper(w[1]) || lower(w[2:])),"
        " '')",
    ),
    "round_up": (
        f"round({HALF_UP})::BIGINT",
        f"coalesce(round({HALF_UP}, {{1}}::INTEGER)::DOUBLE, round({{0}}, {{1}}::INTEGER))",
    ),
    **{
        f"{name}_or_nan": (f"coalesce(TRY({name}({{0}})), CASE WHEN {{0}} IS NOT NULL THEN 'nan'::DOUBLE END)",)
        for name in ("sqrt", "acos", "asin")
    },
    "log_or_nan": (
        LOGARITHM.format("{0}"),
        f"CASE WHEN {{0}} <= 0 OR {{0}} = 1 THEN 'nan'::DOUBLE * {{1}} ELSE {LOGARITHM.format('{1}')} / ln({{0}}) END",
    ),
    "cot_or_infinite": ("CASE WHEN {0} = 0 THEN 'inf'::DOUBLE ELSE cot({0}) END",),
    "url_path": (
        rf"CASE WHEN regexp_matches({{0}}, '^[A-Za-z][A-Za-z0-9+.-]*:') THEN regexp_extract({{0}}, {URL['path']}, 1)"
        r" ELSE regexp_extract({0}, '^[^?#]*') END",
    ),
    "substring_within": (
        "substring({0}, greatest({1}, 1))",
        "CASE WHEN {2} < 0 THEN error('a length is 0 at least') ELSE"
        " substring({0}, greatest({1}, 1), greatest({1} + {2}, 1) - greatest({1}, 1)) END",
    ),
    "text_to_list": tuple(
        f"list_transform(CASE WHEN {{1}} IS NULL THEN string_split({{0}}, '') WHEN {{1}} = '' THEN [{{0}}]"
        f" ELSE string_split({{0}}, {{1}}) END, lambda e: {element})"
        for element in ("e", "nullif(e, {2})")
    ),
    "matches_sql": (MATCHED,),
    "shown_text": (
        "'{' || array_to_string(list_transform({0}, lambda e: coalesce(e::VARCHAR, 'NULL')), ',') || '}'",
        "CASE WHEN typeof({0}) = 'BOOLEAN' THEN ({0}::VARCHAR)[1] ELSE {0}::VARCHAR END",
    ),
    "list_flat": ("flatten(flatten({0}))", "flatten({0})", "{0}"),
    "seconds_of": ("date_part('microsecond', {0}) / 1000000",),
    "substring_from": ("substring({0}, CASE {1} WHEN 0 THEN 1 ELSE {1} END, {2})",),
    "substring_at": tuple(
        f"substring({{0}}, greatest(CASE WHEN {{1}} < 0 THEN len({{0}}) + {{1}} + 1 ELSE {{1}} END, 1){size})"
        for size in ("", ", {2}")
    ),
    "iso_text": (
        "CASE typeof({0}) WHEN 'TIMESTAMP' THEN strftime({0}, '%Y-%m-%dT%H:%M:%S.%g') ELSE {0}::VARCHAR END",
        "TRY_CAST({0} AS VARCHAR)",
    ),
    **{f"iso_{name}": (ISO.format(type=name), f"TRY_CAST({{0}} AS {name})") for name in ("date", "timestamp")},
    "map_of_lists": ("map({0}[:least(len({0}), len({1}))], {1}[:least(len({0}), len({1}))])",),
    "url_encode_param": ("replace(url_encode({0}), '%20', '+')",),
    "url_decode_param": ("url_decode(replace({0}, '+', '%20'))",),
    "list_from_to": (
        "CASE WHEN coalesce({1}, 1) BETWEEN 1 AND coalesce({2}, len({0})) + 1 AND coalesce({2}, 0) <= len({0})"
        " THEN {0}[coalesce({1}, 1):coalesce({2}, len({0}))] END",
    ),
    "map_of": ("map({::})",),
}
