"""Functions of lists that take a function of elements, as SQL of DuckDB, and the SQL of such a function."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as kind

from midstream.algebra.borrowed import BORROWED, borrow, columns_among, constant
from midstream.algebra.borrowed_forms import decided
from midstream.algebra.expressions import INFIX, Call, Case, Cast, Column, Expression, Literal
from midstream.algebra.types import has_elements
from midstream.errors import QueryError

LIST_FUNCTIONS = {
    **dict.fromkeys(
        ("list_transform", "array_transform", "list_apply", "apply", "transform"), "list_transform({0}, {f})"
    ),
    **dict.fromkeys(("list_filter", "array_filter", "filter"), "list_filter({0}, {f})"),
    **dict.fromkeys(("list_reduce", "array_reduce", "reduce", "aggregate"), "list_reduce({0}, {f})"),
    **dict.fromkeys(("any_match", "array_any_match", "exists"), decided("any", "list_transform({0}, {f})")),
    **dict.fromkeys(("all_match", "forall"), decided("all", "list_transform({0}, {f})")),
    "zip_with": "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN list_transform(list_zip({0}, {1}), {f}) END",
    "array_sort": (
        "list_transform(list_sort(list_transform({0}, lambda x, i: {'less': len(list_filter({0}, lambda y:"
        " list_transform([[y, x]], {f})[1] < 0)), 'place': i, 'it': x})), lambda e: e.it)"
    ),
    "map_filter": "map_from_entries(list_filter({0}, {f}))",
    "transform_keys": "map_from_entries(list_transform({0}, lambda {p}: {'key': {b}, 'value': {p}.value}))",
    "transform_values": "map_from_entries(list_transform({0}, lambda {p}: {'key': {p}.key, 'value': {b}}))",
}
"""The functions by name, over a list and the function that is applied: `{f}`, of parameters `{p}` and a body `{b}`."""

OF_MAPS = {"filter": "map_filter"}
"""Functions that give maps of maps, by what they are called of lists."""


def form_of(name: str, type_: pa.DataType) -> str | None:
    """The form of a function over a value of a type; a map is the list of its entries."""
    if kind.is_map(type_):
        return LIST_FUNCTIONS[OF_MAPS.get(name, name)].replace("{0}", "map_entries({0})")
    return None if "map" in LIST_FUNCTIONS[name] else LIST_FUNCTIONS[name]


def parts_of(types: Sequence[pa.DataType]) -> list[tuple[str, pa.DataType]]:
    """What a function's values are of an element of a map, of a list, or of several side by side; none of others."""
    if kind.is_map(types[0]):
        return [(".key", types[0].key_type), (".value", types[0].item_type)]
    if not all(map(has_elements, types)):
        return []
    return [(f"[{place}]" * (len(types) > 1), type_.value_type) for place, type_ in enumerate(types, 1)]


_TYPES = """
    int8 TINYINT, int16 SMALLINT, int32 INTEGER, int64 BIGINT, float32 FLOAT, float64 DOUBLE, string VARCHAR,
    bool BOOLEAN, date32 DATE, timestamp[us] TIMESTAMP
"""

TYPES = {pa.type_for_alias(kind): name for kind, name in map(str.split, _TYPES.split(","))}
"""Types as DuckDB calls them."""


_COLUMN = re.compile(r"'(?:[^']|'')*'|\bc(\d+)\b")
"""A text, which stays as it is, or a column."""


def body_in_sql(value: Expression, names: Mapping[str, str], own: Container[str]) -> str:
    """A value as SQL of DuckDB; no function of the user (`own`) can be called there."""
    match value:
        case Column(name):
            return names[name]
        case Literal():
            return "NULL" if value.value is None else constant(value) or _refused(value)
        case Cast(inner, type_, attempt):
            name = TYPES.get(type_) or _refused(value)
            return f"{'TRY_' if attempt else ''}CAST({body_in_sql(inner, names, own)} AS {name})"
        case Case(branches, default):
            whens = (f"WHEN {body_in_sql(c, names, own)} THEN {body_in_sql(v, names, own)}" for c, v in branches)
            return f"CASE {' '.join(whens)} ELSE {body_in_sql(default, names, own)} END"
    assert isinstance(value, Call)
    texts = [body_in_sql(argument, names, own) for argument in value.args]
    if value.function in BORROWED:
        columns = [texts[i] for i in columns_among(value.args)]
        written = borrow(value.function, value.args).sql
        return _COLUMN.sub(lambda found: columns[int(found[1])] if found[1] else found[0], written)
    if value.function in own:
        raise QueryError(f"{value.function} cannot be called within a function of elements")
    if value.function in INFIX:
        return "(" + f" {value.function.upper()} ".join(texts) + ")"
    match value.function:
        case "not" | "negate":
            return f"({'NOT ' if value.function == 'not' else '-'}{texts[0]})"
        case "is_null":
            return f"({texts[0]} IS NULL)"
        case "in":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        case "like" | "ilike" | "is_distinct_from" | "is_not_distinct_from":
            return f"({texts[0]} {value.function.replace('_', ' ').upper()} {texts[1]})"
    return f"{value.function}({', '.join(texts)})"


def _refused(value: Expression) -> str:
    raise QueryError(f"{value} cannot stand within a function of elements")
