"""GenMig's Example 1: parallel track doubles results when a duplicate elimination is pushed below a join.

Parallel track refuses such plans. Here it is forced to migrate one, so that the failure the paper argues from can be
seen, next to strategies that migrate it correctly. Multiplicities are counted at every instant against the oracle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from midstream.algebra.emission import emission_of
from midstream.algebra.plan import rewrite_plan
from midstream.algebra.time import BEGINNING, INFINITY
from midstream.api import Question, ask, reference
from midstream.cluster.local.live_query import LiveQuery
from midstream.errors import MigrationError
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.migration.parallel_track import ParallelTrack
from midstream.migration.protocol import Strategy
from midstream.migration.registry import STRATEGIES
from midstream.optimizer.plans import Plan, plan_query
from midstream.optimizer.rules.push_distinct_below_join import push_distinct_below_join

A, B = ({"ts": times, "k": ["a"] * len(times)} for times in ([10, 50], [20, 70]))
FROM = "FROM A [RANGE 100], B [RANGE 100] WHERE A.k = B.k"
DISTINCT = f"SELECT DISTINCT A.k {FROM}"
START, INSTANTS = 40, range(200)
PUBLISHED_TWICE = range(111, 121)
FORCED = "parallel track, forced"
CORRECT = ("genmig", "genmig_shortened", "moving_state", "moving_state_paced")

Interval = tuple[int, int]


def genmig_example() -> Report:
    """Migrates Example 1 by every strategy that can, and by parallel track although it must not."""
    streams = {"A": pa.table(A), "B": pa.table(B)}
    asked = ask(DISTINCT, streams)
    old = plan_query(asked.plan)
    new = Plan(asked.plan, rewrite_plan(old.logical, push_distinct_below_join), emission_of(asked.plan))
    strategies: dict[str, Strategy] = {FORCED: ParallelTrack(force=True)} | {n: STRATEGIES[n] for n in CORRECT}
    found = {name: _migrated(asked, old, new, strategy) for name, strategy in strategies.items()}
    right = _multiplicity(_intervals(reference(DISTINCT, streams, time="ts")))
    report = Report("genmig-example", "Duplicates of parallel track (GenMig, example 1)", _settings())
    joined = ask(f"SELECT A.k {FROM}", streams)
    _tables(report, _unchanged(joined), _unchanged(asked), found[FORCED])
    _doubled(report, _multiplicity(found[FORCED]))
    for name in CORRECT:
        _correct(report, name, _multiplicity(found[name]), right)
    _refusal(report, old, new)
    report.figures.append(_figure(found, right))
    report.notes.append(
        "The text names instants 111 to 120. The old plan's first result, valid up to 111, overlaps the new plan's "
        "result from 70 on as well, so every instant from 70 to 120 is doubled."
    )
    return report


def _settings() -> dict[str, object]:
    return {
        "query": DISTINCT,
        "streams": "a at 10 and 50 in A, a at 20 and 70 in B; the paper's table of inputs is a picture, and these "
        "inputs give every interval that its text names",
        "migration": f"from DISTINCT above the join to DISTINCT below it, at {START}",
        "batch": "one row",
    }


def _rows(asked: Question) -> list[tuple[int, str, pa.RecordBatch]]:
    """Every row of every stream, in order of time."""
    batches = [(name, table.combine_chunks().to_batches()[0]) for name, table in asked.tables.items()]
    rows = [(batch["ts"][i].as_py(), name, batch.slice(i, 1)) for name, batch in batches for i in range(len(batch))]
    return sorted(rows, key=lambda row: row[:2])


def _migrated(asked: Question, old: Plan, new: Plan, strategy: Strategy) -> list[Interval]:
    return _run(asked, old, lambda live: live.migrate(new, strategy, part="whole"))


def _unchanged(asked: Question) -> list[Interval]:
    return _run(asked, plan_query(asked.plan), lambda live: None)


def _run(asked: Question, plan: Plan, at_start: Callable[[LiveQuery], None]) -> list[Interval]:
    """The validity of every result, rows fed one by one; `at_start` is called when the migration is to start."""
    live = LiveQuery(plan)
    registers = dict.fromkeys(asked.tables, BEGINNING)
    released = []
    started = False
    for ts, name, row in _rows(asked):
        if ts >= START and not started:
            started = True
            at_start(live)
        live.feed(name, row, row["ts"].to_numpy())
        registers[name] = ts
        released.append(live.advance(registers))
    released.append(live.advance(dict.fromkeys(registers, INFINITY)))
    return sorted(pair for part in released if part is not None for pair in _intervals(live.table(part)))


def _intervals(table: pa.Table) -> list[Interval]:
    return sorted(zip(table["valid_from"].to_pylist(), table["valid_to"].to_pylist(), strict=True))


def _multiplicity(intervals: Sequence[Interval]) -> Counter[int]:
    """How often the tuple is in the snapshot of each instant."""
    return Counter(t for start, end in intervals for t in range(start, end))


def _tables(report: Report, joined: list[Interval], distinct: list[Interval], forced: list[Interval]) -> None:
    tables = {"the old plan's join": (joined, (50, 121)), "its duplicate elimination": (distinct, (111, 121))}
    for name, (intervals, published) in (tables | {"the new plan": (forced, (70, 151))}).items():
        report.verdict(
            f"{name} gives the result that the text names",
            f"a in {_shown([published])}",
            f"a in {_shown(intervals)}" + (" (both plans, parallel track)" if intervals is forced else ""),
            published in intervals,
            kind="check",
        )


def _doubled(report: Report, counts: Counter[int]) -> None:
    twice = [t for t in INSTANTS if counts[t] > 1]
    report.verdict(
        "parallel track gives the tuple twice",
        f"at instants {PUBLISHED_TWICE[0]} to {PUBLISHED_TWICE[-1]}",
        f"twice at instants {twice[0]} to {twice[-1]}" if twice else "never",
        set(PUBLISHED_TWICE) <= set(twice),
    )


def _correct(report: Report, name: str, counts: Counter[int], right: Counter[int]) -> None:
    wrong = [t for t in INSTANTS if counts[t] != right[t]]
    report.verdict(
        f"{name} gives every snapshot right",
        "GenMig is correct for every plan" if name.startswith("genmig") else "moving state is not discussed",
        f"{len(wrong)} of {len(INSTANTS)} snapshots differ from the oracle's",
        not wrong,
        kind="check",
    )


def _refusal(report: Report, old: Plan, new: Plan) -> None:
    try:
        ParallelTrack().refuse(old, new, {})
        said = "accepted"
    except MigrationError as refused:
        said = f"refused: {refused.message}"
    report.verdict(
        "parallel track must not be used here", "it gives wrong results", said, said != "accepted", kind="check"
    )


def _figure(found: Mapping[str, list[Interval]], right: Counter[int]) -> Figure:
    counts = {"oracle": right, FORCED: _multiplicity(found[FORCED]), "GenMig": _multiplicity(found["genmig"])}
    instants = [float(t) for t in INSTANTS]
    series = [Series(name, instants, [float(count[t]) for t in INSTANTS]) for name, count in counts.items()]
    return Figure(
        Plot("Copies of the tuple in each snapshot", "instant", "copies", series, [(START, "start")], steps=True),
        "Example 1 and figure 2",
        (
            "window 100, migration at 40",
            "parallel track's output has the tuple twice at instants 111 to 120",
            "a split time after every instant of the old plan avoids this",
        ),
    )


def _shown(intervals: Sequence[Interval]) -> str:
    return ", ".join(f"[{start}, {end})" for start, end in intervals)
