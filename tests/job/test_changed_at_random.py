"""Random edits of random queries, at a random moment of a job with crashes, migrations and moves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.profiles import always

import midstream as ms
from midstream.checkpoint.query_windows import FilledPortion
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.job.queries.filling import Pace
from midstream.lab.fuzz.changed_jobs import clipped, wrong_after_change
from midstream.lab.fuzz.changes import draw_change

FOUND = (1795, 5065, 6249, 6296, 7282, 8643, 51175, 70031, 400126)
"""Texts that answered too early or beside the old one, left out an instant, migrated, shared what was being filled,
seemed the same, or did not say what neither of them answers."""


@pytest.mark.parametrize("seed", [*FOUND, *always(4, range(80))])
def test_a_changed_query_keeps_what_it_promises(seed):
    change = draw_change(seed)
    wrong = wrong_after_change(change, Random(f"job {seed}"), Counter())
    assert wrong is None, f"{wrong}\n{change}"


def test_windows_are_filled_as_fast_as_batches_permit():
    given = Pace(80_000, usual=1.0).portion(None)
    assert given == FilledPortion(10_000, 1.0)
    little, enough = (Pace(80_000, seconds=seconds, usual=9.0).portion(given) for seconds in (1.1, 1.5))
    assert little == FilledPortion(12_500, 1.0) and enough == FilledPortion(12_000, 1.0)
    assert Pace(80_000, seconds=60.0).portion(enough) == FilledPortion(3_000, 1.0)
    assert Pace(None).portion(given) is None
    assert Pace(80_000, usual=1.0).among(4).portion(None) == FilledPortion(2_500, 1.0)


INPUTS = dict.fromkeys("AB", pa.Table.from_pylist([{"k": ts % 3, "v": ts % 4, "ts": ts} for ts in range(60)]))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
IN_ONE_SLOT_AND_BY_KEY = (
    "SELECT RSTREAM * FROM (SELECT x.v FROM A [NOW] AS x WHERE x.v NOT IN (SELECT v FROM A [NOW])"
    " UNION ALL SELECT y.k AS v FROM A [NOW] AS y, A [NOW] AS z WHERE y.k = z.k) AS u"
)
JOINED = "FROM (SELECT DISTINCT k FROM A [RANGE 12]) [HOP 20, 10] AS x, B [HOP 20, 12] AS y WHERE x.k = y.v"


def session(folder: Path, slots: int, cql: str) -> CheckpointSession:
    made = CheckpointSession(None, checkpoint=str(folder), on="local", slots=slots)
    for name in "AB":
        made.stream(name, SCHEMA)
    made.query("q", cql)
    return made.start()


def pushed(job: CheckpointSession, first: int, last: int, rows: int) -> None:
    for at in range(first, last, rows):
        job.push({name: table.slice(at, rows) for name, table in INPUTS.items()})


def test_rows_of_a_union_that_lie_in_several_slots_are_not_lost_with_fewer(tmp_path):
    with session(tmp_path, 3, IN_ONE_SLOT_AND_BY_KEY) as job:
        for at, slots in ((0, 1), (20, 3), (40, 2)):
            pushed(job, at, at + 20, 4)
            job.rescale(slots)
        job.finish()
        assert ms.snapshot_equal(job.results("q"), ms.reference(IN_ONE_SLOT_AND_BY_KEY, {"A": INPUTS["A"]}))


def test_a_new_query_over_a_part_that_runs_is_given_what_a_batch_brings_once(tmp_path):
    new = f"SELECT COUNT(*) AS n {JOINED}"
    with session(tmp_path, 1, f"SELECT SUM(x.k) AS n {JOINED}") as job:
        pushed(job, 0, 40, 20)
        assert {window["how"] for window in job.replace("q", new, dry_run=True)["windows"]} == {"kept"}
        job.query("more", new)
        pushed(job, 40, 60, 20)
        job.finish()
        start = job.queries["more"].history[-1].record["complete_from"]
        expected = ms.reference(new, INPUTS)
        assert ms.snapshot_equal(clipped(job.results("more"), start), clipped(expected, start))


PAIRS = "SELECT A.k, B.v FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k"
OVER_PAIRS = f"SELECT k, v FROM ({PAIRS}) [RANGE 20] AS j"


@pytest.mark.parametrize("old", [PAIRS, OVER_PAIRS.replace("k, v", "v, k", 1)])
def test_a_window_over_a_sub_query_is_complete_once_all_that_it_lacks_has_left_it(old, tmp_path):
    with session(tmp_path, 2, old) as job:
        pushed(job, 0, 30, 5)
        told = job.replace("q", OVER_PAIRS, dry_run=True)
        assert {window["how"] for window in told["windows"]} == {"empty"} and told["complete_from"] == 60
        job.replace("q", OVER_PAIRS)
        pushed(job, 30, 60, 5)
        job.finish()
        start = job.queries["q"].history[-1].record["complete_from"]
        assert ms.snapshot_equal(clipped(job.results("q"), start), clipped(ms.reference(OVER_PAIRS, INPUTS), start))
