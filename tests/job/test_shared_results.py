"""Queries that give the same columns share files of results, and each reads its own rows out of them."""

from __future__ import annotations

import random

import pyarrow.parquet as pq
import pytest
from tests.job.test_sharing import Watched
from tests.scheduling.test_session import THREE
from tests.scheduling.watched import drawn

from midstream.checkpoint import merging
from midstream.checkpoint.collect import collect
from midstream.checkpoint.file_entries import FileLog, ResultFile
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.names import SHARED_RESULTS
from midstream.checkpoint.outputs import QUERY, read_results
from midstream.checkpoint.records import Outputs
from midstream.job.commits import write_merged
from midstream.job.task import results as results_files

ASKED = {
    **{f"q{i}": f"{THREE} AND A.v = {i}" for i in range(3)},
    "all": THREE,
    "grouped": "SELECT k, count(*) AS n FROM A [RANGE 9] GROUP BY k",
}


def filled(folder, batches: int) -> Watched:
    watched = Watched(folder)
    for name, cql in ASKED.items():
        watched.add(name, cql)
    run(watched, batches)
    return watched


def run(watched: Watched, batches: int) -> None:
    rng = random.Random(len(watched.batches))
    for _ in range(batches):
        watched.batch({name: drawn(rng, 4 * len(watched.batches), 12) for name in "ABC"})
        if watched.many.driver.commits.compactor.round is not None:
            watched.many.driver.commits.compactor.round.result()


def named(watched: Watched, query: str) -> list[ResultFile]:
    return list(watched.many.manifest.outputs.results[query].newer)


def test_queries_of_equal_columns_share_a_file_for_each_slot_and_others_have_their_own(tmp_path):
    watched = filled(tmp_path, 3)
    paths = {name: {f.path for f in named(watched, name)} for name in ASKED}
    joins = paths["q0"] | paths["q1"] | paths["q2"] | paths["all"]
    assert joins & paths["q1"] & paths["all"]
    assert all(path.startswith(f"{SHARED_RESULTS}/") for path in joins)
    assert len({path.rpartition("/")[0] for path in joins}) == 1
    assert paths["grouped"] and not paths["grouped"] & joins
    assert all(path.startswith("results/grouped/") for path in paths["grouped"])
    watched.many.batch({}, end=True)
    for name in ASKED:
        watched.check(name)


def test_rows_are_told_apart_by_name_whatever_the_row_groups_are(tmp_path, monkeypatch):
    monkeypatch.setattr(results_files, "GROUP_ROWS", 5)
    watched = filled(tmp_path, 4)
    files = watched.many.driver.files
    (path, *_) = {f.path for f in named(watched, "all")}
    whole = pq.ParquetFile(files.full(path))
    assert whole.metadata.num_row_groups > 1
    rows = whole.read().column(QUERY).to_pylist()
    assert rows == sorted(rows)
    for name in set(rows):
        (file,) = [f for f in named(watched, name) if f.path == path]
        assert read_results(files, file).num_rows == file.rows == rows.count(name)
    watched.many.batch({}, end=True)
    for name in ASKED:
        watched.check(name)


def test_a_query_with_many_results_has_a_file_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(results_files, "ALONE", 400)
    watched = filled(tmp_path, 4)
    files = {name: named(watched, name) for name in ASKED}
    assert all(f.part == "" for found in files.values() for f in found if f.rows >= 400)
    assert {bool(f.part) for name in ("q0", "q1", "q2", "all") for f in files[name]} == {True, False}
    watched.many.batch({}, end=True)
    for name in ASKED:
        watched.check(name)


def test_shared_files_are_merged_for_all_and_the_old_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "KEPT_SECONDS", 0.0)
    watched = filled(tmp_path, 20)
    most = max(len(named(watched, name)) for name in ASKED)
    assert most < 20
    merged = [f for f in named(watched, "all") if f.part and f.path.rpartition("/")[2].endswith(".parquet")]
    assert {f.path for f in merged} & {f.path for f in named(watched, "q1")}
    watched.many.driver.commits.compactor.take(wait=True)
    collect(watched.many.driver.store, watched.many.driver.files)
    assert len(watched.many.driver.files.list(SHARED_RESULTS)) < 40
    watched.many.drop("q0")
    watched.many.drop("all")
    run(watched, 12)
    watched.open()
    run(watched, 2)
    watched.many.batch({}, end=True)
    for name in watched.many.driver.queries:
        watched.check(name)


