"""Plans whose state nothing frees are told apart from those that forget."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.cluster.local.embedded_session import EmbeddedSession
from midstream.inputs import catalog_of
from midstream.interface.cli import app
from midstream.language import parse
from midstream.optimizer.growth import growth
from midstream.optimizer.plans import plan_query

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
ALL = "SELECT a.k FROM A AS a FOLLOWED BY B AS b ALL ON a.k = b.k"
LATER = "SELECT a.k FROM A AS a ASOF JOIN B AS b ON a.k = b.k AND a.ts < b.ts"
CHRONICLE = ALL.replace("ALL", "CHRONICLE")


def warned(cql: str) -> tuple[str, ...]:
    return growth(plan_query(parse(cql, catalog_of(dict.fromkeys("ABC", SCHEMA), "ts"))).physical)


@pytest.mark.parametrize(
    ("cql", "words"),
    [
        (ALL, ["ALL without WITHIN remembers every tuple of a for ever"]),
        (CHRONICLE, ["CHRONICLE without WITHIN remembers tuples of a until they are used"]),
        (f"{ALL} WITHIN 5", []),
        (ALL.replace("ALL", "RECENT"), []),
        (f"{LATER} WITHIN 5", []),
        (LATER, ["ASOF JOIN with a later match and without WITHIN remembers tuples of a until one of b follows"]),
        ("SELECT A.k FROM A [UNBOUNDED], B [RANGE 5] WHERE A.k = B.k", ["A [UNBOUNDED] is remembered for ever"]),
        ("SELECT DISTINCT k FROM A [UNBOUNDED]", ["A [UNBOUNDED] is remembered for ever"]),
        ("SELECT k FROM A [UNBOUNDED] WHERE k > 3", []),
        ("SELECT k, count(*) AS n FROM A [RANGE 10] GROUP BY k", []),
    ],
)
def test_what_grows_without_bound_is_said(cql, words):
    found = warned(cql)
    assert len(found) == len(words)
    assert all(sentence.startswith(word) for sentence, word in zip(found, words, strict=True))


def test_explain_warns_on_the_command_line_and_in_sessions(tmp_path):
    files = []
    for name in "AB":
        pq.write_table(pa.table({"ts": [1, 2], "k": [1, 2]}, schema=SCHEMA), tmp_path / f"{name}.parquet")
        files += ["--stream", f"{name}={tmp_path / name}.parquet"]
    told = CliRunner().invoke(app, ["explain", ALL, *files, "--json"])
    assert json.loads(told.stdout)["warnings"] == list(warned(ALL))
    assert "Warning: ALL without WITHIN" in CliRunner().invoke(app, ["explain", ALL, *files]).stdout
    session = EmbeddedSession()
    for name in "AB":
        session.stream(name, SCHEMA)
    query = session.query("q", CHRONICLE)
    assert "Warning: CHRONICLE without WITHIN" in query.explain()
    assert query.statistics["warnings"] == list(warned(CHRONICLE))


@pytest.mark.parametrize(
    ("cql", "message"),
    [
        (
            "SELECT u.k FROM (SELECT k FROM A UNION ALL SELECT k FROM B [UNBOUNDED]) [RANGE 5] AS u",
            "would repeat rows for ever",
        ),
        (
            "SELECT u.k FROM (SELECT k FROM A UNION ALL SELECT k FROM B [RANGE 5]) AS u FOLLOWED BY C ON u.k = C.k",
            "takes streams, not windows",
        ),
        (
            "SELECT DISTINCT u.k FROM (SELECT k FROM A UNION ALL SELECT k FROM B [RANGE 5]) AS u",
            "needs a window on stream A",
        ),
    ],
)
def test_a_union_is_raw_only_if_all_of_it_is(cql, message):
    with pytest.raises(ms.QueryError, match=message):
        warned(cql)
