"""MATCH_RECOGNIZE finds what regular expressions find, and what its definition says."""

from __future__ import annotations

import re
from random import Random

import pyarrow as pa
import pytest

import midstream as ms

CLASSES = {"A": "a", "B": "b", "C": "[ab]", "D": "[bc]", "E": "."}
CONDITIONS = {"A": "c = 'a'", "B": "c = 'b'", "C": "c IN ('a', 'b')", "D": "c <> 'a'"}


def pattern(random: Random, depth: int = 2) -> tuple[str, str]:
    """A pattern that matches a row at least, as ours and as a regular expression."""
    form = random.choice(["symbol", "order", "options", "some"]) if depth else "symbol"
    if form == "symbol":
        symbol = random.choice(list(CLASSES))
        return symbol, CLASSES[symbol]
    if form == "some":
        ours, theirs = pattern(random, depth - 1)
        times = random.choice(["+", "{2}", "{1,3}", "{2,}"]) + random.choice(["", "?"])
        # Of a fixed number of times there is no shorter one, and Python reads it as a range anyway.
        return f"({ours}){times}", f"(?:{theirs}){times}"
    parts = [pattern(random, depth - 1) for _ in range(random.randint(2, 3))]
    if form == "options":
        return f"({' | '.join(p[0] for p in parts)})", f"(?:{'|'.join(p[1] for p in parts)})"
    more = random.choice([None, "*", "?", "*?", "??"])
    if more:
        ours, theirs = pattern(random, 0)
        parts.insert(random.randint(0, len(parts)), (f"{ours}{more}", f"{theirs}{more}"))
    return " ".join(p[0] for p in parts), "".join(p[1] for p in parts)


def query(ours: str, within: int | None = 1000, skip: str = "PAST LAST ROW") -> str:
    used = {symbol: condition for symbol, condition in CONDITIONS.items() if symbol in ours}
    define = f" DEFINE {', '.join(f'{s} AS {c}' for s, c in used.items())}" if used else ""
    bound = "" if within is None else f" WITHIN {within}"
    return (
        "SELECT first, last, n FROM S MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(ts) AS first, ts AS last, "
        f"COUNT(*) AS n AFTER MATCH SKIP {skip} PATTERN ({ours}){bound}{define}) AS m"
    )


@pytest.mark.parametrize("seed", range(20))
def test_matches_are_those_of_regular_expressions(seed: int) -> None:
    random = Random(seed)
    ours, theirs = pattern(random)
    text = "".join(random.choice("aabbc") for _ in range(60))
    stream = {"S": pa.table({"ts": range(len(text)), "c": list(text)})}
    found = ms.run(query(ours), stream, time="ts", batch_rows=random.choice([1, 7, 100]))
    spans = [(m.start(), m.end() - 1) for m in re.finditer(theirs, text)]
    assert [(row["first"], row["last"]) for row in found.to_pylist()] == spans, (ours, theirs, text)
    assert ms.snapshot_equal(found, ms.reference(query(ours), stream, time="ts"))
    open_ended = query(ours, None, random.choice(["TO NEXT ROW", "PAST LAST ROW"]))
    again = ms.run(open_ended, stream, time="ts", batch_rows=random.choice([1, 7, 100]))
    assert ms.snapshot_equal(again, ms.reference(open_ended, stream, time="ts"))


@pytest.mark.parametrize("seed", range(10))
def test_all_rows_are_those_of_regular_expressions_one_by_one(seed: int) -> None:
    random = Random(seed)
    ours, theirs = pattern(random)
    text = "".join(random.choice("aabbc") for _ in range(60))
    stream = {"S": pa.table({"ts": range(len(text)), "c": list(text)})}
    asked = query(ours).replace("first, last, n FROM", "*, n FROM").replace("COUNT(*) AS n", ALL)
    found = ms.run(asked, stream, time="ts", batch_rows=random.choice([1, 7, 100])).to_pylist()
    expected = [
        {"ts": row, "first": m.start(), "last": row, "place": row - m.start() + 1, "size": m.end() - m.start(), "n": n}
        for n, m in enumerate(re.finditer(theirs, text), 1)
        for row in range(m.start(), m.end())
    ]
    assert sorted(({k: row[k] for k in expected[0]} for row in found), key=lambda row: row["ts"]) == expected
    for row in found:
        assert row["c"] == text[row["ts"]] and re.fullmatch(CLASSES[row["symbol"]], row["c"])
        assert row["begun"] == next(r["symbol"] for r in found if r["ts"] == row["first"])