def test_a_merge_takes_those_that_are_done_and_is_adopted_by_those_that_still_name_all(tmp_path):
    watched = filled(tmp_path, 1)
    folder = {f.path for f in named(watched, "all")}.pop().rpartition("/")[0]
    old = [ResultFile(f"{folder}/{i:012d}-x.parquet", 5, i, i, i, part) for i in range(9) for part in ("a", "b", "c")]
    results = {name: tuple(f for f in old if f.part == name) for name in "abc"}
    manifest = Manifest(
        "q",
        20,
        outputs=Outputs(results={n: FileLog(own) for n, own in results.items()}),
        released={"a": 100, "b": 100, "c": 3},
    )
    (merge,) = merging.due(manifest)
    assert isinstance(merge, merging.SharedMerge)
    assert {query: len(files) for query, files in merge.old.items()} == {"a": 9, "b": 9, "c": 3}
    left = {"a": results["a"], "b@21": results["b"], "c": results["c"][1:]}
    later = Manifest("q", 21, outputs=Outputs(results={n: FileLog(own) for n, own in left.items()}))
    adopted = merging.adopt(later, [(merge, merge.merged(f"{folder}/new.parquet"))], 0.0)
    assert [(f.path, f.rows, f.part) for f in adopted.outputs.results["a"].newer] == [
        (f"{folder}/new.parquet", 45, "a")
    ]
    assert [adopted.outputs.results[n].newer for n in ("b@21", "c")] == [results["b"], results["c"][1:]]
    assert {f.path for f in adopted.outputs.superseded} == {f.path for f in results["a"]}


def test_rows_that_two_queries_name_are_not_merged_for_one_of_them():
    old = [ResultFile(f"results/_shared/x/{i:012d}-x.parquet", 5, i, i, i, part) for i in range(9) for part in "ab"]
    results = {name: FileLog([f for f in old if f.part == name]) for name in "ab"}
    both = {**results, "a~verify": results["a"]}
    released = dict.fromkeys(both, 100)
    assert merging.due(Manifest("q", 20, outputs=Outputs(results=results), released=released))
    assert not merging.due(Manifest("q", 20, outputs=Outputs(results=both), released=released))


def test_parts_are_merged_under_the_names_that_queries_have_by_then(tmp_path):
    watched = filled(tmp_path, 8)
    files = watched.many.driver.files
    entries = {name: tuple(f for f in named(watched, name) if f.part) for name in ("q1", "all")}
    merge = merging.SharedMerge(SHARED_RESULTS, {"old@8": entries["q1"], "all": entries["all"]})
    made = merge.merged(*write_merged(files, merge, 9))
    for query, name in (("old@8", "q1"), ("all", "all")):
        rows = [row for file in entries[name] for row in read_results(files, file).to_pylist()]
        assert len(rows) == made[query].rows
        assert read_results(files, made[query]).to_pylist() == rows


@pytest.mark.parametrize("part", ["", "hot"])
def test_what_part_of_a_file_counts_survives_in_the_manifest(part):
    manifest = Manifest("q", 1, outputs=Outputs(results={"hot": FileLog((ResultFile("results/x", 3, 1, 2, 2, part),))}))
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_column_of_the_name_that_tells_rows_apart_is_only_a_column(tmp_path):
    watched = Watched(tmp_path)
    for i in range(2):
        watched.add(f"q{i}", f'SELECT k AS "{QUERY}" FROM A [RANGE 9] WHERE v >= {i}')
    run(watched, 3)
    watched.many.batch({}, end=True)
    for i in range(2):
        assert named(watched, f"q{i}")
        watched.check(f"q{i}")
