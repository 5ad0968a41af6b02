"""`midstream bench calibration`: what moving rows between slots costs, in probes, here and in executors of Spark.

The optimizer weighs a row that moves between two stages, a row that arrives in one slot more, and a further stage of a
batch, all as so many probes, and a second on a link between sites as the probes that take so long. Three plans of one
join are run over batches of two sizes: in one stage, in one stage with every window in every slot, and in two stages,
since a computed key cannot be arrived by. What a batch takes longer than the first grows with its rows by the cost of a
row, and what is left is that of the stage: the latency and the rate of T(x) = latency + x / rate. `optimizer/cost.py`
has the defaults that were found this way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.lab.bench.figures import Report
from midstream.lab.bench.multikey_streams import RATE, WINDOW, Chain, write_chain

SMALL, LARGE = 50_000, 200_000
SLOTS = 2
TURNS, WARM_UP = 3, 2
SCHEMA = "ts TIMESTAMP, a BIGINT, b BIGINT, v BIGINT"
PLANS = {"one stage": "(A B)", "windows everywhere": "A <- B, B <- A", "two stages": "(A B)"}


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds of a batch: of its steps altogether, and of the operators in the slot that took longest."""

    job: float
    kernel: float


def bench_calibration(batches: int = 6, seed: int = 5, only: Sequence[str] = ()) -> Report:
    """The constants of the optimizer for each kind of cluster."""
    report = Report("calibration")
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as temporary:
        for part in only or PARTS:
            _measure(report, part, PARTS[part](), Path(temporary), batches, seed)
    return report


def _spark() -> Any:
    from midstream.cluster.spark.environment import spark_session

    return spark_session()


PARTS: dict[str, Callable[[], Any]] = {"local": lambda: None, "spark": _spark}
"""The kinds of clusters."""


def _measure(report: Report, kind: str, spark: Any, root: Path, batches: int, seed: int) -> None:
    seen: dict[tuple[str, int], list[Taken]] = {}
    for turn, rows in enumerate((SMALL, *(SMALL, LARGE) * TURNS)):
        chain = Chain("AB", rows, (50 * RATE * WINDOW,))
        data = root / f"data-{rows}"
        if not data.exists():
            write_chain(data, chain, batches, seed)
        for name, plan in PLANS.items():
            query = chain.query.replace("A.b =", "A.b + 0 =") if name == "two stages" else chain.query
            taken = _run(spark, data, query, plan, root / f"{kind}-{turn}-{name}")
            if turn:  # the first one is to get warm
                seen.setdefault((name, rows), []).extend(taken)
    # The least of all turns is disturbed least by what else the machine does.
    least = {case: Taken(min(t.job for t in some), min(t.kernel for t in some)) for case, some in seen.items()}
    for name, value, unit in constants(least):
        report.add(f"{kind}: {name}", value, unit)


def constants(taken: Mapping[tuple[str, int], Taken]) -> list[tuple[str, float, str]]:
    """The costs that follow from what batches of both sizes took by each plan.

    >>> line = {("one stage", SMALL): Taken(1.0, 0.1), ("one stage", LARGE): Taken(1.3, 0.4)}
    >>> two = {("two stages", SMALL): Taken(2.5, 0.1), ("two stages", LARGE): Taken(3.4, 0.4)}
    >>> every = {("windows everywhere", rows): Taken(1.7, 0.4) for rows in (SMALL, LARGE)}
    >>> [(name, round(value, 3)) for name, value, _ in constants(line | two | every)][:3]
    [('a probe', 1.0), ('exchange', 4.0), ('stage', 1300000.0)]
    """
    one, two, every = (
        {rows: taken[name, rows] for rows in (SMALL, LARGE)}
        for name in ("one stage", "two stages", "windows everywhere")
    )
    probe = one[LARGE].kernel / LARGE / 2  # a row is probed and stored
    few, many = (two[rows].job - one[rows].job for rows in (SMALL, LARGE))
    row = (many - few) / (LARGE - SMALL)
    beside = {
        rows: (every[rows].job - every[rows].kernel) - (one[rows].job - one[rows].kernel) for rows in (SMALL, LARGE)
    }
    copy = (beside[LARGE] - beside[SMALL]) / (LARGE - SMALL) / SLOTS
    return [
        ("a probe", 1e6 * probe, "µs"),
        ("exchange", row / probe, "probes a row"),
        ("stage", max(0.0, few - SMALL * row) / probe, "probes"),
        ("copy", copy / probe, "probes a row"),
        ("second", 1 / probe, "probes"),
        ("a further stage", max(0.0, few - SMALL * row), "s"),
        ("a batch in one stage, 200,000 rows", one[LARGE].job, "s"),
        ("a batch in two stages, 200,000 rows", two[LARGE].job, "s"),
        ("a batch with windows everywhere, 200,000 rows", every[LARGE].job, "s"),
    ]


def _run(spark: Any, data: Path, query: str, plan: str, work: Path) -> list[Taken]:
    seen: list[Taken] = []

    def note(event: Mapping[str, Any]) -> None:
        seen.append(Taken(event["seconds"]["job"], event["seconds"]["kernel"]))

    on = "local" if spark is None else "spark"
    small = None if spark is None else 0
    with CheckpointSession(spark, checkpoint=str(work), on=on, slots=SLOTS, small_batches=small) as session:
        for name in "AB":
            read = {"maxFilesPerTrigger": "1"}
            session.open_stream(name, "parquet", path=str(data / name), schema=SCHEMA, options=read, time="ts")
        session.query("join", query, plan=plan)
        session.on_progress(note)
        session.process_available()
    return seen[WARM_UP:]
