"""A value that stops one query stops no other; what was decided is in the manifest, so that it is decided once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.job.many import Many

import midstream as ms
from midstream.algebra.declarations import Catalog, ScalarFunction, StreamDeclaration
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Fault, SetAside
from midstream.job.commits import Commits
from midstream.job.queries.replacing import without_query
from midstream.job.task import memory as memory_limits
from midstream.job.task.memory import Memory
from midstream.job.task.step import StageStep

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.string())])
DOUBLED = ScalarFunction("doubled", lambda values: pa.compute.multiply(values, 2), pa.int64())
CATALOG = Catalog({name: StreamDeclaration(name, SCHEMA, "ts", 0) for name in "AB"}, {"doubled": DOUBLED})
PLAIN = "SELECT A.k, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
CAST = "SELECT k, CAST(v AS BIGINT) AS n FROM A [RANGE 9]"
JOINED_CAST = "SELECT A.k, CAST(B.v AS BIGINT) + A.k AS n FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
COUNTED = "SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k"
CAST_COUNTED = "SELECT n, count(*) AS c FROM (SELECT CAST(v AS BIGINT) AS n FROM A [RANGE 9]) GROUP BY n"

Rows = list[tuple[int, int, str]]


def faults(manifest: Manifest | None) -> dict[str, Fault]:
    """The queries in quarantine."""
    known = {} if manifest is None else manifest.accounts
    return {name: account.fault for name, account in known.items() if account.fault is not None}


def set_aside(manifest: Manifest) -> dict[str, SetAside]:
    """The queries for which rows were set aside."""
    return {name: a.set_aside for name, a in manifest.accounts.items() if a.set_aside is not None}


def rows(*some: tuple[int, int, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in some], SCHEMA)


GOOD = [{"A": rows((t, t % 2, str(t))), "B": rows((t, t % 2, str(10 * t)))} for t in range(1, 12, 2)]
BAD = {"A": rows((13, 1, "13"), (13, 0, "abc"), (14, 1, "14")), "B": rows((13, 1, "x"), (14, 0, "140"))}
LATER = [{"A": rows((t, t % 2, str(t))), "B": rows((t, t % 2, str(10 * t)))} for t in range(15, 30, 2)]


def job(folder: Path, queries: dict[str, str], **policies: str) -> Many:
    many = Many(catalog=CATALOG, folder=folder)
    many.driver.state.faults.policies.update(policies)  # type: ignore[arg-type]
    for name, cql in queries.items():
        if name not in many.driver.queries:
            many.add(name, cql)
    return many


def expected(cql: str, *batches: dict[str, pa.RecordBatch]) -> pa.Table:
    inputs = {name: pa.Table.from_batches([b[name] for b in batches if name in b], SCHEMA) for name in "AB"}
    return ms.reference(cql, inputs, functions=[DOUBLED])


def run(many: Many, *batches: dict[str, pa.RecordBatch], end: bool = False) -> None:
    for batch in batches:
        many.batch(batch)
    if end:
        many.batch({}, end=True)


def require_equal(many: Many, name: str, cql: str, *batches: dict[str, pa.RecordBatch]) -> None:
    difference = ms.snapshot_equal(many.table(name), expected(cql, *batches))
    assert difference, f"{name}: {difference}"


def test_a_bad_value_stops_its_query_alone_and_the_others_go_on(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "cast": CAST, "counted": COUNTED, "late": JOINED_CAST})
    run(many, *GOOD, BAD)
    assert many.manifest.queries["cast"].status == "quarantined"
    assert many.manifest.queries["late"].status == "quarantined"
    assert {many.manifest.queries[n].status for n in ("plain", "counted")} == {"running"}
    fault = faults(many.manifest)["cast"]
    assert (fault.batch, fault.reason) == (len(GOOD), "cannot cast 'abc' to int64")
    assert many.history("cast")[-1]["event"] == "quarantined"
    run(many, *LATER, end=True)
    require_equal(many, "plain", PLAIN, *GOOD, BAD, *LATER)
    require_equal(many, "counted", COUNTED, *GOOD, BAD, *LATER)
    assert 0 < many.table("cast").num_rows <= len(GOOD)


def test_a_query_that_shares_operators_with_the_one_at_fault_goes_on(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "same": PLAIN, "late": JOINED_CAST})
    run(many, *GOOD)
    run(many, BAD, *LATER, end=True)
    assert faults(many.manifest).keys() == {"late"}
    for name in ("plain", "same"):
        require_equal(many, name, PLAIN, *GOOD, BAD, *LATER)


def test_a_quarantine_outlasts_a_restart_and_keeps_state_and_results(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "cast": CAST_COUNTED})
    run(many, *GOOD, BAD)
    kept = kept_of(many.manifest)
    results = many.table("cast")
    again = job(tmp_path, {})
    assert again.driver.state.faults.stopped["cast"].batch == len(GOOD)
    run(again, *LATER)
    assert kept_of(again.manifest) == kept
    assert results.num_rows > 0 and again.table("cast").equals(results)
    assert again.manifest.queries["cast"].status == "quarantined"


def kept_of(manifest: Manifest) -> tuple[list[str], int, int]:
    slots = manifest.segments["cast"].values()
    places = sorted(entry.place for by_slot in slots for entries in by_slot.values() for entry in entries)
    return places, manifest.released["cast"], manifest.advanced_to["cast"]


@pytest.mark.parametrize("cql", [CAST, CAST_COUNTED, JOINED_CAST])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_resumed_query_goes_on_as_if_the_rows_in_between_had_never_come(tmp_path, cql, restarted):
    many = job(tmp_path, {"plain": PLAIN, "cast": cql})
    run(many, *GOOD, BAD, LATER[0])
    if restarted:
        many = job(tmp_path, {})
    many.driver.resume("cast")
    run(many, *LATER[1:], end=True)
    assert many.manifest.queries["cast"].status == "running"
    assert faults(many.manifest) == {}
    assert [e["event"] for e in many.history("cast") if "event" in e] == ["quarantined", "resumed"]
    require_equal(many, "cast", cql, *GOOD, *LATER[1:])
    require_equal(many, "plain", PLAIN, *GOOD, BAD, *LATER)


def test_a_query_that_is_resumed_too_early_is_stopped_again(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "cast": CAST})
    run(many, BAD)
    many.driver.resume("cast")
    run(many, {"A": rows((15, 1, "def"))})
    assert faults(many.manifest)["cast"].reason == "cannot cast 'def' to int64"
    with pytest.raises(ms.JobError, match="is not in quarantine"):
        many.driver.resume("plain")


def test_a_query_in_quarantine_can_be_dropped_and_does_not_migrate(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "late": JOINED_CAST})
    run(many, BAD)
    with pytest.raises(ms.MigrationError, match="is in quarantine"):
        many.migrate_query("late", "(B A)", "moving_state")
    left = without_query(many.manifest, "late")
    assert "late" not in left.queries and faults(left) == {}
    many.drop("late")
    run(many, *LATER, end=True)
    assert "late" not in many.manifest.queries and faults(many.manifest) == {}
    require_equal(many, "plain", PLAIN, BAD, *LATER)


def test_a_job_ends_if_its_query_wants_that_and_nothing_of_the_batch_counts(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "cast": CAST}, cast="stop_job")
    run(many, *GOOD)
    before = many.manifest
    with pytest.raises(ms.InputError, match="query cast: cannot cast 'abc'"):
        run(many, BAD)
    assert many.manifest is before


@pytest.mark.parametrize("cql", [CAST, CAST_COUNTED])
@pytest.mark.parametrize("slots", [1, 3])
def test_rows_that_fail_by_themselves_are_set_aside_and_the_query_goes_on(tmp_path, cql, slots):
    many = Many(catalog=CATALOG, folder=tmp_path, slots=slots)
    many.driver.state.faults.policies["cast"] = "dead_letter"
    many.add("plain", PLAIN)
    many.add("cast", cql)
    run(many, *GOOD, BAD, *LATER, end=True)
    assert many.manifest.queries["cast"].status == "running"
    usable = {"A": rows((13, 1, "13"), (14, 1, "14"))}
    require_equal(many, "cast", cql, *GOOD, usable, *LATER)
    require_equal(many, "plain", PLAIN, *GOOD, BAD, *LATER)
    assert set_aside(many.manifest) == {"cast": SetAside(len(GOOD), 1)}
    assert buried(many) == [(len(GOOD), "A", "query cast: cannot cast 'abc' to int64")]


def buried(many: Many) -> list[tuple[int, str, str]]:
    import pyarrow.parquet as pq

    files = [many.driver.files.read(file.path) for file in many.manifest.outputs.dead_letters.newer]
    letters = [letter for content in files for letter in pq.read_table(pa.BufferReader(content)).to_pylist()]
    return [(letter["batch_id"], letter["stream"], letter["reason"]) for letter in letters]


def test_where_no_row_is_at_fault_by_itself_the_query_is_stopped(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "late": JOINED_CAST}, late="dead_letter")
    run(many, *GOOD, BAD)
    assert many.manifest.queries["late"].status == "quarantined"
    assert set_aside(many.manifest) == {}


def test_windows_without_the_rows_set_aside_are_shared_only_once_these_are_past(tmp_path):
    narrow = "SELECT k, v FROM A [RANGE 9] WHERE CAST(v AS BIGINT) > 0"
    joined = f"SELECT a.k, B.v FROM ({narrow}) AS a, B [RANGE 9] WHERE a.k = B.k"
    many = job(tmp_path, {"cast": joined}, cast="dead_letter")
    run(many, *GOOD, BAD)
    many.add("new", "SELECT A.k, B.v AS w, A.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    run(many, *LATER, end=True)
    assert faults(many.manifest) == {}
    require_equal(many, "cast", joined, *GOOD, {**BAD, "A": rows((13, 1, "13"), (14, 1, "14"))}, *LATER)


def test_a_batch_that_is_repeated_comes_to_the_same_decision(tmp_path, monkeypatch):
    def manifest_of(folder: Path, crash: bool) -> Manifest:
        many = job(folder, {"plain": PLAIN, "cast": CAST, "late": JOINED_CAST}, cast="dead_letter")
        run(many, *GOOD)
        if crash:

            def die(*_: Any, **__: Any) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Commits, "begin", die)
                run(many, BAD)
            many = job(folder, {}, cast="dead_letter")
        run(many, BAD)
        return many.manifest

    once, twice = manifest_of(tmp_path / "once", False), manifest_of(tmp_path / "twice", True)
    assert once.queries == twice.queries
    assert faults(once) == faults(twice)
    assert set_aside(once) == set_aside(twice)


def test_state_of_a_query_in_quarantine_moves_with_the_slots(tmp_path):
    many = job(tmp_path, {"plain": PLAIN, "late": JOINED_CAST})
    run(many, *GOOD, BAD)
    many.driver.rescale(3)
    run(many, LATER[0])
    assert many.driver.state.slots == 3
    many.driver.resume("late")
    run(many, *LATER[1:], end=True)
    require_equal(many, "late", JOINED_CAST, *GOOD, *LATER[1:])


def test_few_queries_at_fault_among_many_are_found_in_few_attempts(tmp_path, monkeypatch):
    shifted = {f"q{i}": f"SELECT A.k + {i} AS n, B.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k" for i in range(20)}
    many = job(tmp_path, {**shifted, "late": JOINED_CAST})
    run(many, *GOOD)
    steps: list[int] = []
    plain = StageStep.run

    def counted(step: StageStep, slot: int, *rest: Any, **more: Any) -> Iterator[pa.RecordBatch]:
        steps.append(slot)
        return plain(step, slot, *rest, **more)

    monkeypatch.setattr(StageStep, "run", counted)
    run(many, BAD)
    assert faults(many.manifest).keys() == {"late"}
    assert steps.count(0) <= 14


def test_a_way_about_errors_that_there_is_not_is_refused():
    from midstream.job.queries.faults import on_error_of

    with pytest.raises(ms.QueryError, match="on_error cannot be 'ignore'"):
        on_error_of("ignore")


def test_a_row_that_several_fragments_of_a_routed_join_read_is_set_aside_once(tmp_path):
    cql = "SELECT A.k, B.v AS w FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND CAST(A.v AS BIGINT) > 0"
    many = Many(catalog=CATALOG, folder=tmp_path, slots=2)
    many.driver.state.faults.policies["cast"] = "dead_letter"
    many.add("cast", cql, wanted="A -> B, B <- A")
    run(many, *GOOD, BAD, *LATER, end=True)
    require_equal(many, "cast", cql, *GOOD, {**BAD, "A": rows((13, 1, "13"), (14, 1, "14"))}, *LATER)
    assert set_aside(many.manifest) == {"cast": SetAside(len(GOOD), 1)}
    assert buried(many) == [(len(GOOD), "A", "query cast: cannot cast 'abc' to int64")]


def test_a_query_that_needs_more_memory_at_once_than_there_is_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_limits, "LEAST", 1)
    many = job(tmp_path, {"plain": PLAIN, "rows": "SELECT k, v FROM A [ROWS 100]"})
    many.driver.memory = Memory(200)
    run(many, *GOOD, *LATER, end=True)
    fault = faults(many.manifest)["rows"]
    assert list(faults(many.manifest)) == ["rows"]
    assert fault.reason == "row window needs more memory than memory_per_slot"
    assert fault.detail is not None and fault.detail.endswith("more than 200 bytes")
    require_equal(many, "plain", PLAIN, *GOOD, *LATER)