ALL = (
    "COUNT(*) AS place, FINAL COUNT(*) AS size, MATCH_NUMBER() AS n, CLASSIFIER() AS symbol, "
    "FIRST(CLASSIFIER()) AS begun ALL ROWS PER MATCH"
)


def drawn(random: Random, rows: int = 70) -> dict[str, pa.Table]:
    """A stream with few keys, many ties and nulls."""
    values = [
        {"ts": random.randrange(rows // 2), "k": random.choice([1, 1, 2, None]), "v": random.choice([None, *range(6)])}
        for _ in range(rows)
    ]
    return {"A": pa.Table.from_pylist(sorted(values, key=lambda row: row["ts"]))}


MEASURES = (
    *("v", "U.v", "FIRST(U.v)", "FINAL FIRST(D.v, 1)", "LAST(S.v, 1)", "FINAL LAST(v)", "PREV(v, 2)", "SUM(U.v)"),
    *("FINAL MAX(v)", "RUNNING COUNT(D.*)", "CLASSIFIER()", "LAST(CLASSIFIER(), 1)", "MATCH_NUMBER()", "COUNT(U.v)"),
)

DEFINES = {
    "S": ("v > 1", "NEXT(v) IS NOT NULL", "MATCH_NUMBER() < 4", "v <= NEXT(v, 2)"),
    "U": ("v >= PREV(v)", "U.v < NEXT(U.v) OR v = 3", "COUNT(U.*) < 3", "v > LAST(S.v)", "NEXT(v) > FIRST(S.v)"),
    "D": ("v < 4", "LAST(CLASSIFIER(), 1) = 'U'", "SUM(D.v) < 9 AND NEXT(v) < 5", "D.v <= S.v"),
}


@pytest.mark.parametrize("seed", range(25))
def test_patterns_mean_what_the_oracle_says_of_every_row(seed: int) -> None:
    random = Random(seed)
    form = random.choice(["S U+", "S U* D", "(S | U) D{1,2}", "S (U | D)+?  U", "U+ S?", "S D"])
    used = {symbol: random.choice(DEFINES[symbol]) for symbol in DEFINES if symbol in form and random.random() < 0.8}
    defines = " DEFINE " + ", ".join(f"{s} AS {c}" for s, c in used.items()) if used else ""
    measures = [m for m in random.sample(MEASURES, 5) if all(f"{s}." not in m or s in form for s in "SUD")]
    text = (
        f"SELECT * FROM A MATCH_RECOGNIZE ({random.choice(['PARTITION BY k ', ''])}ORDER BY ts "
        f"MEASURES {', '.join(f'{m} AS m{i}' for i, m in enumerate(measures))} "
        f"{random.choice(['ALL ROWS', 'ALL ROWS', 'ONE ROW'])} PER MATCH "
        f"AFTER MATCH SKIP {random.choice(['PAST LAST ROW', 'TO NEXT ROW'])} "
        f"PATTERN ({form}){random.choice(['', ' WITHIN 6'])}{defines}) AS m"
    )
    stream = drawn(random)
    expected = ms.reference(text, stream, time="ts")
    for batch_rows in (1, 9):
        difference = ms.snapshot_equal(ms.run(text, stream, time="ts", batch_rows=batch_rows), expected)
        assert difference, f"{difference}\n{text}"


PRICES = {
    "falls and rises": "MEASURES FIRST(D.v) AS high, LAST(D.v) AS low, U.v AS up, COUNT(D.*) AS n "
    "PATTERN (D+ U) DEFINE D AS v < PREV(v), U AS v > PREV(v)",
    "rows of symbols": "MEASURES A.v AS a, SUM(B.v) AS s, AVG(B.f) AS m AFTER MATCH SKIP TO NEXT ROW "
    "PATTERN (A B{2,3}? C) DEFINE B AS B.v >= A.v, C AS C.v < LAST(B.v, 1)",
    "sums": "MEASURES FIRST(A.ts) AS s, LAST(A.ts) AS e, MAX(A.v) AS n "
    "PATTERN (A+) WITHIN 15 DEFINE A AS SUM(A.v) < 20",
    "computed values": "MEASURES SUM(A.v * A.f) AS s, LAST(A.v + 1, 1) AS l, MATCH_ROWTIME() AS t "
    "PATTERN (A+ B) DEFINE A AS PREV(v + 1) > 3, B AS v < 4",
    "all rows": "MEASURES A.v AS a, SUM(B.v) AS s, FINAL AVG(B.f) AS m, CLASSIFIER() AS c ALL ROWS PER MATCH "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B{2,3}? C) DEFINE B AS B.v >= A.v, C AS C.v < LAST(B.v, 1)",
    "rows to come": "MEASURES MATCH_NUMBER() AS n, A.ts AS s PATTERN (A B) "
    "DEFINE A AS v < NEXT(v, 2), B AS NEXT(v) > 3",
    "skips": "MEASURES A.ts AS s, C.ts AS e AFTER MATCH SKIP TO LAST B PATTERN (A B+ C?) WITHIN 30 "
    "DEFINE B AS v > PREV(v, 2), C AS v < PREV(FIRST(B.v), 1)",
}


@pytest.mark.parametrize("name", PRICES)
def test_conditions_and_measures_look_at_matched_rows(name: str) -> None:
    random = Random(7)
    rows = [{"k": random.randrange(3), "v": random.choice([None, *range(9)]), "f": random.random()} for _ in range(90)]
    stream = {"A": pa.Table.from_pylist([{"ts": t, **row} for t, row in enumerate(rows)])}
    text = f"SELECT * FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts {PRICES[name]}) AS m"
    expected = ms.reference(text, stream, time="ts")
    assert expected.num_rows > 3
    for batch_rows in (1, 11):
        assert ms.snapshot_equal(ms.run(text, stream, time="ts", batch_rows=batch_rows), expected)


def test_a_match_happens_when_no_later_row_can_change_it() -> None:
    stream = {"S": pa.table({"ts": [1, 2, 3, 4, 9], "c": list("abbcb")})}
    happened = [(row["last"], row["valid_from"]) for row in ms.run(query("A B+", None), stream, time="ts").to_pylist()]
    assert happened == [(3, 4)]
    assert ms.run(query("A E+ D", None), stream, time="ts").num_rows == 0, "a longer match may still come"
    assert ms.run(query("A E+ D", 5), stream, time="ts").column("valid_from").to_pylist() == [6]


def test_a_row_that_is_looked_ahead_to_must_have_come() -> None:
    text = (
        "SELECT v FROM S MATCH_RECOGNIZE (ORDER BY ts MEASURES A.v AS v PATTERN (A) WITHIN 1 DEFINE A AS NEXT(v) > v)"
    )
    stream = {"S": pa.table({"ts": [1, 9, 10], "v": [1, 2, 3]})}
    found = ms.run(text, stream, time="ts", batch_rows=1)
    assert [(row["v"], row["valid_from"]) for row in found.to_pylist()] == [(1, 9), (2, 10)]
    assert ms.snapshot_equal(found, ms.reference(text, stream, time="ts"))


def test_columns_of_all_rows_are_the_keys_the_time_the_measures_and_the_rest() -> None:
    stream = {"S": pa.table({"a": [1, 2], "ts": [1, 2], "k": [1, 1], "b": [3, 4]})}
    rows = "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES COUNT(*) AS n ALL ROWS PER MATCH PATTERN (A B))"
    found = ms.run(f"SELECT * FROM S {rows}", stream, time="ts")
    assert found.column_names[:5] == ["k", "ts", "n", "a", "b"] and found["n"].to_pylist() == [1, 2]


def test_rows_of_one_time_are_in_the_order_that_is_asked_for() -> None:
    rows = {"A": pa.table({"ts": [1, 1, 2, 2, 2], "n": [3, 1, 2, 5, None], "v": [1, 2, 3, 4, 5]})}
    text = (
        "SELECT x, y FROM A MATCH_RECOGNIZE (ORDER BY ts, {} MEASURES B.v AS x, C.v AS y PATTERN (B C) WITHIN 5) AS m"
    )
    for order, expected in (("n", [(2, 1), (3, 4)]), ("n DESC NULLS FIRST", [(1, 2), (5, 4)]), ("v", [(1, 2), (3, 4)])):
        for batch in (1, 2, 100):
            found = ms.run(text.format(order), rows, batch_rows=batch)
            assert [(row["x"], row["y"]) for row in found.to_pylist()] == expected
            assert ms.snapshot_equal(found, ms.reference(text.format(order), rows))
