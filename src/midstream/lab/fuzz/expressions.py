"""Random typed expressions, each written twice: as CQL, and as DuckDB's SQL with the same meaning.

Where DuckDB means something else by the same words (division by zero, casts that round, positions below one), its
text says in its own words what CQL means.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.streams import value

KINDS = ("integer", "double", "string", "boolean", "date", "decimal", "timestamp")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Value:
    """An expression in both languages, and the kind of its values."""

    cql: str
    sql: str
    kind: str


Columns = Sequence[Value]


def both(kind: str, form: str, *parts: Value, sql: str | None = None) -> Value:
    """An expression made of parts; `sql` is DuckDB's form where it differs."""
    return Value(form.format(*(p.cql for p in parts)), (sql or form).format(*(p.sql for p in parts)), kind)


def joined(separator: str, parts: list[Value], lead: str = "") -> Value:
    """Parts one after the other, behind a word; nothing of none."""
    if not parts:
        return Value("", "", "")
    return Value(lead + separator.join(p.cql for p in parts), lead + separator.join(p.sql for p in parts), "boolean")


def literal(kind: str, value: Any) -> Value:
    """A constant."""
    match value:
        case bool():
            return Value(str(value).upper(), str(value).upper(), kind)
        case float():
            return Value(_signed(value), f"CAST({value!r} AS DOUBLE)", kind)
        case int():
            return Value(_signed(value), f"CAST({value} AS BIGINT)", kind)
        case str():
            return Value(f"'{value}'", f"'{value}'", kind)
        case Decimal():
            return Value(f"DECIMAL '{value}'", f"CAST('{value}' AS DECIMAL(10, 2))", kind)
        case dt.datetime():
            text = f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case _:
            text = f"DATE '{value.isoformat()}'"
    return Value(text, text, kind)


def _signed(number: int | float) -> str:
    """In parentheses if negative, for two signs in a row begin a comment."""
    return repr(number) if number >= 0 else f"({number!r})"


@dataclass(frozen=True)
class Expressions:
    """Draws expressions over some columns."""

    choices: Choices
    columns: Columns
    allowed: bool = True

    def of(self, kind: str, depth: int = 2) -> Value:
        """An expression of a kind; nested at most `depth` deep."""
        makers = MAKERS[kind] if self.allowed and depth > 0 else []
        choice = self.choices.integer(-2, len(makers) - 1)
        return makers[choice](self, depth - 1) if choice >= 0 else self.leaf(kind)

    def leaf(self, kind: str) -> Value:
        """A column if there is one of the kind, or a constant."""
        columns = [c for c in self.columns if c.kind == kind]
        if columns and not self.choices.chance(5):
            return self.choices.choose(columns)
        return literal(kind, value(self.choices.random(), kind))

    def any_kind(self) -> str:
        """A kind, most often one there is a column of."""
        present = self._present()
        return self.choices.choose(present * 3 + list(KINDS) if self.allowed else present)

    def _present(self) -> list[str]:
        return sorted({c.kind for c in self.columns if c.kind in KINDS}) or ["integer"]

    def column(self, kind: str) -> Value | None:
        """A column of a kind, if there is one."""
        columns = [c for c in self.columns if c.kind == kind]
        return self.choices.choose(columns) if columns else None

    def pick(self, *options: str) -> str:
        """One of some words."""
        return self.choices.choose(options)

    def condition(self, depth: int = 2) -> Value:
        """A condition that most often looks at a column."""
        if self.allowed and depth > 0 and self.choices.flag():
            return self.of("boolean", depth)
        return self.comparison(self.choices.choose(self._present()), depth - 1)

    def comparison(self, kind: str, depth: int) -> Value:
        """A comparison of two values of a kind."""
        left, right = self.column(kind) or self.leaf(kind), self.of(kind, depth)
        if left == right:
            right = literal(kind, value(self.choices.random(), kind))
        return both("boolean", f"({{}} {self.pick(*COMPARISONS)} {{}})", left, right)


Maker = Callable[[Expressions, int], Value]


def _operator(kind: str, *symbols: str) -> Maker:
    return lambda e, d: both(kind, f"({{}} {e.pick(*symbols)} {{}})", e.of(kind, d), e.of(kind, d))


def _function(result: str, form: str, *kinds: str, sql: str | None = None) -> Maker:
    return lambda e, d: both(result, form, *(e.of(kind, d) for kind in kinds), sql=sql)


