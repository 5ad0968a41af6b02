"""Every mistake, as the error a user reads: the message, the place with its caret, and what would be right."""

from __future__ import annotations

import pytest
from tests.language.catalogs import CATALOG
from tests.language.golden import examples

from midstream.errors import QueryError
from midstream.language import parse


@pytest.mark.parametrize(("query", "expected"), examples("errors"))
def test_a_mistake_is_answered_so(query: str, expected: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(query, CATALOG)
    assert str(caught.value) == expected
    assert caught.value.line is not None


@pytest.mark.parametrize("query", ["", "   \n\t", "-- nothing but a comment", ";", ";;"])
def test_an_empty_query_says_so(query: str) -> None:
    with pytest.raises(QueryError, match="the query is empty"):
        parse(query, CATALOG)


@pytest.mark.parametrize("query", [None, 5, b"SELECT k FROM A", ["SELECT k FROM A"]])
def test_a_query_must_be_a_text(query: object) -> None:
    with pytest.raises(QueryError, match="a query is a text, not"):
        parse(query, CATALOG)  # type: ignore[arg-type]


def test_the_place_is_found_in_a_text_of_several_lines() -> None:
    with pytest.raises(QueryError) as caught:
        parse("SELECT k,\n       nme\nFROM A", CATALOG)
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert "         ^" in str(caught.value)


def test_an_error_in_with_points_into_with() -> None:
    with pytest.raises(QueryError) as caught:
        parse("WITH x AS (SELECT z FROM A) SELECT * FROM x", CATALOG)
    assert caught.value.column == 19
