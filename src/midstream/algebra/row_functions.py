"""The functions that give rows: one for each element of a list that is an argument, or that another function gives."""

from __future__ import annotations

ELEMENTS = frozenset({"unnest", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline"})
"""The functions that give a row for each element of their arguments."""

_LISTING = """
    range range, generate_series generate_series, sequence generate_series, generate_subscripts list_places,
    string_to_table string_split, regexp_split_to_table regexp_split_to_array, regexp_matches regexp_matches_all
"""

_OF_JSON = {
    f"{kind}_{word}": f"json_{word.replace('each', 'pairs')}"
    for kind in ("json", "jsonb")
    for word in ("array_elements", "array_elements_text", "each", "each_text", "object_keys")
}

LISTING = dict(row.split() for row in _LISTING.split(",")) | _OF_JSON
"""Functions that give rows in FROM, and the function of values whose list these are."""

UNNESTING = ELEMENTS | _OF_JSON.keys() - {"json_object_keys"}
"""The functions that give rows in SELECT too; the keys of JSON are a list there, as in Spark."""
