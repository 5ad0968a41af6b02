"""Random calls with OVER, and the first rows of a result.

Rows that are equal in an order may come one way or the other, so functions that can tell them apart are ordered by all
columns: rows that are equal then are the same.
"""

from __future__ import annotations

from midstream.lab.fuzz.expressions import Expressions, Value, both

BY_GROUPS = ("rank()", "dense_rank()", "percent_rank()", "cume_dist()", "count(*)", "min({})", "max({})")
BY_ROWS = (
    "row_number()",
    "ntile(3)",
    "lag({})",
    "lag({} IGNORE NULLS)",
    "lead({}, 2)",
    "lead({}, 2 IGNORE NULLS)",
    "first_value({})",
    "first_value({} IGNORE NULLS)",
    "last_value({})",
    "nth_value({}, 2)",
    "count({})",
    "max({})",
)
STARTS = ("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING")
ENDS = ("1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")


def draw_over(e: Expressions) -> Value:
    """A function of the rows around a row."""
    by_rows = e.choices.flag()
    keys = e.choices.some(list(e.columns), 0, 1)
    order = list(e.columns) if by_rows else e.choices.some(list(e.columns), 0, 2)
    form = e.pick(*(BY_ROWS if by_rows else BY_GROUPS))
    argument = [e.choices.choose(e.columns)] if "{}" in form else []
    kind = argument[0].kind if argument and not form.startswith("count") else "integer"
    if form.startswith(("percent_rank", "cume_dist")):
        kind = "double"
    frame = _frame(e, by_rows, order)
    if frame and not form.startswith(("row_number", "ntile", "lag", "lead", "rank", "dense", "percent", "cume")):
        frame += e.pick("", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
    text = f"{form} OVER ({_listed('PARTITION BY', keys)}{_listed('ORDER BY', order, e)}{frame})"
    return both(kind, text, *argument, *keys, *order)


def draw_place(e: Expressions) -> Value:
    """The place of a row in its partition."""
    form = e.pick("row_number()", "rank()", "dense_rank()")
    keys = e.choices.some(list(e.columns), 0, 1)
    order = list(e.columns) if form == "row_number()" else e.choices.some(list(e.columns), 1, 2)
    text = f"{form} OVER ({_listed('PARTITION BY', keys)}{_listed('ORDER BY', order, e)})"
    return both("integer", text, *keys, *order)


def first_rows(columns: tuple[Value, ...], limit: int, offset: int) -> str:
    """ORDER BY all columns and LIMIT."""
    return f"{in_order(columns)} LIMIT {limit}" + (f" OFFSET {offset}" if offset else "")


def in_order(columns: tuple[Value, ...]) -> str:
    """ORDER BY all columns."""
    return f" ORDER BY {', '.join(str(place) for place in range(1, len(columns) + 1))}"


def _listed(words: str, values: list[Value], e: Expressions | None = None) -> str:
    ways = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
    return f"{words} {', '.join('{}' + (e.pick(*ways) if e else '') for _ in values)} " if values else ""


def _frame(e: Expressions, by_rows: bool, order: list[Value]) -> str:
    if e.choices.flag():
        return ""
    start, end = e.choices.integer(0, 3), e.choices.integer(0, 3)
    if start > end + 1 or (start, end) == (2, 0):
        end = 3
    unit = "ROWS" if by_rows else "GROUPS" if order else "RANGE"
    if unit == "RANGE":
        return "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return f"{unit} BETWEEN {STARTS[start]} AND {ENDS[end]}"
