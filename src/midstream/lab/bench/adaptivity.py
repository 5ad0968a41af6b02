"""`midstream bench adaptivity`: adaptive runs against the best choices of hindsight, on the same recorded streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from midstream.adaptation.adaptive import Adaptive
from midstream.adaptation.policy import Policy
from midstream.api import Question
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.cluster.local.live_query import LiveQuery
from midstream.cluster.local.observing import observe
from midstream.errors import JobError
from midstream.job.task.ingest import source_elements
from midstream.lab.bench.adaptivity_runs import Run, drive, question_of
from midstream.lab.bench.adaptivity_spark import add_figures_on_spark
from midstream.lab.bench.adaptivity_streams import Phase, chain_columns, chain_query, hot_chain, record
from midstream.lab.bench.adaptivity_time import require_same_results, times
from midstream.lab.bench.figures import Report
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import Plan, enumerate_plans, plan_query

WINDOW = 200
BATCH = 500
RATE = 4.0
SEEDS = 3
WARM_UP = 10
AUTO = Policy("auto")


def bench_adaptivity(seed: int = 7, cases: int = 40, spark: bool = True) -> Report:
    """All figures; `cases` is how many random workloads the cost model is held against.

    With `spark`, there are figures on Spark too, if there is Java.
    """
    report = Report("adaptivity")
    _shift(report, "four-way shift", "ABCD", _four, seed)
    _shift(report, "six-way shift", "ABCDEF", _six, seed)
    _steady(report, seed)
    _rate_jump(report, seed)
    _slow_drift(report, seed)
    _flip_flop(report, seed)
    _distinct(report, seed)
    _aggregation(report, seed)
    _cost_model(report, seed, cases)
    _overhead(report, seed)
    if spark and _java():
        add_figures_on_spark(report, [seed])
    return report


def _four(rate: float) -> list[Phase]:
    return hot_chain("ABCD", [(0,), (1,), (2,), (0,)], 2000, rate, WINDOW, 10.0)


def _six(rate: float) -> list[Phase]:
    return hot_chain("ABCDEF", [(0, 1, 2), (2, 3, 4), (0, 1, 2)], 1200, rate, WINDOW, 2.5, cold=0.05)


def _java() -> bool:
    """Whether Spark can run here."""
    from midstream.cluster.spark.environment import require_java

    try:
        require_java()
    except JobError:
        return False
    return True


def _shift(report: Report, name: str, names: str, phases_at: Callable[[float], list[Phase]], seed: int) -> None:
    phases = phases_at(RATE)
    question = question_of(chain_query(names, WINDOW), record(chain_columns(names), phases, seed))
    ends = [phase.ticks * (i + 1) for i, phase in enumerate(phases)]
    static = [drive(question, plan, BATCH) for plan in _rivals(question, names, phases, seed)]
    adaptive = drive(question, None, BATCH, AUTO)
    require_same_results(static, adaptive)
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    clairvoyant = sum(min(run.total(*span) for run in static) for span in spans)
    best = min(static, key=lambda run: run.total())
    worst = max(best.total(*span) / adaptive.total(*span) for span in spans)
    report.add(f"{name}: adaptive / clairvoyant, work", adaptive.total() / clairvoyant, "ratio", 1.15, "at most")
    report.add(f"{name}: best static / adaptive in its worst phase, work", worst, "ratio", 3.0)
    report.add(f"{name}: best static / adaptive, work", best.total() / adaptive.total(), "ratio", 1.3)
    report.add(f"{name}: migrations", len(adaptive.migrations), "count")
    chosen = {best.plan, *(plan for span in spans for plan in _best_in(static, span))}
    took, hindsight, _ = times(question, chosen, spans, BATCH)
    report.add(f"{name}: adaptive / clairvoyant, processor time", took / hindsight, "ratio")
    tables = record(chain_columns(names), phases_at(10 * RATE), seed)
    many = question_of(chain_query(names, WINDOW), tables)
    took, hindsight, single = times(many, chosen, spans, 10 * BATCH, repeats=1)
    large = f"{name}, batches of 5,000 rows"
    report.add(f"{large}: adaptive / clairvoyant, processor time", took / hindsight, "ratio")
    report.add(f"{large}: best static / adaptive, processor time", single / took, "ratio")


def _best_in(static: Sequence[Run], span: tuple[int, int]) -> Iterator[str]:
    """The plan of the least work in a span of time, and that of the least time."""
    yield min(static, key=lambda run: run.total(*span)).plan
    yield min(static, key=lambda run: run.time_in(*span)).plan


def _rivals(question: Question, names: str, phases: Sequence[Phase], seed: int) -> list[Plan]:
    """Static plans: all of a small query; of a large one those that are best in some phase, and usual shapes."""
    if len(names) <= 4:
        found = {plan.text: plan for plan in enumerate_plans(question.plan)}
        return list(found.values())
    rivals = {}
    for number, phase in enumerate(phases):
        alone = question_of(chain_query(names, WINDOW), record(chain_columns(names), [phase], seed + number))
        chosen = plan_query(question.plan, None, statistics=observe(alone.plan, alone.tables, alone.catalog))
        rivals[chosen.text] = chosen
    left = " ".join(names)
    for text in (f"({left})", _right_deep(names), _probing(names)):
        rivals[text] = plan_query(question.plan, text)
    return list(rivals.values())


def _right_deep(names: str) -> str:
    return names if len(names) == 1 else f"({names[0]} {_right_deep(names[1:])})"


def _probing(names: str) -> str:
    """Probe orders that go left to the end of the chain first, then right."""
    orders = []
    for i, name in enumerate(names):
        order = [*reversed(names[:i]), *names[i + 1 :]]
        orders.append(f"{name}: {' '.join(order)}")
    return ", ".join(orders)


def _informed(question: Question) -> Plan:
    """The plan that is best for the streams as a whole."""
    statistics = observe(question.plan, question.tables, question.catalog)
    return plan_query(question.plan, None, statistics=statistics)


def _steady(report: Report, seed: int) -> None:
    names, found = "ABCD", 0
    phases = hot_chain(names, [(1,)], 300 * 25, RATE, WINDOW, 5.0)
    for number in range(SEEDS):
        tables = record(chain_columns(names), phases, seed + number, noise=0.3)
        question = question_of(chain_query(names, WINDOW), tables)
        run = drive(question, _informed(question), sum(t.num_rows for t in tables.values()) // 300, AUTO)
        found += len(run.migrations)
    report.add(f"steady, {SEEDS} times 300 noisy batches: migrations", found, "count", 0, "at most")


def _rate_jump(report: Report, seed: int) -> None:
    """A stream becomes half as fast, another twice as fast, and with that another plan the best."""
    names, ticks = "ABC", 1500
    values = {link: WINDOW * RATE for link in ("ab", "bc")}
    rates = [{"A": 2 * RATE, "B": RATE, "C": RATE}, {"A": RATE, "B": RATE, "C": 2 * RATE}]
    phases = [Phase(ticks, rate, values) for rate in rates]
    question = question_of(chain_query(names, WINDOW), record(chain_columns(names), phases, seed))
    run = drive(question, "(A (B C))", BATCH, AUTO)
    after = [moment for moment, _, _ in run.migrations if moment > ticks]
    waited = sum(ticks < moment <= after[0] for moment in run.moments) if after else len(run.moments)
    report.add("rate jump: batches until the plan has changed", waited, "count")


def _slow_drift(report: Report, seed: int) -> None:
    """One link of a chain grows hot while another cools down, and back: two true crossings."""
    names, steps = "ABC", 40
    way = np.concatenate([np.linspace(0, 1, steps), np.linspace(1, 0, steps)])
    phases = []
    for where in way:
        fans = 8.0 ** (2 * where - 1), 8.0 ** (1 - 2 * where)
        values = {link: WINDOW * 4.0 / fan for link, fan in zip(("ab", "bc"), fans, strict=True)}
        phases.append(Phase(100, {name: 4.0 for name in names}, values))
    question = question_of(chain_query(names, WINDOW), record(chain_columns(names), phases, seed))
    run = drive(question, "(A (B C))", BATCH, AUTO)
    static = [drive(question, plan, BATCH) for plan in enumerate_plans(question.plan)]
    crossings = _crossings(static, 100 * len(phases))
    report.add("slow drift: true crossings", crossings, "count")
    report.add("slow drift: migrations beyond one per crossing", len(run.migrations) - crossings, "count", 0, "at most")
    best = min(r.total() for r in static)
    report.add("slow drift: best static / adaptive, work", best / run.total(), "ratio", 1.0)


def _crossings(static: Sequence[Run], end: int, step: int = 400) -> int:
    """How often another plan becomes the best, by more than a tenth, as measured over stretches of time."""
    crossings, best = 0, None
    for start in range(0, end, step):
        work = {run.plan: run.total(start, start + step) for run in static}
        cheapest = min(work, key=lambda plan: work[plan])
        if best is None:
            best = cheapest
        elif work[cheapest] < 0.9 * work[best]:
            best, crossings = cheapest, crossings + 1
    return crossings


def _flip_flop(report: Report, seed: int) -> None:
    """Links change roles every quarter of a window: no state that was moved is worth its price."""
    names = "ABC"
    phases = []
    for number in range(120):
        fans = (4.0, 0.25) if number % 2 else (0.25, 4.0)
        values = {link: WINDOW * 4.0 / fan for link, fan in zip(("ab", "bc"), fans, strict=True)}
        phases.append(Phase(50, {name: 4.0 for name in names}, values))
    question = question_of(chain_query(names, WINDOW), record(chain_columns(names), phases, seed))
    staying = drive(question, "((A B) C)", 300)
    run = drive(question, "((A B) C)", 300, AUTO)
    report.add("flip-flop: adaptive / staying, work", run.total() / staying.total(), "ratio", 1.1, "at most")
    report.add("flip-flop: migrations", len(run.migrations), "count")


def _distinct(report: Report, seed: int) -> None:
    query = f"SELECT DISTINCT A.k, B.w FROM A [TUMBLE {WINDOW}], B [TUMBLE {WINDOW}] WHERE A.k = B.k"
    _marks(report, "distinct", query, {"A": ["k"], "B": ["k", "w"]}, {"A.k": 60.0, "B.k": 60.0, "w": 4.0}, seed)


def _aggregation(report: Report, seed: int) -> None:
    query = (
        f"SELECT B.w, sum(A.v) AS total, count(*) AS pairs FROM A [TUMBLE {WINDOW}], B [TUMBLE {WINDOW}] "
        "WHERE A.k = B.k GROUP BY B.w"
    )
    _marks(report, "grouped", query, {"A": ["k", "v"], "B": ["k", "w"]}, {"k": 60.0, "w": 20.0, "v": 9.0}, seed)


def _marks(
    report: Report, mark: str, query: str, columns: dict[str, list[str]], few: dict[str, float], seed: int
) -> None:
    """A workload in which doing something before the join pays, then stops paying, then pays again."""
    rates = {"A": 8.0, "B": 8.0}
    many = {**{name: 100_000.0 for name in few}, **({"A.k": 1e5, "B.k": 1e5} if "A.k" in few else {"k": 1e5})}
    ticks = 12 * WINDOW
    phases = [Phase(ticks, rates, few), Phase(ticks, rates, many), Phase(ticks, rates, few)]
    question = question_of(query, record(columns, phases, seed))
    static = [drive(question, plan, BATCH) for plan in enumerate_plans(question.plan)]
    run = drive(question, "(A B)", BATCH, AUTO)
    best = min(r.total() for r in static)
    used = [_mode(run, ticks * i, ticks * (i + 1)) for i in range(3)]
    followed = [(mark in used[0]), (mark not in used[1]), (mark in used[2])]
    report.add(f"{mark} before the join: phases in which adaptive follows", sum(followed), "of 3", 3)
    report.add(f"{mark} before the join: best static / adaptive, work", best / run.total(), "ratio")


def _mode(run: Run, start: int, end: int) -> str:
    """The plan that ran at the end of a phase."""
    inside = [plan for moment, plan in zip(run.moments, run.plans, strict=True) if start < moment <= end]
    return inside[-1] if inside else ""


def _cost_model(report: Report, seed: int, cases: int) -> None:
    rng = np.random.default_rng(seed)
    predicted: list[float] = []
    measured: list[float] = []
    good = 0
    for _ in range(cases):
        question = _random_workload(rng)
        statistics = observe(question.plan, question.tables, question.catalog)
        plans = {plan.text: plan for plan in enumerate_plans(question.plan, statistics=statistics)}
        chosen = plan_query(question.plan, None, statistics=statistics)
        work = {}
        for text, plan in plans.items():
            run = drive(question, plan, 800)
            work[text] = run.total() / max(1, run.moments[-1])
            estimator = Estimator(statistics, plan.emission)
            predicted.append(estimator.cost(plan.logical).work)
            measured.append(work[text])
        good += work[chosen.text] <= 1.1 * min(work.values())
    report.add(f"cost model over {len(measured)} plans: rank correlation", _spearman(predicted, measured), "rho", 0.9)
    report.add(f"chosen plan within 10 % of the best, {cases} workloads", 100 * good / cases, "%", 95.0)


def _random_workload(rng: np.random.Generator) -> Question:
    """A chain, star or cycle of three or four streams with random rates, windows and keys."""
    names = "ABCD"[: int(rng.integers(3, 5))]
    kind = rng.choice(["chain", "star", "cycle"])
    links = {
        "chain": list(zip(names, names[1:], strict=False)),
        "star": [(names[0], name) for name in names[1:]],
        "cycle": [*zip(names, names[1:], strict=False), (names[0], names[-1])],
    }[str(kind)]
    columns: dict[str, list[str]] = {name: [] for name in names}
    conditions = []
    rates = {name: float(rng.choice([0.5, 1, 2, 4])) for name in names}
    windows = {name: int(rng.choice([50, 100, 200])) for name in names}
    values = {}
    for a, b in links:
        column = f"{a}{b}".lower()
        columns[a].append(column)
        columns[b].append(column)
        conditions.append(f"{a}.{column} = {b}.{column}")
        values[column] = max(2.0, windows[b] * rates[b] / float(rng.choice([0.1, 0.3, 1, 3])))
    sources = ", ".join(f"{name} [RANGE {windows[name]}]" for name in names)
    query = f"SELECT {names[0]}.ts AS first FROM {sources} WHERE {' AND '.join(conditions)}"
    tables = record(columns, [Phase(700, rates, values)], int(rng.integers(1 << 30)))
    return question_of(query, tables)


def _spearman(x: Sequence[float], y: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(np.asarray(values), kind="stable")) for values in (x, y)]
    x_ranks, y_ranks = (r - r.mean() for r in ranks)
    return float((x_ranks * y_ranks).mean() / (x_ranks.std() * y_ranks.std()))


def _overhead(report: Report, seed: int) -> None:
    """What watching takes of a batch of 10,000 rows, in processor time of the same run, once both have warmed up."""
    names, batch_rows = "ABCD", 10_000
    columns = {name: ["k", "v"] for name in names}
    rates = {name: 2.0 for name in names}
    tables = record(columns, [Phase(150_000, rates, {"k": 20_000.0, "v": 1000.0})], seed)
    sources = ", ".join(f"{name} [RANGE 5000]" for name in names)
    query = f"SELECT A.k, B.v, C.v AS w FROM {sources} WHERE A.k = B.k AND B.k = C.k AND C.k = D.k"
    question = question_of(query, tables)
    watching, whole = _watched(question, batch_rows)
    report.add(
        "watching, share of processor time, batches of 10,000 rows after the tenth",
        100 * watching / whole,
        "%",
        3.0,
        "at most",
    )


def _watched(question: Question, batch_rows: int) -> tuple[float, float]:
    plan = _informed(question)
    query = LiveQuery(plan, question.catalog.functions)
    adaptive = Adaptive(plan, Policy("suggest"), question.catalog.functions, time.monotonic)
    streams = {name: StreamProgress(question.catalog.streams[name]) for name in sorted(query.streams)}
    watching, start = 0.0, time.process_time()
    for number, parts in enumerate(batches(streams, {n: question.tables[n] for n in streams}, batch_rows)):
        if number == WARM_UP:
            watching, start = 0.0, time.process_time()
        for name, rows in parts.items():
            usable, ticks = streams[name].accept(rows)
            query.feed(name, usable, ticks)
            for source in query.sources:
                if source.stream.name == name:
                    elements = source_elements(source, usable, ticks)
                    before = time.process_time()
                    adaptive.take(source.stream.alias, elements, ticks)
                    watching += time.process_time() - before
        for stream in streams.values():
            stream.raise_register()
        query.advance({name: s.register for name, s in streams.items()})
        before = time.process_time()
        adaptive.after_batch(query)
        watching += time.process_time() - before
    return watching, time.process_time() - start
