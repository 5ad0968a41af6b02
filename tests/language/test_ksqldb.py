"""Statements of ksqlDB: values and windows as its own tests have them, and its forms in words of this language."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.errors import QueryError
from midstream.language.foreign import to_cql

NAN = math.nan

VALUES: list[tuple[str, Any]] = [
    ("ROUND(1.5), ROUND(-1.5), ROUND(-1.7), ROUND(12345.678)", (2, -1, -2, 12346)),
    ("ROUND(-1.5, 0), ROUND(-12345.678, 1), ROUND(-1.5, -1), ROUND(111.0, -2)", (-1.0, -12345.7, 0.0, 100.0)),
    ("TRUNC(-1.7), TRUNC(12345.678, 2), TRUNC(-12345.678, -2)", (-1, 12345.67, -12300.0)),
    ("LN(-1), LN(0), LN(1), LN(CAST(NULL AS INT))", (NAN, -math.inf, 0.0, None)),
    ("LOG(-13), LOG(0), LOG(13), LOG(15, 13), LOG(1, 13), LOG(15, 0)", (NAN, -math.inf, 2.565, 0.947, NAN, -math.inf)),
    ("SQRT(-1), SQRT(4), ACOS(-2), ACOS(1), ASIN(1.1), COT(0)", (NAN, 2.0, NAN, 0.0, NAN, math.inf)),
    ("7 / 2, -7 / 2, 7 / 2.0", (3, -3, 3.5)),
    ("SLICE(ARRAY['a', 'b', 'c'], 2, 3), SLICE(ARRAY[1], 1, 2), SLICE(ARRAY[1], 2, 1)", (["b", "c"], None, [])),
    ("ARRAY_JOIN(ARRAY['a', NULL, 'b']), ARRAY_JOIN(ARRAY[1, 2], '-')", ("a,null,b", "1-2")),
    ("ARRAY_SORT(ARRAY[0, NULL, 1], 'desc'), ARRAY_DISTINCT(ARRAY[0, NULL, 0])", ([1, 0, None], [0, None])),
    ("REGEXP_EXTRACT('(.*) (.*)', 'one two', 2), REGEXP_EXTRACT('z', 'a')", ("two", None)),
    ("REGEXP_EXTRACT_ALL('[a-z]', 'a1b'), REGEXP_REPLACE('aa', 'a', 'b')", (["a", "b"], "bb")),
    ("TRIM(' \t with white space \t'), INITCAP('the-Quick fox')", ("with white space", "The-quick Fox")),
    ("MASK('My Test $123'), CONCAT('a', NULL, 'b'), 'p-' + 's' + '-q'", ("Xx-Xxxx--nnn", "ab", "p-s-q")),
    ("URL_EXTRACT_PATH('http://www.test.com?query#f'), URL_EXTRACT_PATH('http://a:8/b/c?d')", ("", "/b/c")),
    (
        "EXTRACTJSONFIELD('{\"a\": [1.23450]}', '$.a[0]'), EXTRACTJSONFIELD('{\"a\": [1]}', '$.a[-1]')",
        ("1.23450", None),
    ),
    ("FROM_UNIXTIME(1589234313000)", (dt.datetime(2020, 5, 11, 21, 58, 33),)),
    ("STRUCT(f := STRUCT(g := 7))->f->g, MAP('k' := 1)['k'], ARRAY[5, 6][-1]", (7, 1, 6)),
    ("TRANSFORM(ARRAY[1, 2], x => x * 2), REDUCE(ARRAY[1, 2], 10, (s, x) => s + x)", ([2, 4], 13)),
    ("n = 1, n <> 1, n > 1 OR n < 1, NOT (n = 1)", (False, False, False, True)),
    ("(n = 1) AS a, CAST('foo' AS DATE), CAST(10 AS DECIMAL(2, 1))", (False, None, None)),
    ("INSTR('corporate floor', 'or', -4), INSTR('corporate floor', 'or', -4, 2), INSTR('ab', 'x', 2)", (5, 2, 0)),
    ("GEO_DISTANCE(37.4, -122.1, 51.5, -0.1, 'MILES'), GEO_DISTANCE(0, 0, 0, 1)", (5367.896, 111.195)),
    ("FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'yyyy-MM-dd HH:mm:ss.SSS')", ("1970-01-01 00:00:00.000",)),
    ("FILTER(MAP('a' := 1, 'b' := 2), (k, v) => v > 1), AS_MAP(ARRAY['a'], ARRAY[1])", ([("b", 2)], [("a", 1)])),
    ("n = 1 AS a, CASE WHEN n = 1 THEN 2 ELSE 3 END AS b", (False, 3)),
    (
        "SUBSTRING('some', 0, 2), SUBSTRING('some', -3, 2), SUBSTRING('some', -9), SUBSTR('some', 2)",
        ("so", "om", "some", "ome"),
    ),
    (
        "CAST(FROM_UNIXTIME(10) AS STRING), CAST(7 AS VARCHAR), CAST(NULL AS STRING)",
        ("1970-01-01T00:00:00.010", "7", None),
    ),
    ("CAST('1970-02' AS DATE), CAST('1970' AS TIMESTAMP)", (dt.date(1970, 2, 1), dt.datetime(1970, 1, 1))),
    ("CAST(FROM_UNIXTIME(0) AS DATE), CAST('foo' AS TIMESTAMP)", (dt.date(1970, 1, 1), None)),
    (
        "AS_MAP(ARRAY['a', 'b'], ARRAY[1, 2, 3]), ENTRIES(MAP('b' := 1), true)",
        ([("a", 1), ("b", 2)], [{"K": "b", "V": 1}]),
    ),
    ("GENERATE_SERIES(4, 2), GENERATE_SERIES(0, 9, 3)", ([4, 3, 2], [0, 3, 6, 9])),
    ("ARRAY_LENGTH(CAST(NULL AS ARRAY<INT>)), ARRAY_LENGTH(ARRAY[1])", (0, 1)),
]


@pytest.mark.parametrize(("values", "expected"), VALUES)
def test_a_value_is_what_ksqldb_says(values: str, expected: tuple[Any, ...]) -> None:
    table = {"t": pa.table({"n": pa.array([None], pa.int64())})}
    found = ms.run(f"SELECT {values} FROM t EMIT CHANGES;", table, time=None, dialect="ksqldb")
    assert [shown(value) for value in rows_of(found)[0]] == [shown(value) for value in expected]


def shown(value: Any) -> str:
    """A value, to three places."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def rows_of(result: pa.Table) -> list[tuple[Any, ...]]:
    bounds = [name for name in ("valid_from", "valid_to") if name in result.column_names]
    return [tuple(row.values()) for row in result.drop_columns(bounds).to_pylist()]


