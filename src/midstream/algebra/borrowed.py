"""Calls of functions whose meaning is DuckDB's: the SQL that they stand for, and its type.

Constants are written into the SQL, because some functions take nothing else; types are whatever DuckDB says. Amounts of
time go in as days and microseconds, as DuckDB has them, and come out as microseconds.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as kind

from midstream.algebra.borrowed_forms import AMOUNT
from midstream.algebra.borrowed_functions import FUNCTIONS
from midstream.algebra.database import column_name, measured, type_of
from midstream.algebra.expressions import Call, Case, Expression, Literal, filled
from midstream.algebra.signatures import refuse
from midstream.algebra.types import plain
from midstream.errors import QueryError

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


BORROWED: Mapping[str, tuple[str, ...]] = _Templates(FUNCTIONS)
"""Every function that DuckDB computes."""

DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The SQL of a call over its arguments that are no constants, in their order, and its type."""

    sql: str
    type: pa.DataType


HOLD_JSON = frozenset({"json_object", "json_array", "to_json", "to_json_string"})
"""Functions that make JSON of values, in which JSON is no text."""

GIVE_JSON = HOLD_JSON | {"as_json", "parse_json", "json_merge_patch", "json_extract", "json_at", "json_without"}
"""Functions that give JSON."""

_OPERATORS = {
    "json_has_key": ("?", "it takes JSON and a text: does the object have this key?"),
    "json_at": ("#>", "it takes JSON and a path as text, such as '{a,b}'"),
    "json_text_at": ("#>>", "it takes JSON and a path as text, such as '{a,b}'"),
    "list_within": ("<@", "it takes two lists, or JSON: does the second have all that the first has?"),
}
"""Functions that are written as operators, and what these take."""


def borrow(function: str, arguments: Sequence[Expression]) -> Borrowed:
    """What a function makes of its arguments; a QueryError if it has no meaning for them."""
    types = tuple(plain(a.type) for a in arguments)
    if function not in BORROWED:
        raise refuse(function, types)
    texts = _texts(arguments, function in HOLD_JSON)
    columns = tuple(plain(a.type) for a in arguments if constant(a) is None)
    problem = f"it takes {_counts(BORROWED[function])} arguments"
    for template in BORROWED[function]:
        sql = _filled(template, texts)
        if sql is None:
            continue
        try:
            found = type_of(sql, columns)
            if any(map(kind.is_interval, columns)) and kind.is_duration(found):
                sql = AMOUNT.replace("{0}", f"({sql})")
            return Borrowed(measured(sql, found), found)
        except QueryError as error:
            problem = candidates(error.message)
    written, hint = _OPERATORS.get(function, (function, problem))
    raise refuse(written, types, hint)


def json_type(value: Expression) -> str:
    """What a value is in SQL that is known to be JSON, or a list of it; else nothing: to the language it is a text."""
    if isinstance(value, Call) and value.function in GIVE_JSON:
        return "JSON" if kind.is_string(value.type) else "JSON[]"
    listed, chosen = (isinstance(value, Call) and value.function == word for word in ("list_value", "coalesce"))
    parts = value.arguments if listed or chosen else ()
    if isinstance(value, Case):
        parts = (*(part for _, part in value.branches), value.default)
    known = {json_type(part) for part in parts if not isinstance(part, Literal)}
    return ("JSON[]" if listed else "JSON") if known == {"JSON"} else ""


def columns_among(arguments: Sequence[Expression]) -> list[int]:
    """Which arguments are columns in SQL, and no constants."""
    return [i for i, argument in enumerate(arguments) if constant(argument) is None]


def _texts(arguments: Sequence[Expression], hold_json: bool) -> list[str]:
    places = iter(range(len(arguments)))
    types = [f"::{name}" if hold_json and (name := json_type(a)) else "" for a in arguments]
    columns = zip(arguments, types, strict=True)
    return [constant(a) or _column(column_name(next(places)), a.type) + type_ for a, type_ in columns]


def _column(name: str, type_: pa.DataType) -> str:
    """A column in SQL; amounts of time are days and what is left, as a difference of times is there."""
    if not kind.is_duration(type_):
        return name
    return f"(to_days((epoch_us({name}) // {DAY})::INTEGER) + to_microseconds(epoch_us({name}) % {DAY}))"


def _counts(templates: Sequence[str]) -> str:
    """How many arguments the templates of a function take."""
    highest = {max(map(int, re.findall(r"\{(\d)\}", template)), default=-1) for template in templates}
    return " or ".join(str(place + 1) for place in sorted(highest))


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


_PLACE = re.compile(r"\{(?=[\w*:])")
"""How a place in a template begins, which a text must not be taken for."""


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
            quoted = "'" + value.replace("'", "''") + "'"
            apart = _PLACE.sub("' || chr(123) || '", quoted)
            return quoted if apart == quoted else f"({apart})"
        case dt.date() as value if not isinstance(value, dt.datetime):
            return f"DATE '{value.isoformat()}'"
        case dt.timedelta() as value:
            whole, rest = divmod(abs(value) // dt.timedelta(microseconds=1), DAY)
            return f"({'-' * (value < dt.timedelta(0))}INTERVAL '{whole} days {rest} microseconds')"
    return None
