"""Texts that are too long, too deep or too wide get a clear error, never a hang and never an overflow."""

from __future__ import annotations

import pytest
from tests.language.catalogs import CATALOG

from midstream.algebra.expressions import Call
from midstream.algebra.plan import Select
from midstream.errors import QueryError
from midstream.language import parse

DEEP = 20_000


def refused(query: str) -> str:
    with pytest.raises(QueryError) as caught:
        parse(query, CATALOG)
    return str(caught.value)


def test_ten_megabytes_are_not_even_read() -> None:
    assert "10,000,009 characters long" in refused("SELECT " + "1+" * 5_000_000 + "1+")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(" * DEEP + "k" + ")" * DEEP + " FROM A",
        "SELECT " + "(" * DEEP,
        "SELECT k FROM A" + "[" * DEEP,
        "SELECT " + "abs(" * DEEP + "k" + ")" * DEEP + " FROM A",
        "SELECT " + "NOT " * DEEP + "TRUE FROM A",
        "SELECT " + "-" * 1 + " -" * DEEP + "k FROM A",
        "SELECT " + "CASE WHEN TRUE THEN " * 4_000 + "1" + " END" * 4_000 + " FROM A",
        "SELECT " + "k + " * 4_000 + "k FROM A",
        "SELECT k" + "::INT::BIGINT" * 4_000 + " FROM A",
        "SELECT * FROM " + "(SELECT * FROM " * 4_000 + "A" + ")" * 4_000,
        "(" * 4_000 + "SELECT k FROM A" + ")" * 4_000,
        "SELECT k FROM A WHERE " + "EXISTS (SELECT 1 FROM A WHERE " * 4_000,
    ],
    ids=lambda query: query[:30],
)
def test_deep_nesting_is_refused_at_its_place(query: str) -> None:
    assert "deeper than" in refused(query)


def test_what_is_just_shallow_enough_is_bound() -> None:
    parse("SELECT " + "(" * 98 + "k" + ")" * 98 + " FROM A", CATALOG)
    parse("SELECT " + "abs(" * 90 + "k" + ")" * 90 + " FROM A", CATALOG)
    parse("SELECT " + "k + " * 90 + "k FROM A", CATALOG)
    str(parse("SELECT * FROM " + "(SELECT * FROM " * 25 + "A [NOW]" + ")" * 25, CATALOG))


def test_queries_of_with_that_multiply_are_refused() -> None:
    doubling = [f"a{i} AS (SELECT x.k FROM a{i - 1} AS x, a{i - 1} AS y)" for i in range(1, 20)]
    query = f"WITH a0 AS (SELECT k FROM A [NOW]), {', '.join(doubling)} SELECT * FROM a19"
    assert "more than 100 streams" in refused(query)


def test_long_chains_of_with_are_refused() -> None:
    chain = [f"a{i} AS (SELECT k FROM a{i - 1})" for i in range(1, 200)]
    query = f"WITH a0 AS (SELECT k FROM A [NOW]), {', '.join(chain)} SELECT * FROM a199"
    assert "deeper than" in refused(query)


def test_long_conditions_are_flat() -> None:
    plan = parse("SELECT k FROM A WHERE " + " AND ".join(["k = 1"] * 3000), CATALOG)
    select = plan.inputs[0]
    assert isinstance(select, Select)
    assert isinstance(select.predicate, Call)
    assert len(select.predicate.args) == 3000


def test_many_sources_and_columns_are_refused() -> None:
    assert "more than 100 streams" in refused("SELECT 1 FROM " + ", ".join(f"A [NOW] AS a{i}" for i in range(200)))
    assert "more than 100 streams" in refused(" UNION ALL ".join(["SELECT k FROM A"] * 2000))
    assert "more than 2,000 columns" in refused("SELECT " + ", ".join(["k"] * 3000) + " FROM A")


def test_endless_words_are_refused() -> None:
    assert "1 to 255 characters" in refused("SELECT " + "a" * 900_000 + " FROM A")
    assert "too long" in refused("SELECT " + "1" * 900_000 + " FROM A")
    assert "too long" in refused("SELECT k FROM A [RANGE " + "1" * 900_000 + "]")
    assert "is not a date" in refused("SELECT DATE '" + "1" * 900_000 + "' FROM A")
    assert "missing */" in refused("SELECT " + "/*" * 100_000)


def test_half_characters_are_refused_where_they_stand() -> None:
    message = refused("SELECT '\ud800' FROM A")
    assert message.startswith("line 1, column 9: the query holds half of a character")
    message.encode()


def test_intervals_that_no_column_can_hold_are_refused() -> None:
    for days in ("999999999", "-999999999", "106751992", "99999999999999"):
        assert "is too long a time" in refused(f"SELECT INTERVAL '{days} days' AS x FROM A")
    parse("SELECT INTERVAL '106751991 days' AS x FROM A", CATALOG)


def test_durations_are_not_tried_in_columns_nor_written_into_text() -> None:
    """There is no one text of a duration."""
    parse("SELECT CAST(k || ' minutes' AS INTERVAL) AS x FROM A", CATALOG)
    assert "cannot cast string to duration" in refused("SELECT TRY_CAST(lower('x') AS INTERVAL) AS x FROM A")
    assert "cannot cast duration[us] to string" in refused("SELECT CAST(INTERVAL '5 seconds' AS STRING) AS x FROM A")
    parse("SELECT CAST('5 seconds' AS INTERVAL) AS x FROM A", CATALOG)
