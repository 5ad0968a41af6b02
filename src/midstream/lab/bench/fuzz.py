"""`midstream bench fuzz`: random queries, streams, settings, migrations and changes of queries, and damaged texts.

A case is a drawn query over drawn streams, run with drawn batches, scheduling, plan and migrations; its snapshots must
be DuckDB's, or the oracle's where SQL cannot say it. A query that is changed at a random moment of a job must keep what
it promises (`lab.fuzz.changed_jobs`). A damaged text must give a plan or a `QueryError`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa

from midstream.api import reference
from midstream.errors import InputError, MidstreamError, MigrationError
from midstream.lab.bench.figures import Report
from midstream.lab.fuzz.cases import Case, random_case
from midstream.lab.fuzz.changed_jobs import wrong_after_change
from midstream.lab.fuzz.changes import draw_change
from midstream.lab.fuzz.constructs import EVERYTHING, INNER_JOINS, INTERVAL_KEEPING, RELATIONAL
from midstream.lab.fuzz.drives import Drive, result_of
from midstream.lab.fuzz.judge import difference
from midstream.lab.fuzz.odd_values import with_odd_values
from midstream.lab.fuzz.texts import foreign_errors
from midstream.lab.fuzz.written import differences

log = logging.getLogger(__name__)

TEXTS_PER_CASE = 100
ROWS = (12, 30)
"""How many rows a stream has at most."""

Judge = Callable[[Case, pa.Table | MidstreamError, Counter[str]], str | None]
"""Says what is wrong with the results of a case, or with its refusal."""

ODD = 10
"""Every how many cases have values at the edges of their types."""

WRITTEN = 3
"""Of every how many cases the streams are written as files of each format, and read back."""

CHANGED = 4
"""With every how many cases a query is changed while it runs."""

CONSTRUCTS = (EVERYTHING, RELATIONAL, INTERVAL_KEEPING, INNER_JOINS)
"""What queries may use: everything, or only what more strategies can migrate."""


def bench_fuzz(cases: int = 200, seed: int = 0) -> Report:
    """How many of so many cases differ from DuckDB, and how many texts the parser answers with a foreign error."""
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    for number in range(seed, seed + cases):
        random = Random(number)
        case = random_case(number, random.choice(CONSTRUCTS), most_rows=random.choice(ROWS))
        if number % ODD == 0:
            case = with_odd_values(case, random)
        counts["judged by DuckDB"] += case.sql is not None
        found = _wrong(case, random, counts, _judged_if_computed if number % ODD == 0 else _judged)
        if found is not None:
            counts["wrong"] += 1
            log.error("seed %d: %s%s", number, found, case)
        if number % CHANGED == 0 and (broken := _broken_promise(number, counts)) is not None:
            counts["broken"] += 1
            log.error("seed %d: %s", number, broken)
        for text in _misread(case, random) if number % WRITTEN == 0 else ():
            counts["misread"] += 1
            log.error("seed %d: %s", number, text)
        for text in foreign_errors(case, random, TEXTS_PER_CASE):
            counts["foreign"] += 1
            log.error("seed %d: %s", number, text)
    report = Report("fuzz")
    report.add("cases", float(cases), "cases")
    report.add("cases judged by DuckDB, others by the oracle", float(counts["judged by DuckDB"]), "cases")
    report.add("cases that migrate", float(counts["migrated"]), "cases")
    report.add("cases whose strategy is refused, and another one taken", float(counts["refused"]), "cases")
    report.add("cases whose input is refused, as the oracle does", float(counts["input refused"]), "cases")
    report.add("cases that differ", float(counts["wrong"]), "cases", 0.0, "at most")
    report.add("queries that are changed while they run", float(counts["changed"] + counts["verified"]), "queries")
    report.add("changed queries that are complete at once", float(counts["complete at once"]), "queries")
    report.add("changed queries that give what they must not", float(counts["broken"]), "queries", 0.0, "at most")
    report.add("files whose rows are not those that were written", float(counts["misread"]), "files", 0.0, "at most")
    report.add("damaged texts", float(cases * TEXTS_PER_CASE), "texts")
    report.add("texts that the parser fails on", float(counts["foreign"]), "texts", 0.0, "at most")
    report.add("time of a case", (time.perf_counter() - began) / max(cases, 1), "s")
    return report


def _broken_promise(number: int, counts: Counter[str]) -> str | None:
    change = draw_change(number)
    try:
        wrong = wrong_after_change(change, Random(f"job {number}"), counts)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    return None if wrong is None else f"{wrong}\n{change}"


def _misread(case: Case, random: Random) -> list[str]:
    """The files of a case's streams that do not hold their rows."""
    with TemporaryDirectory() as folder:
        return [text for table in case.inputs.values() for text in differences(table, random, Path(folder))]


def _wrong(case: Case, random: Random, counts: Counter[str], judged: Judge) -> str | None:
    """What is wrong with a drawn run of a case, if anything is."""
    try:
        drive = Drive.draw(random, case)
    except InputError as refused:  # plans are found by what the streams hold
        return judged(case, refused, counts)
    try:
        found = result_of(case, drive)
        if isinstance(found, MigrationError):
            counts["refused"] += 1
            drive = drive.by_any_strategy()
            found = result_of(case, drive)
        if isinstance(found, MigrationError):
            drive = drive.without_migrations()
            found = result_of(case, drive)
        counts["migrated"] += bool(drive.migrations)
        wrong = judged(case, found, counts)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    return None if wrong is None else f"{drive}: {wrong}"


def _judged(case: Case, found: pa.Table | MidstreamError, counts: Counter[str]) -> str | None:
    if not isinstance(found, MidstreamError):
        return difference(case, found)
    try:
        reference(case.query, case.inputs, time=case.time)
    except type(found):
        counts["input refused"] += 1
        return None
    return f"the oracle answers, but the engine says: {found}"


def _judged_if_computed(case: Case, found: pa.Table | MidstreamError, counts: Counter[str]) -> str | None:
    """The judgement where values may be impossible to compute: one plan meets such a value, another does without it."""
    try:
        wanted = reference(case.query, case.inputs, time=case.time)
    except InputError:
        wanted = None
    if wanted is None or isinstance(found, InputError):
        counts["input refused"] += 1
        return None
    return _judged(case, found, counts)
