"""What the documentation shows is what the language does."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.algebra.functions import AGGREGATE, SCALAR, UNWRITTEN
from midstream.errors import QueryError
from midstream.language import parse
from midstream.language.dialect import CQL

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text()

OFFERS = pa.schema([("ts", pa.int64()), ("item", pa.string()), ("price", pa.float64()), ("bidder", pa.string())])
PAID = pa.schema([("at", pa.timestamp("us")), ("item", pa.string()), ("amount", pa.decimal128(10, 2))])
ORDERED = PAID.append(pa.field("day", pa.date32())).append(pa.field("note", pa.string()))

CATALOG = Catalog(
    {
        "bids": StreamDeclaration("bids", OFFERS, "ts"),
        "asks": StreamDeclaration("asks", OFFERS, "ts"),
        "ticks": StreamDeclaration("ticks", pa.schema([("ts", pa.int64()), ("item", pa.string())]), "ts"),
        "orders": StreamDeclaration("orders", ORDERED, "at"),
        "payments": StreamDeclaration("payments", PAID, "at"),
    }
)

EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("query", EXAMPLES)
def test_every_example_is_a_query(query: str) -> None:
    parse(query, CATALOG)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


def test_every_window_of_the_table_is_read() -> None:
    windows = re.findall(r"^\| `(\[.*?\])` \|", PAGE, flags=re.MULTILINE)
    assert len(windows) == 13
    values = {
        r"\bw\b": "10",
        r"\b[nm]\b": "3",
        "size": "10",
        "slide|step|gap": "5",
        "a, b": "item, bidder",
        r"\bx\b": "ts",
    }
    for window in windows:
        for word, value in values.items():
            window = re.sub(word, value, window)
        parse(f"SELECT item FROM bids {window}", CATALOG)


def test_every_function_is_named() -> None:
    for name in {*SCALAR, *AGGREGATE} - UNWRITTEN:
        if name.isidentifier():
            assert re.search(rf"\b{name}\b", PAGE), name


def test_exactly_the_reserved_words_are_listed() -> None:
    listed = PAGE.partition("Only these words need quotes:")[2].partition(".\n")[0]
    reserved = {word for word in CQL.Tokenizer.KEYWORDS if word.isalpha()}
    assert set(re.findall(r"[A-Z]+", listed)) == reserved


def test_the_error_shown_is_the_error_given() -> None:
    shown = PAGE.partition("## Mistakes")[2].partition("```text\n")[2].partition("```")[0]
    with pytest.raises(QueryError) as caught:
        parse("SELECT *\nFROM bidz [RANGE 100]", CATALOG)
    assert str(caught.value) == shown.rstrip()
