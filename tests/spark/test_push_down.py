"""What Spark selects before rows cross into Python: enough, never too much, and nobody else can tell."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.profiles import always
from tests.spark.feeding import Feed

import midstream as ms
from midstream.algebra.declarations import Catalog
from midstream.algebra.expressions import Expression
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.spark import cluster
from midstream.cluster.spark import push_down as push_down_module
from midstream.cluster.spark.frames.predicates import spark_condition
from midstream.cluster.spark.push_down import PushDown, selection_lines, selections
from midstream.errors import InputError
from midstream.inputs import declare
from midstream.job.queries.running_query import Cutting, MigrationUnderWay, RunningQuery
from midstream.job.task.exchange import PORT
from midstream.job.task.reports import Report
from midstream.lab.fuzz.cases import random_case
from midstream.lab.fuzz.choices import Choices
from midstream.lab.fuzz.constructs import INNER_JOINS
from midstream.lab.fuzz.expressions import Expressions, Value
from midstream.language import parse
from midstream.operators.expressions import Predicate
from midstream.optimizer.plans import plan_query

COLUMNS = pa.schema(
    [
        ("ts", pa.int64()),
        ("k", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("u", pa.timestamp("us")),
        ("z", pa.timestamp("us", "Europe/Berlin")),
    ]
)
CATALOG = Catalog({name: declare(name, COLUMNS, "ts") for name in "AB"})


def running(cql: str, name: str = "q", catalog: Catalog = CATALOG) -> RunningQuery:
    return RunningQuery.of(name, cql, plan_query(parse(cql, catalog), None, None), {}, Cutting({}))


def selected(*cqls: str, catalog: Catalog = CATALOG, zone: str = "UTC") -> list[str]:
    queries = [running(cql, f"q{i}", catalog) for i, cql in enumerate(cqls)]
    return selection_lines(queries, catalog.streams.values(), lambda: zone)


def test_a_selection_above_a_stream_is_made_by_spark():
    assert selected("SELECT A.k FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k AND A.n > 3 AND B.s LIKE 'x%'") == [
        "Spark selects A where (CAST(`n` AS BIGINT) > CAST('3' AS BIGINT))",
        "Spark selects B where (`s` LIKE 'x%')",
    ]


def test_a_stream_that_somebody_reads_whole_is_not_selected():
    assert selected("SELECT k FROM A [NOW] WHERE k > 1", "SELECT k FROM A [NOW]") == []
    assert selected("SELECT x.k FROM A [NOW] AS x, A [NOW] AS y WHERE x.k = y.k AND x.n > 3") == []


def test_queries_that_share_a_stream_each_get_their_rows():
    assert selected("SELECT k FROM A [NOW] WHERE k = 1", "SELECT k FROM A [RANGE 5] WHERE b") == [
        "Spark selects A where (`k` = CAST('1' AS BIGINT)) OR `b`"
    ]


@pytest.mark.parametrize("window", ["[ROWS 3]", "[PARTITION BY k ROWS 3]"])
def test_nothing_is_selected_below_a_row_window(window):
    assert selected(f"SELECT k FROM A {window} WHERE n > 3") == []


@pytest.mark.parametrize("time", ["u", "z"])
def test_times_without_a_zone_are_ticks_to_spark_in_utc_only(time):
    catalog = Catalog({"A": declare("A", COLUMNS, time)})
    query = "SELECT k FROM A [NOW] WHERE k = 1"
    assert selected(query, catalog=catalog)
    assert bool(selected(query, catalog=catalog, zone="Asia/Tokyo")) == (time == "z")


def test_a_migration_keeps_what_both_plans_need():
    query = running("SELECT k FROM A [NOW] WHERE k = 1")
    query.migration = MigrationUnderWay("", "genmig", {}, target=running("SELECT k FROM A [NOW] WHERE k = 2"))
    assert len(selections([query])["A"]) == 2
    query.local = {1: running("SELECT k FROM A [NOW] WHERE k = 3")}
    assert len(selections([query])["A"]) == 3


@pytest.mark.parametrize(
    "condition",
    [
        "regexp_matches(s, 'x+')",
        "s ILIKE 'x%'",
        "upper(s) = 'X'",
        "CAST(s AS BIGINT) > 3",
        "hour(z) = 3",
        "CAST(d AS TIMESTAMP) < u",
        "m * 2 > 3",
        "f IN (1.5, 2.5)",
        "f IS DISTINCT FROM 1.5",
        "s LIKE 'a\\b%'",
    ],
)
def test_what_spark_means_otherwise_stays_ours(condition):
    assert selected(f"SELECT k FROM A [NOW] WHERE {condition}") == []
    assert selected(f"SELECT k FROM A [NOW] WHERE {condition} AND k = 1") == [
        "Spark selects A where (`k` = CAST('1' AS BIGINT))"
    ]


@cache
def conditions(count: int) -> list[tuple[str, Expression]]:
    kinds = {
        "k": "integer",
        "n": "integer",
        "f": "double",
        "s": "string",
        "b": "boolean",
        "d": "date",
        "m": "decimal",
        "u": "timestamp",
    }
    columns = [Value(name, name, kind) for name, kind in kinds.items()]
    found = []
    for seed in range(count):
        texts = Expressions(Choices.of_seed(seed), columns)
        found += [texts.condition(3).cql, texts.comparison(texts.any_kind(), 2).cql]
    found += [
        "z > TIMESTAMP '2024-03-31 02:30:00+01:00'",
        "NOT (f > 1.5)",
        "f <> 0.0",
        "f > f * 2",
        "g < 1.5",
        "k * k > 3",
        "NOT (k + 1 < n)",
        "s > 'it''s'",
        "s = 'back\\slash'",
        "s = 'zoë 😀'",
        "length(s) = 5",
        "s LIKE '_'",
        "s || s LIKE '%a%a%'",
        "k % n = 1",
        "f / n > 0.5",
        "m > 1.25",
        "m = DECIMAL '-0.01'",
        "k IN (1, NULL)",
        "k NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)",
        "(k > 3) IS NULL",
    ]
    return [(text, predicate) for text in found if (predicate := bound(text)) is not None]


def bound(text: str) -> Expression | None:
    try:
        relation = parse(f"SELECT k, n, f, g, s, b, d, m, u, z FROM A [NOW] WHERE {text}", CATALOG)
        query = RunningQuery.of("q", "", plan_query(relation, None, None), {}, Cutting({}))
    except ms.MidstreamError:
        return None
    found = selections([query]).get("A")
    return None if not found else found[0][1]


def rows() -> pa.Table:
    """Values at the edges, and ordinary ones, dealt at random."""
    random = np.random.default_rng(5)
    least, most = -(2**63), 2**63 - 1
    pools: dict[str, list[Any]] = {
        "k": [None, 0, 1, -1, 3, 5, least, most, 2**53 + 1],
        "n": [None, 0, 1, -1, 3, 7, -(2**31), 2**31 - 1],
        "f": [None, 0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 5e-324, 1e300],
        "g": [None, 0.0, 1.5, 0.1, float("nan"), float("inf")],
        "s": [None, "", "a", "ab", "it's", "back\\slash", "zoë 😀", "a\nb", "%_", "A", "😀"],
        "b": [None, True, False],
        "d": [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
        "m": [None, Decimal("0.00"), Decimal("-0.01"), Decimal("1.25"), Decimal("99999999.99")],
        "u": [None, dt.datetime(1900, 1, 1, 3, 4, 5), dt.datetime(2024, 2, 29, 23, 59, 59, 999999)],
        "z": [None, dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC), dt.datetime(2024, 3, 31, 1, 0, tzinfo=dt.UTC)],
    }
    size = 400
    columns = {
        name: pa.array([pool[i] for i in random.integers(0, len(pool), size)], COLUMNS.field(name).type)
        for name, pool in pools.items()
    }
    return pa.table({"ts": pa.array(range(size), pa.int64()), **columns}, schema=COLUMNS)


def kept_by_us(predicate: Expression, batch: pa.RecordBatch) -> np.ndarray:
    """Where our condition is true; where it fails it keeps nothing."""
    ours = Predicate(predicate, batch.schema)
    try:
        return ours(batch)
    except (InputError, pa.ArrowException):
        return np.array([_one(ours, batch.slice(i, 1)) for i in range(batch.num_rows)])


def _one(ours: Any, row: pa.RecordBatch) -> bool:
    try:
        return bool(ours(row)[0])
    except (InputError, pa.ArrowException):
        return False


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_spark_keeps_every_row_that_our_condition_keeps(zone, spark):
    table = rows()
    batch = table.rename_columns([f"A.{name}" for name in table.schema.names]).combine_chunks().to_batches()[0]
    names = tuple((f"A.{name}", name) for name in COLUMNS.names)
    drawn = conditions(100)
    written = [(text, p, s) for text, p in drawn if (s := spark_condition(p, names)) is not None]
    assert len(written) > 60
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(table)
        asked = [f"coalesce({condition}, false) AS p{i}" for i, (_, _, condition) in enumerate(written)]
        answers = frame.selectExpr(*asked).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    dropped = 0
    for i, (text, predicate, condition) in enumerate(written):
        ours = kept_by_us(predicate, batch)
        theirs = answers.column(i).to_numpy()
        assert not (ours & ~theirs).any(), (text, condition, table.take(np.flatnonzero(ours & ~theirs)).to_pylist()[:2])
        dropped += int((~theirs).sum())
    assert dropped > len(written) * table.num_rows / 5


@pytest.mark.spark
# Cases in which Spark selects; their times are timestamps with and without a zone.
@pytest.mark.parametrize("seed", always(0, [40, 27]))
def test_random_joins_with_selections_agree_with_the_oracle(seed, spark):
    case = random_case(seed, INNER_JOINS, most_rows=40)
    got = ms.run(case.query, case.inputs, time="ts", on=spark, batch_rows=15)
    assert ms.snapshot_equal(got, ms.reference(case.query, case.inputs, time="ts")), case


def journal(spark: Any, folder: Path, feeds: dict[str, Feed], **declared: Any) -> dict[str, Any]:
    """All that can be told from outside of a session that selects half of stream A."""
    with CheckpointSession(spark, checkpoint=str(folder), slots=2) as session:
        for name, feed in feeds.items():
            session.stream(name, feed.frame(spark), time="ts", **declared.get(name, {}))
        query = session.query("q", "SELECT A.v, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND A.v > 5")
        events: list[dict[str, Any]] = []
        session.on_progress(lambda e: events.append({n: e[n] for n in ("rows", "late", "unusable", "registers")}))
        session.process_available()
        manifest = session._job.manifest
        assert manifest is not None
        dead = [(r.stream, r.reason, r.row) for r in session.dead_letters().collect()]
        return {
            "events": events,
            "latest": manifest.streams.latest,
            "counts": [manifest.streams.rows, manifest.streams.late, manifest.streams.unusable],
            "given": {name: account.results for name, account in manifest.accounts.items()},
            "dead": sorted(dead),
            "results": sorted(map(str, query.table().to_pylist())),
        }


@pytest.mark.spark
@pytest.mark.slow
def test_nobody_can_tell_that_spark_selected(spark, tmp_path, monkeypatch):
    a, b = Feed(tmp_path / "A"), Feed(tmp_path / "B")
    # Rows that are dropped move time; late ones and one without a time are dead letters, dropped or not.
    a.rows((1, 9, 10), (1, 1, 11), (2, 2, 12))
    b.rows((1, 1, 10), (2, 1, 12))
    a.rows((1, 1, 30), (1, 2, 3), (1, 8, 4), (2, 9, None), (2, 1, None))
    b.rows((1, 1, 25))
    a.rows((1, 3, 60))
    b.rows()
    a.rows((1, 3, 70), (1, 7, 71))
    b.rows((1, 4, 65), (1, 5, 20))
    feeds, declared = {"A": a, "B": b}, {"B": {"skew": 5}, "A": {"lateness": 2, "skew": 0}}
    seen: list[PushDown] = []
    account = PushDown.account

    def noted(self: PushDown, reports: Any) -> Any:
        seen.append(self)
        return account(self, reports)

    monkeypatch.setattr(PushDown, "account", noted)
    pushed = journal(spark, tmp_path / "pushed", feeds, **declared)
    assert seen and all(push.conditions for push in seen)
    monkeypatch.setattr(cluster, "push_down", lambda *_: PushDown({}, {}, {}))
    assert pushed == journal(spark, tmp_path / "plain", feeds, **declared)
    assert pushed["counts"][0] == {"A": 11, "B": 5}
    assert pushed["dead"] and pushed["results"]


@pytest.mark.slow
@pytest.mark.spark
def test_nobody_can_tell_that_spark_selected_on_a_cluster(spark, tmp_path, monkeypatch):
    a, b = Feed(tmp_path / "A"), Feed(tmp_path / "B")
    a.rows((1, 9, 10), (1, 1, 11), (2, 2, 12))
    b.rows((1, 1, 10), (2, 1, 12))
    a.rows((1, 3, 60), (1, 7, 71), (1, 8, 4))
    b.rows((1, 1, 25))
    feeds = {"A": a, "B": b}
    plain = journal(spark, tmp_path / "plain", feeds)
    monkeypatch.setattr(push_down_module, "can_repeat", lambda rows: True)
    monkeypatch.setattr(PushDown, "_counted_anew", lambda self: pytest.fail("nothing was observed twice"))
    assert plain == journal(spark, tmp_path / "pushed", feeds)


@pytest.mark.spark
def test_a_batch_whose_rows_were_observed_twice_is_counted_anew(spark):
    stream = declare("A", pa.schema([("v", pa.int64()), ("ts", pa.int64())]), "ts")
    pushed = PushDown({0: stream}, {0: "true"}, {0: "ts"})
    pushed.rows = spark.range(10).selectExpr(f"CAST(id % 2 AS INT) AS `{PORT}`")
    told = {"rows0": 8, "latest0": 7, "runs": [0, 1, 1]}
    pushed.observed = SimpleNamespace(get=told)  # type: ignore[assignment]
    passed = Report(0, 0)
    passed.streams.rows["A"] = 2
    assert [(r.streams.rows, r.streams.latest) for r in pushed.account([passed])] == [({"A": 3}, {"A": 7})]
    told["runs"] = [0, 1, 2]
    assert [r.streams.rows for r in pushed.account([passed])] == [{"A": 6}]