def _of_one_kind(form: str) -> Maker:
    """A condition on two or three values of any one kind."""

    def make(e: Expressions, d: int) -> Value:
        kind = e.any_kind()
        return both("boolean", form, *(e.of(kind, min(d, 1)) for _ in range(form.count("{}"))))

    return make


def _rows_compared(e: Expressions, d: int) -> Value:
    """Two rows; a database compares structs, in which nulls are values."""
    kinds = [e.any_kind(), e.any_kind()] * 2
    word = e.pick(*COMPARISONS)
    sql = f"({{0}} {word[0]} {{2}} OR ({{0}} = {{2}} AND {{1}} {word} {{3}}))"
    if word in ("=", "<>"):
        sql = f"({{0}} {word} {{2}} {'AND' if word == '=' else 'OR'} {{1}} {word} {{3}})"
    return both("boolean", f"(({{}}, {{}}) {word} ({{}}, {{}}))", *(e.of(k, min(d, 1)) for k in kinds), sql=sql)


def _conditional(kind: str) -> Maker:
    return lambda e, d: both(
        kind, "CASE WHEN {} THEN {} ELSE {} END", e.condition(min(d, 1)), e.of(kind, d), e.of(kind, d)
    )


def _one_armed(kind: str) -> Maker:
    return lambda e, d: both(kind, "CASE WHEN {} THEN {} END", e.condition(min(d, 1)), e.of(kind, d))


def _general(kind: str) -> list[Maker]:
    """What there is for every kind."""
    return [
        _conditional(kind),
        _one_armed(kind),
        _function(kind, "coalesce({}, {})", kind, kind),
        _function(kind, "nullif({}, {})", kind, kind),
        _function(kind, "greatest({}, {})", kind, kind),
        _function(kind, "least({}, {}, {})", kind, kind, kind),
    ]


def _substring(e: Expressions, d: int) -> Value:
    text, start, length = e.of("string", d), e.choices.integer(-1, 3), e.choices.integer(0, 3)
    visible = max(start, 1), max(0, start + length - max(start, 1))
    return both(
        "string", f"substring({{}}, {start}, {length})", text, sql=f"substring({{}}, {visible[0]}, {visible[1]})"
    )


def _text_function(*names: str) -> Maker:
    return lambda e, d: both("string", f"{e.pick(*names)}({{}})", e.of("string", d))


def _cut(e: Expressions, d: int) -> Value:
    return both("string", f"{e.pick('left', 'right')}({{}}, {e.choices.integer(0, 3)})", e.of("string", d))


def _pad(e: Expressions, d: int) -> Value:
    return both("string", f"{e.pick('lpad', 'rpad')}({{}}, {e.choices.integer(0, 4)}, 'xy')", e.of("string", d))


def _text_condition(e: Expressions, d: int) -> Value:
    form = e.pick(
        "({} LIKE 'a%')",
        "({} LIKE '_b%')",
        "({} NOT LIKE '%_')",
        "({} ILIKE 'A%')",
        "starts_with({}, 'a')",
        "ends_with({}, 'b')",
        "contains({}, 'b')",
        "regexp_matches({}, '^a.?$')",
    )
    return both("boolean", form, e.of("string", d))


def _membership(e: Expressions, d: int) -> Value:
    kind = e.any_kind()
    parts = [e.of(kind, min(d, 1)) for _ in range(3)]
    last = e.pick("{}", "NULL", "{}")
    form = f"({{}} {e.pick('IN', 'NOT IN')} ({{}}, {last}))"
    return both("boolean", form, *parts[: form.count("{}")])


def _clock_field(e: Expressions, d: int) -> Value:
    kind = e.pick("date", "timestamp")
    fields = ("year", "month", "day", "dayofweek", "dayofyear")
    field = e.pick(*fields) if kind == "date" else e.pick(*fields, "hour", "minute", "epoch_ms")
    # DuckDB rounds to milliseconds, CQL cuts.
    return both(
        "integer", f"{field}({{}})", e.of(kind, d), sql="(epoch_us({}) // 1000)" if field == "epoch_ms" else None
    )


def _moved(e: Expressions, d: int) -> Value:
    amount = e.pick("90 minutes", "1 day", "30 seconds")
    return both("timestamp", f"({{}} {e.pick('+', '-')} INTERVAL '{amount}')", e.of("timestamp", d))


def _truncated(kind: str, *units: str) -> Maker:
    def make(e: Expressions, d: int) -> Value:
        return both(kind, f"CAST(date_trunc('{e.pick(*units)}', {{}}) AS {kind.upper()})", e.of(kind, d))

    return make


