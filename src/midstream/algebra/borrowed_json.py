"""The SQL of functions of JSON, which is a text, by their names.

Where a function is one of DuckDB's by its own name, an object's fields stay as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.algebra.borrowed_forms import pairs

_SAME = (
    "json_array_length json_type json_valid json_value json_exists json_contains json_structure json_object"
    " json_array json_merge_patch to_json"
)
"""Functions that are called as in DuckDB."""

_FIELDS = "map(json_keys({0}), list_transform(json_keys({0}), lambda k: json_extract({0}, '$.\"' || k || '\"')))"

_JOINED = (
    "CASE WHEN list_bool_and(list_transform([{*}], lambda j: json_valid(j) AND j <> '')) IS NOT TRUE"
    " OR len([{*}]) > list_count([{*}]) THEN NULL"
    " WHEN list_bool_and(list_transform([{*}], lambda j: json_type(j) = 'OBJECT')) THEN to_json(list_reduce("
    f"list_transform([{{*}}], lambda j: {_FIELDS.replace('{0}', 'j')}), lambda a, b: map_concat(a, b)))"
    " ELSE to_json(flatten(list_transform([{*}],"
    " lambda j: CASE json_type(j) WHEN 'ARRAY' THEN json_extract(j, '$[*]') ELSE [j::JSON] END))) END"
)
"""Objects as one, in which the last field of a name counts; of all else one array. Null for what is no JSON."""

_WRITTEN = (
    r"""array_to_string(list_transform(regexp_extract_all({0}, '"(?:[^"\\]|\\.)*"|-?\d+[.eE][\d.eE+-]*|(?s:.)'),"""
    r""" lambda t: CASE WHEN regexp_matches(t, '^-?\d+[.eE]') THEN '"' || t || '"' ELSE t END), '')"""
)
"""JSON with texts in the place of numbers that have a point or an exponent, which are there as they are written."""

_AS_TEXT = (("", ""), ("_text", "_string"))

_PATHS = (
    r"'/' || regexp_replace(trim({1}, '{ }'), '\s*,\s*', '/', 'g')",
    "'/' || array_to_string({1}, '/')",
)
"""Ways into JSON: `'{a,b}'`, or a list."""

_PATH = "'/' || array_to_string([{*}][2:], '/')"

JSON: Mapping[str, tuple[str, ...]] = {
    **{name: (f"{name}({{*}})",) for name in _SAME.split()},
    "json_extract": ("json_extract({0}, {1})", "json_extract({0}, '/' || {1} || '/' || {2})"),
    "parse_json": ("json({0})",),
    "json_extract_string": ("json_extract_string({0}, {1})",),
    **{f"json_extract_path{text}": (f"json_extract{kind}(([{{*}}])[1], {_PATH})",) for text, kind in _AS_TEXT},
    "to_json_string": ("coalesce(to_json({0})::VARCHAR, 'null')",),
    "json_array_elements": ("json_extract({0}, '$[*]')",),
    "json_array_elements_text": ("json_extract_string({0}, '$[*]')",),
    "json_object_keys": ("json_keys({0})",),
    **{f"json_pairs{text}": (pairs(f"json_extract{kind}"),) for text, kind in _AS_TEXT},
    "json_array_contains": ("json_contains({0}, to_json({1}))",),
    "json_items": ("json_extract({0}, '$[*]')",),
    "json_records": (_FIELDS,),
    "json_keys": ("CASE WHEN json_valid({0}) AND {0} <> '' THEN json_keys({0}) END", "json_keys({0}, {1})"),
    **{f"jsonb_{word}": (f"json_{word}({{0}})",) for word in ("pretty", "strip_nulls")},
    "json_typeof": (
        "CASE json_type({0}) WHEN 'VARCHAR' THEN 'string' WHEN 'DOUBLE' THEN 'number' WHEN 'BIGINT' THEN 'number'"
        " WHEN 'UBIGINT' THEN 'number' WHEN 'HUGEINT' THEN 'number' ELSE lower(json_type({0})) END",
    ),
    "json_concat": (_JOINED,),
    "is_json_string": ("coalesce(json_valid({0}), FALSE)",),
    "extractjsonfield": (
        "CASE WHEN contains({1}, '[-') THEN NULL WHEN json_type({0}, {1}) = 'DOUBLE' THEN"
        f" json_extract_string({_WRITTEN}, {{1}}) ELSE json_extract_string({{0}}, {{1}}) END",
    ),
    "json_has_key": (
        "(list_contains(json_keys({0}), {1}) OR list_contains(json_extract({0}, '$[*]')::VARCHAR[], to_json({1})))",
    ),
    **{f"json{word}_at": tuple(f"json_extract{kind}({{0}}, {path})" for path in _PATHS) for word, kind in _AS_TEXT},
    "jsonb_set": tuple(f"json_set({{0}}, {path}, {{2}}::JSON)" for path in _PATHS),
    "json_without": ("json_merge_patch({0}, json_object({1}::VARCHAR, NULL))",),
}