def at(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)


def stream(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of a time in milliseconds, a key and a value."""
    times, keys, values = zip(*rows, strict=True)
    return pa.table({"ts": [at(t) for t in times], "id": keys, "v": pa.array(values, pa.int64())})


DECLARED = "CREATE STREAM TEST (ID STRING KEY, V INT) WITH (kafka_topic='t', value_format='JSON');"
EVENTS = ((60000, "a", 1), (70000, "a", 5), (70000, "b", 2), (100000, "b", None), (110000, "a", 3))


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            "TUMBLING (SIZE 30 SECONDS, RETENTION 1 DAY, GRACE PERIOD 1 HOUR)",
            [("a", 6, 60000, 90000), ("a", 3, 90000, 120000), ("b", 2, 60000, 90000), ("b", 0, 90000, 120000)],
        ),
        ("SESSION (30 SECONDS)", [("a", 6, 60000, 70000), ("a", 3, 110000, 110000), ("b", 2, 70000, 100000)]),
        (
            "HOPPING (SIZE 30 SECONDS, ADVANCE BY 20 SECONDS)",
            [
                *[("a", 1, 40000, 70000), ("a", 6, 60000, 90000), ("a", 3, 100000, 130000)],
                *[("b", 2, 60000, 90000), ("b", 0, 80000, 110000), ("b", 0, 100000, 130000)],
            ],
        ),
    ],
)
def test_a_window_behind_a_stream_is_a_key_of_its_groups(window: str, expected: list[tuple[Any, ...]]) -> None:
    query = f"""{DECLARED} CREATE TABLE S2 AS SELECT ID, SUM(V) AS total, WINDOWSTART, TEST.WINDOWEND AS e
      FROM TEST WINDOW {window} GROUP BY ID EMIT CHANGES;"""
    found = rows_of(ms.run(query, {"TEST": stream(*EVENTS)}, time="ts", dialect="ksqldb"))
    assert sorted(found) == sorted(expected)


def last(query: str, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The rows that are left, of a stream that is kept for ever."""
    result = ms.run(query, {"TEST": stream(*rows)}, time="ts", dialect="ksqldb")
    kept = [row for row in result.to_pylist() if row["valid_to"] is None]
    return sorted(tuple(row.values())[:-2] for row in kept)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("COLLECT_LIST(V)", [[1, None, 1], [None]]),
        ("COLLECT_SET(V)", [[1, None], [None]]),
        ("HISTOGRAM(V)", [[("1", 2)], None]),
        ("SUM(V)", [2, 0]),
        ("AVG(V)", [1.0, 0.0]),
        ("STDDEV_SAMP(V)", [0.0, 0.0]),
        ("LATEST_BY_OFFSET(V)", [1, None]),
        ("LATEST_BY_OFFSET(V, 2)", [[1, 1], []]),
        ("EARLIEST_BY_OFFSET(V, false)", [1, None]),
        ("TOPK(V, 5)", [[1, 1], None]),
        ("TOPKDISTINCT(V, 5)", [[1], None]),
        ("COUNT_DISTINCT(V)", [1, 0]),
        ("ATTR(V)", [None, None]),
    ],
)
def test_an_aggregate_is_what_ksqldb_says_of_nulls(aggregate: str, expected: list[Any]) -> None:
    query = f"CREATE TABLE S2 AS SELECT ID, {aggregate} AS x FROM TEST [UNBOUNDED] GROUP BY ID;"
    assert last(query, (0, "a", 1), (1, "a", None), (2, "b", None), (3, "a", 1)) == list(
        zip("ab", expected, strict=True)
    )


