"""Streams and results as tests write them down: a small table in a text, or column names and rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from midstream.errors import InputError
from midstream.inputs import table_of
from midstream.inputs.ddl import schema_of_ddl

_RULE = re.compile(r"[\s|+\-─═]*")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")


def stream(literal: str | Sequence[Any], *rows: Sequence[Any], schema: str | pa.Schema | None = None) -> pa.Table:
    """A table from a text whose first line names the columns, or from column names and rows.

    In a text, columns are apart by `|`; blank cells and NULL are null, as is ∞, the end of what never ends; quotes make
    a text. Types follow from the values, or from a `schema`, as job files write it.

    >>> stream('''
    ...     ts | id | name
    ...     0  | 1  | ann
    ...     5  | 2  |
    ... ''').to_pylist()
    [{'ts': 0, 'id': 1, 'name': 'ann'}, {'ts': 5, 'id': 2, 'name': None}]
    >>> stream("ts id", (0, 1), (5, 2)).to_pylist()
    [{'ts': 0, 'id': 1}, {'ts': 5, 'id': 2}]
    """
    wanted = schema_of_ddl(schema) if isinstance(schema, str) else schema or pa.schema([])
    names, values = _written(literal) if isinstance(literal, str) and "\n" in literal else _listed(literal, rows)
    columns = {name: [row[place] for row in values] for place, name in enumerate(names)}
    return table_of("literal", columns, wanted)


def _listed(names: str | Sequence[Any], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[Sequence[Any]]]:
    columns = [name for name in re.split(r"[\s,|]+", names) if name] if isinstance(names, str) else list(names)
    for row in rows:
        _require_as_many(columns, row, row)
    return columns, list(rows)


def _written(text: str) -> tuple[list[str], list[Sequence[Any]]]:
    lines = [line.strip() for line in text.splitlines() if not _RULE.fullmatch(line)]
    head, *rest = [_cells(line) for line in lines]
    for line, cells in zip(lines[1:], rest, strict=True):
        _require_as_many(head, cells, line)
    readers = [_reader([cells[place] for cells in rest]) for place in range(len(head))]
    return head, [[read(cell) for read, cell in zip(readers, cells, strict=True)] for cells in rest]


def _cells(line: str) -> list[str]:
    inner = line[1:] if line.startswith("|") else line
    inner = inner[:-1] if line.startswith("|") and inner.endswith("|") else inner
    return [cell.strip() for cell in inner.split("|")]


def _require_as_many(names: Sequence[str], cells: Sequence[Any], shown: object) -> None:
    if len(cells) != len(names):
        raise InputError(f"there are {len(names)} columns, but {len(cells)} values in {shown}")


def _reader(cells: Sequence[str]) -> Callable[[str], Any]:
    """How all cells of a column are read: as the first kind that fits every one of them."""
    present = [cell for cell in cells if not _is_null(cell)]
    for fits, read in _KINDS:
        if all(fits(cell) for cell in present):
            return lambda cell: None if _is_null(cell) else read(cell)
    return lambda cell: None if _is_null(cell) else _unquoted(cell)


def _is_null(cell: str) -> bool:
    return cell in ("", "NULL", "null", "∞")


def _unquoted(cell: str) -> str:
    quoted = len(cell) > 1 and cell[0] == cell[-1] and cell[0] in "'\""
    return cell[1:-1] if quoted else cell


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda cell: re.fullmatch(pattern, cell) is not None


_KINDS: tuple[tuple[Callable[[str], bool], Callable[[str], Any]], ...] = (
    (_matches(r"[+-]?\d[\d_]*"), int),
    (_matches(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"), float),
    (_matches(r"true|false"), lambda cell: cell == "true"),
    (lambda cell: _TIME.fullmatch(cell) is not None, lambda cell: dt.datetime.fromisoformat(cell)),
)