def _rounded(e: Expressions, d: int) -> Value:
    return both("double", e.pick("round({})", "round({}, 1)", "floor({})", "ceil({})", "abs({})"), e.of("double", d))


MAKERS: dict[str, list[Maker]] = {
    "integer": [
        *_general("integer"),
        _operator("integer", "+", "-", "*"),
        _operator("integer", "+", "-", "*"),
        _function("integer", "({} % {})", "integer", "integer", sql="({} % nullif({}, 0))"),
        _function("integer", "(-{})", "integer"),
        _function("integer", "abs({})", "integer"),
        _function("integer", "sign({})", "integer", sql="CAST(sign({}) AS BIGINT)"),
        _function("integer", "length({})", "string"),
        _function("integer", "strpos({}, {})", "string", "string"),
        _function("integer", "CAST({} AS BIGINT)", "double", sql="CAST(trunc({}) AS BIGINT)"),
        _function("integer", "CAST({} AS BIGINT)", "boolean"),
        _clock_field,
    ],
    "double": [
        *_general("double"),
        _operator("double", "+", "-", "*"),
        _function(
            "double", "({} / {})", "integer", "integer", sql="(CAST({} AS DOUBLE) / nullif(CAST({} AS DOUBLE), 0))"
        ),
        _function("double", "({} / {})", "double", "double", sql="({} / nullif({}, 0))"),
        _function("double", "({} % {})", "double", "double", sql="({} % nullif({}, 0))"),
        _function("double", "({} + {})", "integer", "double"),
        _function("double", "CAST({} AS DOUBLE)", "integer"),
        _function("double", "CAST({} AS DOUBLE)", "decimal"),
        _function("double", "power({}, 2)", "double"),
        _rounded,
    ],
    "string": [
        *_general("string"),
        _operator("string", "||"),
        _function("string", "concat({}, {})", "string", "string"),
        _function("string", "replace({}, 'a', 'bc')", "string"),
        _function("string", "split_part({}, ',', 1)", "string"),
        _function("string", "CAST({} AS VARCHAR)", "integer"),
        _function("string", "CAST({} AS VARCHAR)", "date"),
        _function("string", "strftime({}, '%Y-%m')", "date"),
        _text_function("upper", "lower", "trim", "ltrim", "rtrim", "reverse"),
        _substring,
        _cut,
        _pad,
    ],
    "boolean": [
        *_general("boolean"),
        _of_one_kind("({} = {})"),
        _of_one_kind("({} <= {})"),
        _of_one_kind("({} BETWEEN {} AND {})"),
        _of_one_kind("({} IS NULL)"),
        _of_one_kind("({} IS NOT NULL)"),
        _of_one_kind("({} IS DISTINCT FROM {})"),
        _of_one_kind("({} IS NOT DISTINCT FROM {})"),
        _operator("boolean", "AND", "OR"),
        _operator("boolean", "AND", "OR"),
        _function("boolean", "(NOT {})", "boolean"),
        _function("boolean", "({} < {})", "integer", "double"),
        _function("boolean", "({} >= {})", "decimal", "integer"),
        _membership,
        _text_condition,
        _rows_compared,
    ],
    "date": [
        *_general("date"),
        _function("date", "CAST({} AS DATE)", "timestamp"),
        _truncated("date", "month", "week", "year"),
    ],
    "decimal": [
        *_general("decimal"),
        _operator("decimal", "+", "-"),
        _function("decimal", "({} + {})", "decimal", "integer"),
        _function("decimal", "abs({})", "decimal"),
    ],
    "timestamp": [
        *_general("timestamp"),
        _function("timestamp", "CAST({} AS TIMESTAMP)", "date"),
        _truncated("timestamp", "hour", "day", "minute", "month"),
        _moved,
    ],
}

INEXACT: list[Maker] = [
    _function("inexact", "sqrt({})", "double", sql="sqrt(CASE WHEN {0} >= 0 THEN {0} END)"),
    _function("inexact", "ln({})", "double", sql="ln(CASE WHEN {0} > 0 THEN {0} END)"),
    _function("inexact", "log10({})", "double", sql="log10(CASE WHEN {0} > 0 THEN {0} END)"),
    _function("inexact", "exp({} / 64)", "double", sql="exp({} / 64)"),
    _function("inexact", "(1.0 / {})", "double", sql="(CAST(1 AS DOUBLE) / nullif({}, 0))"),
]
"""Doubles that two systems may compute with different last bits: selected, never compared."""