def test_a_correlation_of_nothing_is_no_number() -> None:
    ((x,),) = last("SELECT CORRELATION(V, V) AS x FROM TEST [UNBOUNDED]", (0, "a", 1))
    assert math.isnan(x)


def test_statements_read_what_those_before_them_create() -> None:
    query = f"""{DECLARED} SET 'auto.offset.reset' = 'earliest';
      CREATE STREAM LARGE AS SELECT ID, V * 10 AS W FROM TEST WHERE V > 1 PARTITION BY ID EMIT CHANGES;
      CREATE STREAM OUTPUT WITH (kafka_topic='o') AS SELECT * FROM LARGE WHERE W < 50;
      INSERT INTO OUTPUT SELECT ID, -1 AS W FROM TEST WHERE V IS NULL;"""
    found = rows_of(ms.run(query, {"TEST": stream(*EVENTS)}, time="ts", dialect="ksqldb"))
    assert sorted(found) == [("a", 30), ("b", -1), ("b", 20)]


def test_a_declared_table_has_the_newest_row_of_each_key_and_streams_meet_it_at_their_instants() -> None:
    query = """CREATE STREAM S (ID STRING KEY, V INT) WITH (k='s');
      CREATE TABLE T (ID STRING PRIMARY KEY, V INT) WITH (k='t');
      SELECT S.V AS SV, T.V AS TV FROM S LEFT JOIN T ON S.ID = T.ID EMIT CHANGES;"""
    streams = {"S": stream((0, "a", 1), (5, "a", 2), (9, "a", 3)), "T": stream((3, "a", 7), (8, "a", 8))}
    found = rows_of(ms.run(query, streams, time="ts", dialect="ksqldb"))
    assert sorted(found) == [(1, None), (2, 7), (3, 8)]


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        ("JOIN R WITHIN 10 SECONDS", [(1, 4), (2, 4)]),
        ("LEFT JOIN R WITHIN (1 SECOND, 10 SECONDS)", [(1, 4), (2, None), (3, None)]),
        ("FULL OUTER JOIN R WITHIN 1 SECOND GRACE PERIOD 1 DAY", [(None, 4), (1, None), (2, None), (3, None)]),
    ],
)
def test_a_distance_behind_within_bounds_a_join(join: str, expected: list[tuple[Any, ...]]) -> None:
    streams = {"L": stream((0, "a", 1), (13000, "a", 2), (90000, "a", 3)), "R": stream((10000, "a", 4))}
    query = f"SELECT L.V AS LV, R.V AS RV FROM L {join} ON L.ID = R.ID EMIT CHANGES;"
    found = rows_of(ms.run(query, streams, time="ts", dialect="ksqldb"))
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_rows_with_a_null_among_their_keys_are_left_out() -> None:
    rows = ((0, "a", 1), (1, None, 1), (2, "b", None), (3, "b", 2))
    assert last("SELECT ID, COUNT() FROM TEST [UNBOUNDED] GROUP BY ID", *rows) == [("a", 1), ("b", 2)]
    several = "SELECT ID, V, COUNT(*) FROM TEST [UNBOUNDED] WHERE V > 1 OR V = 1 GROUP BY (V, ID);"
    assert last(several, *rows) == [("a", 1, 1), ("b", 2, 1)]
    declared = "CREATE TABLE TEST (ID STRING PRIMARY KEY, V INT) WITH (k='t'); SELECT ID, V FROM TEST;"
    assert last(declared, *rows) == [("a", 1), ("b", 2)]


