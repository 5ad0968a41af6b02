"""What the page about our values says of them is so."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import midstream as ms

PAGE = (Path(__file__).parents[2] / "docs" / "values.md").read_text()
SAID: dict[str, Any] = {
    "1 / 2": 0.5,
    "1 // 2": 0,
    "substring('hello', -3)": "llo",
    "x / 0": None,
    "x % 0": None,
    "ln(0)": None,
    "log10(-1)": None,
    "sqrt(-1)": None,
    "CAST(1.5 AS INT)": 1,
    "CAST(x AS DECIMAL)": Decimal("7.0000000000"),
    "round(2.5)": 3.0,
    "round(-2.5)": -3.0,
    "'a\\_b' LIKE 'a\\_b'": True,
    "split_part('a,b', ',', 5)": "",
    "'5' = 5": True,
    "(1, NULL) = (1, 2)": None,
    "0.1 + 0.2 = 0.3": False,
    "round(-1.5, -1)": -0.0,
    "typeof(1)": "INTEGER",
    "typeof(x)": "BIGINT",
    "1 # 2 & 4": 0,
    "to_hex(255)": "FF",
    "CAST(['a', 'b'] AS TEXT)": "[a, b]",
    "CAST('\\x61' AS BYTEA)": b"\\x61",
    "X'61'": b"a",
    "'{\"a\": 1}' @> '{\"a\": 1.0}'": False,
    "url_extract_path('http://a.b')": None,
    "url_extract_path('a.b/c')": None,
    "NULL = NULL": None,
    "mask('a-1')": "x-n",
    "to_json({'a': CAST('[1]' AS JSON)})": '{"a":"[1]"}',
    "json_object('a', CAST('[1]' AS JSON))": '{"a":[1]}',
    "unhex('61')": b"a",
}


@pytest.mark.parametrize("expression", list(SAID))
def test_an_expression_has_the_value_that_is_said(expression: str) -> None:
    assert f"`{expression}`" in PAGE
    for run in (ms.run, ms.reference):
        assert run(f"SELECT {expression} AS it FROM S", {"S": [{"ts": 1, "x": 7}]})["it"].to_pylist() == [
            SAID[expression]
        ]


@pytest.mark.parametrize("expression", ["9223372036854775807 + 1", "CAST('x' AS INT)"])
def test_an_expression_stops_the_query_as_is_said(expression: str) -> None:
    assert f"`{expression}`" in PAGE
    with pytest.raises(ms.InputError):
        ms.run(f"SELECT {expression} AS it FROM S", {"S": [{"ts": 1}]})


def test_of_rows_at_one_time_the_newest_is_the_last_that_came() -> None:
    rows = [{"ts": 1, "v": 3}, {"ts": 1, "v": 9}, {"ts": 1, "v": 5}]
    for run in (ms.run, ms.reference):
        found = run("SELECT v FROM S [ROWS 1]", {"S": rows})
        assert [row["v"] for row in found.to_pylist() if row["valid_to"] is None] == [5]
