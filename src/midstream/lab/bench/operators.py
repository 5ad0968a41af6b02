"""`midstream bench operators`: the engine against the bare kernel, and its operators against each other."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from midstream import api
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.cluster.local.live_query import LiveQuery
from midstream.lab.bench.bare_kernel import BareJoin
from midstream.lab.bench.figures import Report, alternating
from midstream.optimizer.plans import plan_query

RATE = 2000
"""Rows per second and stream; time is in milliseconds."""

WINDOW = 10_000
KEYS = 20_000

Tables = Mapping[str, pa.Table]


def bench_operators(rows: int = 400_000, repeats: int = 3, seed: int = 7) -> Report:
    """All figures of the engine; `rows` is the number of rows per stream of the largest run."""
    report = Report("operators")
    data = _streams("ABCD", rows // 2, seed)
    _joins(report, data, repeats)
    _others(report, data, repeats)
    _outer_joins(report, data, repeats)
    _strings(report, data, repeats)
    _larger_window(report, seed)
    _memory(report, seed)
    return report


def _joins(report: Report, data: Tables, repeats: int) -> None:
    for ways, names in (("two-way", "AB"), ("four-way", "ABCD")):
        query = _join_query(names)
        tables = {name: data[name] for name in names}
        total = sum(table.num_rows for table in tables.values())
        for batch in (10_000, 1_000):
            runs: dict[str, Callable[[], object]] = {
                "engine": lambda q=query, t=tables, b=batch: api.run(q, t, batch_rows=b),  # type: ignore[misc]
                "kernel": lambda t=tables, b=batch: bare(t, b),  # type: ignore[misc]
            }
            if batch == 10_000:
                runs["duckdb"] = _duckdb_join(names, tables)
            best = alternating(repeats, **runs)
            ratio = best["kernel"] / best["engine"]
            bar = 0.6 if batch == 10_000 else 0.5
            report.add(f"{ways} join, {batch} rows a batch", total / best["engine"], "rows/s")
            report.add(f"{ways} bare kernel, {batch} rows a batch", total / best["kernel"], "rows/s")
            report.add(f"{ways} join / bare kernel, {batch} rows a batch", ratio, "ratio", bar)
            if "duckdb" in best:
                report.add(f"{ways} join / one-shot batch join of DuckDB", best["duckdb"] / best["engine"], "ratio")


def _others(report: Report, data: Tables, repeats: int) -> None:
    one, two = {"A": data["A"]}, {"A": data["A"], "B": data["B"]}
    queries = {
        "distinct": "SELECT DISTINCT k FROM A [RANGE 10000]",
        "count, sum, avg": "SELECT g, count(*) AS c, sum(v) AS s, avg(v) AS a FROM A [RANGE 10000] GROUP BY g",
        "min, max": "SELECT g, min(v) AS low, max(v) AS high FROM A [RANGE 10000] GROUP BY g",
    }
    runs: dict[str, Callable[[], object]] = {"join": lambda: api.run(_join_query("AB"), two)}
    for name, query in queries.items():
        runs[name] = lambda q=query: api.run(q, one)  # type: ignore[misc]
    best = alternating(repeats, **runs)
    speed = {name: (2 if name == "join" else 1) * data["A"].num_rows / took for name, took in best.items()}
    for name in queries:
        bar = 0.25 if name == "min, max" else 0.6
        report.add(f"{name} / two-way join", speed[name] / speed["join"], "ratio", bar)


def _outer_joins(report: Report, data: Tables, repeats: int) -> None:
    """Joins that look at absence against the inner join of the same windows."""
    tables = {name: data[name] for name in "AB"}
    joined = f"SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE {WINDOW}] {{}} JOIN B [RANGE {WINDOW}] ON A.k = B.k"
    absent = f"SELECT 1 AS one FROM B [RANGE {WINDOW}] WHERE A.k = B.k"
    queries = {
        "left join": joined.format("LEFT"),
        "full join": joined.format("FULL"),
        "left join with a residual": joined.format("LEFT") + " AND A.v < B.v",
        "anti join": f"SELECT A.k, A.v AS a FROM A [RANGE {WINDOW}] WHERE NOT EXISTS ({absent})",
    }
    runs: dict[str, Callable[[], object]] = {"join": lambda: api.run(joined.format(""), tables)}
    for name, query in queries.items():
        runs[name] = lambda q=query: api.run(q, tables)  # type: ignore[misc]
    best = alternating(repeats, **runs)
    for name in queries:
        report.add(f"{name} / inner join", best["join"] / best[name], "ratio", 0.25)


def _strings(report: Report, data: Tables, repeats: int) -> None:
    numbers = {name: data[name] for name in "AB"}
    strings = {name: table.set_column(1, "k", _as_text(table["k"])) for name, table in numbers.items()}
    query = _join_query("AB")
    best = alternating(repeats, numbers=lambda: api.run(query, numbers), strings=lambda: api.run(query, strings))
    report.add("string keys / integer keys, two-way join", best["numbers"] / best["strings"], "ratio", 0.4)


def _larger_window(report: Report, seed: int) -> None:
    """Time per row when the window, and the keys with it, are a hundred times larger."""
    small, large = (_steady(factor, seed) for factor in (1, 100))
    report.add("time per row, window 100 times larger / small", large / small, "ratio", 2.0, "at most")


def _steady(factor: int, seed: int) -> float:
    window, keys = 1_000 * factor, 2_000 * factor
    rows = RATE * window // 1000 + 100_000
    tables = _streams("AB", rows, seed, keys)
    live, streams = _live(
        f"SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE {window}], B [RANGE {window}] WHERE A.k = B.k", tables
    )
    taken, took = 0, 0.0
    for parts in batches(streams, tables, 10_000):
        start = time.perf_counter()
        _push(live, streams, parts)
        if parts["A"][0][0].as_py() > window:
            took += time.perf_counter() - start
            taken += sum(part.num_rows for part in parts.values())
    return took / max(1, taken)


def _memory(report: Report, seed: int) -> None:
    """State against its raw columns, and memory over a run of fifty windows."""
    window, windows = 1_000, 50
    tables = _streams("AB", RATE * window // 1000 * windows, seed, 2_000)
    live, streams = _live(
        f"SELECT A.k, A.v AS a, B.v AS b FROM A [RANGE {window}], B [RANGE {window}] WHERE A.k = B.k", tables
    )
    sizes, shares = [], []
    for parts in batches(streams, tables, 1_000):
        _push(live, streams, parts)
        states = list(live.execution.states())
        sizes.append(sum(state.bytes for state in states))
        alive = sum(len(state.alive(live.frontier)) for state in states)
        shares.append(sizes[-1] / max(1, alive * _raw_width(tables["A"].schema)))
    half = len(sizes) // 2
    report.add("state bytes / raw columns of the live rows", float(np.mean(shares[half:])), "ratio", 2.5, "at most")
    flat = max(sizes[half:]) / max(sizes[half // 4 : half])
    report.add("peak state, second half of 50 windows / first", flat, "ratio", 1.1, "at most")
    report.add("peak memory of the process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")
    report.profile = _profile(tables)


def _profile(tables: Tables) -> dict[str, float]:
    """Where the time of a two-way join goes, as shares."""
    import cProfile
    import pstats

    profiler = cProfile.Profile()
    profiler.enable()
    api.run(_join_query("AB"), tables)
    profiler.disable()
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    parts = {
        "read time and cut batches": ("embedded.py", "ingest.py"),
        "hash": ("hashing.py",),
        "probe": ("segment.py", "join.py"),
    }
    parts |= {"store and merge": ("sorted_state.py",), "order and release": ("live_query.py", "sorting.py")}
    total = sum(entry[2] for entry in stats.values())
    found = {name: 0.0 for name in parts}
    for (file, _, function), entry in stats.items():
        for name, files in parts.items():
            if file.endswith(files):
                found[name] += entry[2]
        if file == "~" and "searchsorted" in function:
            found["probe"] += entry[2]
    found["arrow, numpy and the rest"] = max(0.0, total - sum(found.values()))
    return {name: round(spent / total, 3) for name, spent in found.items()}


def bare(tables: Tables, batch_rows: int) -> int:
    """The same join through the bare kernel, left-deep; gives the number of results."""
    names = list(tables)
    keys = {name: table["k"].to_numpy() for name, table in tables.items()}
    times = {name: table["ts"].to_numpy() for name, table in tables.items()}
    joins = [BareJoin() for _ in names[1:]]
    share, results = batch_rows // len(names), 0
    for start in range(0, len(keys[names[0]]), share):
        for place, name in enumerate(names):
            here = slice(start, start + share)
            run = keys[name][here], times[name][here], times[name][here] + (WINDOW + 1)
            for level in range(max(0, place - 1), len(joins)):
                run = joins[level].push(1 if level == place - 1 else 0, *run)
            results += len(run[0])
        for join in joins:
            join.expire(int(times[names[0]][start]))
    return results


def _live(query: str, tables: Tables) -> tuple[LiveQuery, dict[str, StreamProgress]]:
    question = api.ask(query, tables)
    streams = {name: StreamProgress(question.catalog.streams[name]) for name in tables}
    return LiveQuery(plan_query(question.plan)), streams


def _push(live: LiveQuery, streams: Mapping[str, StreamProgress], parts: Mapping[str, pa.RecordBatch]) -> None:
    for name, rows in parts.items():
        live.feed(name, *streams[name].accept(rows))
    for stream in streams.values():
        stream.raise_register()
    live.advance({name: stream.register for name, stream in streams.items()})


def _streams(names: str, rows: int, seed: int, keys: int = KEYS) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    span = rows * 1000 // RATE
    return {
        name: pa.table(
            {
                "ts": np.sort(random.integers(0, span, rows)),
                "k": random.integers(0, keys, rows),
                "v": random.integers(0, 1_000_000, rows),
                "g": random.integers(0, 100, rows),
            }
        )
        for name in names
    }


def _join_query(names: str) -> str:
    streams = ", ".join(f"{name} [RANGE {WINDOW}]" for name in names)
    equal = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(names[:-1], names[1:], strict=True))
    return f"SELECT {names[0]}.k, {', '.join(f'{n}.v AS v{n}' for n in names)} FROM {streams} WHERE {equal}"


def _duckdb_join(names: str, tables: Tables) -> Callable[[], object]:
    """The same pairs as one batch join; nothing if DuckDB is not installed."""
    try:
        import duckdb
    except ImportError:
        return lambda: None
    latest = "greatest(" + ", ".join(f"{n}.ts" for n in names) + ")"
    earliest = "least(" + ", ".join(f"{n}.ts" for n in names) + ")"
    equal = " AND ".join(f"{a}.k = {b}.k" for a, b in zip(names[:-1], names[1:], strict=True))
    columns = ", ".join(f"{n}.v" for n in names)
    near = f"{latest} - {earliest} <= {WINDOW}"
    text = f"SELECT {columns}, {latest} f FROM {', '.join(names)} WHERE {equal} AND {near} ORDER BY f"

    def run() -> object:
        connection = duckdb.connect()
        connection.execute("SET threads = 1")
        for name in names:
            connection.register(name, tables[name])
        return connection.sql(text).to_arrow_table()

    return run


def _as_text(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([f"customer-{value:08d}" for value in column.to_pylist()])


def _raw_width(schema: pa.Schema) -> int:
    return sum(field.type.bit_width // 8 for field in schema if field.name != "g")
