"""The benchmarks that try to break a job: they hold, and they would notice if they did not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.interface.test_command_line import midstream

import midstream as ms
from midstream.checkpoint.store import CheckpointStore
from midstream.lab.bench.figures import Report
from midstream.lab.bench.fuzz import bench_fuzz
from midstream.lab.bench.steady_job import SteadyJob
from midstream.lab.chaos.judge import database_of, difference
from midstream.lab.chaos.queries import COMING, OTHERWISE, QUERIES, Judged
from midstream.lab.fuzz.cases import random_case
from midstream.lab.fuzz.constructs import EVERYTHING, RELATIONAL
from midstream.lab.fuzz.drives import Drive, result_of
from midstream.lab.fuzz.judge import difference as difference_of_case

ALL = {**QUERIES, **COMING, "otherwise": OTHERWISE}


def test_drawn_cases_are_as_duckdb_says():
    figures = {figure.name: figure for figure in bench_fuzz(cases=6, seed=3).figures}
    assert figures["cases that differ"].holds
    assert figures["cases that migrate"].value > 0
    assert figures["texts that the parser fails on"].holds


@pytest.mark.parametrize("constructs", [EVERYTHING, RELATIONAL])
def test_the_judge_of_cases_notices_a_lost_row(constructs: frozenset[str]):
    noticed, given = 0, 0
    for seed in range(10):
        case = random_case(seed, constructs)
        found = result_of(case, Drive.draw(Random(seed), case).without_migrations())
        assert isinstance(found, pa.Table)
        assert difference_of_case(case, found) is None
        given += found.num_rows > 0
        noticed += difference_of_case(case, found.slice(0, found.num_rows // 2)) is not None
    assert noticed >= 0.8 * given > 0


def streams() -> dict[str, pa.Table]:
    times = {"A": list(range(0, 60, 2)), "B": list(range(1, 60, 3)), "C": list(range(0, 60, 4))}
    return {name: pa.table({"k": [t % 3 for t in at], "v": at, "ts": at}) for name, at in times.items()}


@pytest.mark.parametrize("judged", ALL.values(), ids=ALL)
def test_duckdb_means_by_each_query_what_we_mean(judged: Judged):
    fed = streams()
    inputs = {name: table for name, table in fed.items() if f" {name} [" in judged.cql}
    got = ms.run(judged.cql, inputs, time="ts")
    database = database_of(fed)
    assert difference(database, judged, got, 0) is None
    assert "misses" in (difference(database, judged, got.slice(1), 0) or "")
    assert "too much" in (difference(database, judged, pa.concat_tables([got, got.slice(0, 1)]), 0) or "")


def test_a_steady_job_runs_with_everything_on(tmp_path: Path):
    seen: list[int] = []
    job = SteadyJob(tmp_path / "checkpoint", lambda event: seen.append(1))
    job.run(32)
    manifest = CheckpointStore(job.checkpoint).latest()
    assert manifest is not None and len(seen) == 32 and job.delivered
    assert manifest.account("three").history and "coming" not in manifest.queries


def test_a_benchmark_refuses_options_of_others():
    shown = midstream("bench", "operators", "--kills", "3")
    assert shown.exit_code != 0
    assert "benchmark operators has no option --kills" in shown.stderr


def test_a_benchmark_that_finds_wrong_results_fails_and_a_slow_one_does_not(monkeypatch: pytest.MonkeyPatch):
    def found(wrong: int) -> Report:
        report = Report("simulation")
        report.add("seeds that fail", float(wrong), "seeds", 0.0, "at most")
        report.add("as fast as wished", 0.5, "times", 1.0)
        return report

    for wrong, code in ((0, 0), (1, 2)):
        monkeypatch.setattr("midstream.interface.cli.bench.bench_named", lambda name, wrong=wrong: lambda: found(wrong))
        assert midstream("bench", "simulation", "--json").exit_code == code
