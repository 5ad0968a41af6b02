"""`midstream bench language`: what constructs cost against simpler ones over the same rows, and against DuckDB.

DuckDB computes its answer once, over all rows; a continuous query gives the same results one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from midstream import api
from midstream.lab.bench.figures import Report, alternating

WINDOW = 1_000
KEYS = 100
GAP = 150

TUMBLING = f"FROM A [TUMBLE {WINDOW}]"
IN_WINDOWS = f"FROM (SELECT *, ts // {WINDOW} AS w FROM A)"
COUNT = f"SELECT k, count(*) AS n {TUMBLING} GROUP BY k"
LAST = "OVER (PARTITION BY k ORDER BY ts"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A query, one that is simpler, how much longer it may take, and DuckDB's form of it."""

    query: str
    simpler: str
    most: float
    once: str


COMPARISONS = {
    "top-3 per window / count": Comparison(
        f"SELECT k, v {TUMBLING} QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 3",
        COUNT,
        2.0,
        f"SELECT k, v {IN_WINDOWS} QUALIFY row_number() OVER (PARTITION BY w, k ORDER BY v DESC) <= 3",
    ),
    "sum OVER a window / sum BY": Comparison(
        f"SELECT k, v, sum(v) {LAST} ROWS 9 PRECEDING) AS s {TUMBLING}",
        f"SELECT k, sum(v) AS s {TUMBLING} GROUP BY k",
        2.0,
        f"SELECT k, v, sum(v) OVER (PARTITION BY w, k ORDER BY ts ROWS 9 PRECEDING) AS s {IN_WINDOWS}",
    ),
    "sliding sum OVER / sum BY": Comparison(
        f"SELECT k, v, sum(v) {LAST} RANGE {WINDOW} PRECEDING) AS s FROM A",
        f"SELECT k, sum(v) AS s FROM A [RANGE {WINDOW}] GROUP BY k",
        2.0,
        f"SELECT k, v, sum(v) {LAST} RANGE {WINDOW} PRECEDING) AS s FROM A",
    ),
    "running sum OVER / sum BY": Comparison(
        f"SELECT k, v, sum(v) {LAST}) AS s FROM A",
        f"SELECT k, sum(v) AS s FROM A [RANGE {WINDOW}] GROUP BY k",
        2.0,
        f"SELECT k, v, sum(v) {LAST}) AS s FROM A",
    ),
    "sessions / tumbling windows": Comparison(
        f"SELECT k, window_start, count(*) AS n FROM A [PARTITION BY k SESSION {GAP}] GROUP BY k, window_start",
        COUNT,
        2.0,
        "SELECT k, s, count(*) FROM (SELECT *, sum(new) OVER (PARTITION BY k ORDER BY ts) AS s FROM "
        f"(SELECT *, CAST(ts - lag(ts, 1, -{WINDOW}) {LAST}) > {GAP} AS INT) AS new FROM A)) GROUP BY k, s",
    ),
    "MATCH_RECOGNIZE / FOLLOWED BY": Comparison(
        "SELECT a, b, c FROM A MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES X.v AS a, Y.v AS b, Z.v AS c "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (X Y Z) DEFINE X AS v < 300000, Y AS v < 600000, Z AS v > 500000) AS m",
        "SELECT x.v AS a, y.v AS b, z.v AS c FROM (SELECT * FROM A WHERE v < 300000) AS x "
        "FOLLOWED BY (SELECT * FROM A WHERE v < 600000) AS y ON x.k = y.k "
        "FOLLOWED BY (SELECT * FROM A WHERE v > 500000) AS z ON y.k = z.k",
        3.0,
        f"SELECT x, y, v FROM (SELECT *, lag(v, 2) {LAST}, v) AS x, lag(v) {LAST}, v) AS y FROM A) "
        "WHERE x < 300000 AND y < 600000 AND v > 500000",
    ),
    "array_agg / count": Comparison(
        f"SELECT k, array_agg(v) AS l {TUMBLING} GROUP BY k",
        COUNT,
        2.0,
        f"SELECT k, array_agg(v ORDER BY ts) {IN_WINDOWS} GROUP BY w, k",
    ),
}


def bench_language(rows: int = 200_000, repeats: int = 1, seed: int = 7) -> Report:
    """Every construct against what is simpler, and against DuckDB."""
    report = Report("language")
    tables = {"A": _stream(rows, seed)}
    for name, comparison in COMPARISONS.items():
        runs: dict[str, Callable[[], object]] = {
            "query": lambda c=comparison: api.run(c.query, tables),  # type: ignore[misc]
            "simpler": lambda c=comparison: api.run(c.simpler, tables),  # type: ignore[misc]
            "once": lambda c=comparison: _once(c.once, tables["A"]),  # type: ignore[misc]
        }
        best = alternating(repeats, **runs)
        report.add(name, best["query"] / best["simpler"], "times", comparison.most, "at most")
        construct = name.partition(" /")[0]
        report.add(f"{construct}, speed / DuckDB once", best["once"] / best["query"], "ratio", 0.3)
        report.add(f"{construct}", rows / best["query"], "rows/s")
    return report


def _stream(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, rows // 2, rows))
    return pa.table({"ts": times, "k": random.integers(0, KEYS, rows), "v": random.integers(0, 1_000_000, rows)})


def _once(query: str, table: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.register("A", table)
        return connection.sql(query).to_arrow_table()