def test_a_key_of_a_join_is_that_of_the_side_that_is_there() -> None:
    streams = {"L": stream((0, "a", 1)), "R": stream((90000, "b", 4))}
    query = "SELECT ROWKEY AS K, L.V AS LV, R.V AS RV FROM L FULL JOIN R WITHIN 1 SECOND ON UCASE(L.ID) = UCASE(R.ID);"
    found = rows_of(ms.run(query, streams, time="ts", dialect="ksqldb"))
    assert sorted(found, key=str) == [("A", 1, None), ("B", None, 4)]


def test_stars_over_a_join_name_columns_after_their_sides() -> None:
    declared = (
        "CREATE STREAM L (ID STRING KEY, V INT) WITH (k='l'); CREATE STREAM R (ID STRING KEY, V INT) WITH (k='r');"
    )
    joined = f"{declared} CREATE STREAM J AS SELECT * FROM L JOIN R WITHIN 1 SECOND ON L.ID = R.ID;"
    streams = {"L": stream((0, "a", 1)), "R": stream((100, "a", 4))}
    whole = ms.run(joined, streams, time="ts", dialect="ksqldb")
    assert whole.column_names[:4] == ["L_ID", "L_V", "R_ID", "R_V"]
    sums = f"{joined} SELECT L_ID, L_V + R_V AS S FROM J;"
    assert rows_of(ms.run(sums, streams, time="ts", dialect="ksqldb")) == [("a", 5)]
    one = joined.replace("SELECT *", "SELECT R.*, L.V")
    assert ms.run(one, streams, time="ts", dialect="ksqldb").column_names[:3] == ["R_ID", "R_V", "v"]


def test_streams_that_meet_see_the_version_of_that_time() -> None:
    declared = "CREATE TABLE T (ID STRING PRIMARY KEY, V INT) WITH (k='t');"
    streams = {
        "L": stream((12, "a", 1)),
        "R": stream((11, "a", 2), (14, "a", 4)),
        "T": stream((10, "a", 3), (13, "a", 9)),
    }
    query = (
        f"{declared} SELECT R.V AS RV, T.V AS TV FROM L JOIN R WITHIN 1 SECOND ON L.ID = R.ID JOIN T ON L.ID = T.ID;"
    )
    assert sorted(rows_of(ms.run(query, streams, time="ts", dialect="ksqldb"))) == [(2, 3), (4, 9)]
    for other in (
        query.replace("JOIN T", "LEFT JOIN T"),
        f"{declared} SELECT * FROM L JOIN T ON L.ID = T.ID JOIN R WITHIN 1 DAY ON L.ID = R.ID",
    ):
        with pytest.raises(QueryError, match="the table t is no inner join behind"):
            ms.run(other, streams, time="ts", dialect="ksqldb")


def test_rowtime_is_a_number_of_milliseconds() -> None:
    query = "SELECT ROWTIME, T.ROWTIME / 2 AS half FROM TEST AS T EMIT CHANGES"
    assert rows_of(ms.run(query, {"TEST": stream((7000, "a", 1))}, time="ts", dialect="ksqldb")) == [(7000, 3500)]


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("SELECT COUNT(*) FROM TEST WINDOW TUMBLING (SIZE 1 SECOND) EMIT CHANGES", "window without GROUP BY"),
        ("SELECT * FROM TEST WHERE NOT V = 1", "not clear what NOT denies"),
        ("SELECT COUNT(*) FROM TEST GROUP BY ID EMIT CHANGES", "needs a window"),
        ("SELECT WINDOWSTART FROM TEST", "unknown column"),
    ],
)
def test_what_has_no_meaning_is_refused(query: str, refusal: str) -> None:
    with pytest.raises(QueryError, match=refusal):
        ms.run(query, {"TEST": stream(*EVENTS)}, time="ts", dialect="ksqldb")


def test_a_query_of_ksqldb_in_words_of_this_language() -> None:
    query = "CREATE TABLE X AS SELECT ID, COUNT(*) FROM TEST WINDOW TUMBLING (SIZE 1 MINUTE) WHERE V > 1 GROUP BY ID;"
    same = """SELECT ID, COUNT(*) FROM TUMBLE(TEST, ts, 1 MINUTE)  WHERE (ID) IS NOT NULL AND ( V > 1 ) GROUP BY ID, \
window_start, window_end"""
    assert to_cql(query, "ksqldb", "ts") == same
