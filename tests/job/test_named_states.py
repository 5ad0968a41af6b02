"""Texts that ask for less than those before: what is stored stays where it is, and answers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.job.test_replacing import clipped
from tests.profiles import always, examples

import midstream as ms
from midstream.algebra.physical import PhysicalNode, walk_physical
from midstream.algebra.physical.selections import Selection
from midstream.algebra.time import BEGINNING
from midstream.api import plans
from midstream.checkpoint.files import Files
from midstream.checkpoint.opening import open_in
from midstream.checkpoint.packs import SegmentEntry, entries_in
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.job.batch import Batch
from midstream.job.commands import replacement
from midstream.job.task import kept_tasks
from midstream.job.task.step import StageStep
from midstream.lab.fuzz.changed_jobs import wrong_after_change
from midstream.lab.fuzz.changes import draw_narrowing
from midstream.operators.elements import Elements
from midstream.operators.state.narrowing import Narrowing, RowTests
from midstream.operators.state.segment import Segment

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
OLD = "SELECT A.k, A.v, B.v AS w, C.v AS x FROM A [RANGE 40], B [RANGE 40], C [RANGE 40] WHERE A.k = B.k AND B.k = C.k"
SHORTER = OLD.replace("RANGE 40", "RANGE 25")
UNEQUAL = OLD.replace("A [RANGE 40]", "A [RANGE 30]").replace("B [RANGE 40]", "B [RANGE 35]")
TWO = "SELECT A.v, B.v AS w FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
OUTER = "SELECT A.v, B.v AS w FROM A [RANGE 40] LEFT JOIN B [RANGE 40] ON A.k = B.k"
COUNTED = "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM A [RANGE 40] GROUP BY k"
BOTH = "SELECT A.k, B.v FROM A [RANGE 40], B [RANGE 40] WHERE A.k = B.k"
GROUPED = BOTH.replace("B.v", "COUNT(*) AS n, SUM(B.v) AS s, MAX(A.v) AS m") + " GROUP BY A.k"
PLACED = BOTH.replace("B.v", "A.v, SUM(B.v) OVER (PARTITION BY A.k ORDER BY A.v) AS n")
PAIRS = {
    "shorter windows": (OLD, SHORTER),
    "conditions": (OLD, OLD + " AND A.v < 9 AND C.v <> B.v"),
    "both, and fewer columns": (OLD, SHORTER.replace("A.k, A.v, ", "") + " AND A.v IN (1, 2, 3)"),
    "what follows from the columns": (OLD, SHORTER.replace("A.v, B.v AS w", "A.v + B.v AS w")),
    "what was asked before": (OLD + " AND A.v > 2", SHORTER + " AND A.v > 2 AND A.v < 9"),
    "with groups": (OLD, f"SELECT A.k, COUNT(*) AS n {SHORTER[SHORTER.index('FROM') :]} GROUP BY A.k"),
    "of groups": (
        f"SELECT A.k, MAX(A.v) AS m {OLD[OLD.index('FROM') :]} GROUP BY A.k",
        SHORTER.split(",", 1)[0] + SHORTER[SHORTER.index(" FROM") :],
    ),
    "windows shorter by unequal times": (OLD, UNEQUAL),
    "all rows counted": ("SELECT COUNT(*) AS n FROM A [RANGE 40]", "SELECT COUNT(*) AS n FROM A [RANGE 25]"),
    "groups of a join": (GROUPED, GROUPED.replace("40", "25") + " HAVING COUNT(*) > 1"),
    "places in a join": (PLACED, PLACED.replace("40", "25")),
    "groups of a union": tuple(
        f"SELECT k, COUNT(*) AS n FROM ({text} UNION ALL {text.replace('B', 'C')}) AS u GROUP BY k"
        for text in (BOTH, BOTH.replace("40", "25"))
    ),
    "changes": (OLD, SHORTER.replace("SELECT", "SELECT ISTREAM")),
    "copies, left out below the join": (OLD, f"SELECT DISTINCT A.v {SHORTER[SHORTER.index('FROM') :]}"),
    "other aggregates": (COUNTED, "SELECT k, SUM(v) AS s, MIN(v) AS low FROM A [RANGE 25] WHERE v < 9 GROUP BY k"),
    "an outer join": (OUTER, OUTER.replace("A [RANGE 40]", "A [RANGE 25]") + " AND A.v < B.v"),
    "places": (
        "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM A [RANGE 40]",
        "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) AS n FROM A [RANGE 25] WHERE v > 2",
    ),
    "by keys in two stages": (
        "SELECT A.k, A.v, C.k AS j FROM A [RANGE 40], B [RANGE 40], C [RANGE 40] WHERE A.k = B.k AND B.v = C.v",
        "SELECT A.v, C.k AS j FROM A [RANGE 25], B [RANGE 25], C [RANGE 25] WHERE A.k = B.k AND B.v = C.v AND A.v > 2",
    ),
    "a stream that is read twice": (
        f"{TWO} UNION ALL {TWO.replace('B', 'C')}",
        f"{TWO} AND A.v > 2 UNION ALL {TWO.replace('B', 'C')}",
    ),
    "a window without end": (
        OLD.replace("C [RANGE 40]", "C [UNBOUNDED]"),
        SHORTER.replace("C [RANGE 25]", "C [UNBOUNDED]"),
    ),
}
APART = {
    "a condition that may fail for a row": (OLD, OLD + " AND CAST(A.v AS TINYINT) < 9"),
    "groups by another key": (COUNTED, "SELECT v, COUNT(*) AS n FROM A [RANGE 25] GROUP BY v"),
}


def rows(seed: int, count: int = 240) -> dict[str, pa.Table]:
    numbers = np.random.default_rng(seed)

    def table() -> pa.Table:
        keys = numbers.integers(0, 9, count)
        columns = {"k": pa.array(keys, mask=keys == 8), "v": numbers.integers(0, 12, count)}
        return pa.table({**columns, "ts": np.sort(numbers.integers(0, 160, count))}).cast(SCHEMA)

    return {name: table() for name in "ABC"}


@contextmanager
def session(folder: Path, cql: str, slots: int = 2) -> Iterator[CheckpointSession]:
    made = CheckpointSession(None, checkpoint=str(folder), on="local", slots=slots)
    for name in "ABC":
        made.stream(name, SCHEMA)
    made.query("q", cql)
    with made.start():
        yield made


def push(job: CheckpointSession, tables: Mapping[str, pa.Table], first: int, last: int) -> None:
    for at in range(first, last, 20):
        job.push({name: table.slice(at, 20) for name, table in tables.items()})


def narrowed(job: CheckpointSession) -> int:
    return sum(entry.narrowed is not None for entry in entries_in(job.job.manifest.segments["q"]))


def require_right(job: CheckpointSession, new: str, tables: Mapping[str, pa.Table]) -> None:
    job.finish()
    record = next(r.record for r in reversed(job.queries["q"].history) if r.record["status"] == "started")
    start, expected, got = record["complete_from"], ms.reference(new, tables), job.results("q")
    assert record["complete"] == "all results are complete" and not record["gap"]
    if "ts" in got.column_names:
        got, expected = (t.filter(pa.compute.greater_equal(t["ts"], start)) for t in (got, expected))
    else:
        expected = clipped(expected, start)
    assert got.num_rows and ms.snapshot_equal(got, expected)


@pytest.mark.parametrize("name", PAIRS)
def test_a_text_that_asks_for_less_takes_over_what_is_stored(name, tmp_path):
    (old, new), tables = PAIRS[name], rows(len(name))
    with patch.object(replacement, "is_much", lambda job, changes: False), session(tmp_path, old) as job:
        push(job, tables, 0, 140)
        told = job.replace("q", new)
        assert {window["how"] for window in told["windows"]} <= {"derived", "kept"} and not told["paced"]
        push(job, tables, 140, 160)
        assert narrowed(job)
    with session(tmp_path, new) as job:
        push(job, tables, 160, 240)
        require_right(job, new, tables)


@pytest.mark.parametrize("name", APART)
def test_what_is_stored_for_another_text_is_not_taken_for_this_one(name, tmp_path):
    (old, new), tables = APART[name], rows(len(name))
    with session(tmp_path, old) as job:
        push(job, tables, 0, 140)
        job.replace("q", new)
        push(job, tables, 140, 160)
        assert not narrowed(job)
        push(job, tables, 160, 240)
        require_right(job, new, tables)


def test_rows_that_a_join_could_not_use_are_not_taken_to_be_all(tmp_path):
    alike = TWO.replace("A.k = B.k", "A.k IS NOT DISTINCT FROM B.k")
    with session(tmp_path, TWO) as job:
        push(job, rows(3), 0, 60)
        assert {window["how"] for window in job.replace("q", alike, dry_run=True)["windows"]} == {"empty"}
        assert {window["how"] for window in job.replace("q", TWO + " AND A.v > 2", dry_run=True)["windows"]} == {
            "derived",
            "kept",
        }


def test_a_join_is_narrowed_again_and_again_moved_and_migrated(tmp_path):
    tables, last = rows(11), SHORTER.replace("25", "20") + " AND A.v < 9 AND B.v > 1"
    with patch.object(replacement, "is_much", lambda job, changes: False), session(tmp_path, OLD) as job:
        push(job, tables, 0, 140)
        for text in (SHORTER, SHORTER + " AND A.v < 9", last):
            job.replace("q", text)
            push(job, tables, 140, 160) if text is SHORTER else None
            push(job, tables, 160, 180) if text.endswith("< 9") else None
        push(job, tables, 180, 200)
        assert narrowed(job)
        job.rescale(3)
        push(job, tables, 200, 220)
        now = str(job.queries["q"].plan)
        job.queries["q"].migrate(next(p.text for p in plans(last, tables) if p.text != now), strategy="moving_state")
        push(job, tables, 220, 240)
        require_right(job, last, tables)


def test_what_is_narrowed_again_is_not_opened_again(tmp_path, monkeypatch):
    tables, opened = rows(2), list[str]()

    def opening(files: Files, entry: SegmentEntry, *given: Any) -> Segment:
        opened.append(entry.place)
        return open_in(files, entry, *given)

    with session(tmp_path, OLD) as job:
        push(job, tables, 0, 140)
        job.replace("q", SHORTER)
        push(job, tables, 140, 160)
        monkeypatch.setattr(kept_tasks, "open_in", opening)
        job.replace("q", last := SHORTER.replace("25", "20") + " AND A.v < 9")
        push(job, tables, 160, 180)
        assert narrowed(job) and not opened
        push(job, tables, 180, 240)
        require_right(job, last, tables)


@pytest.mark.parametrize("old", [TWO, OLD, OLD + " AND A.v < 1", COUNTED], ids=range(4))
def test_a_text_that_begins_with_what_is_stored_leaves_nothing_for_the_old_one_to_do(old, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.job.queries.filling.LEAST_WORK", 1)
    monkeypatch.setattr("midstream.job.queries.filling.SHARE", 0)
    tables, at_work = rows(5), list[set[str]]()

    def steps(batch: Batch, *given: Any) -> list[StageStep]:
        made = unpatched(batch, *given)
        at_work.append({name for step in made for work in step.work for name, _ in work.key})
        return made

    unpatched = Batch.steps
    with patch.object(Batch, "steps", steps), session(tmp_path, old) as job:
        push(job, tables, 0, 140)
        told = job.replace("q", old.replace("40", "25"))
        push(job, tables, 140, 180)
    read = [window["results"] for window in told["windows"] if window["rows"]]
    assert read == [True] * (old is not COUNTED)  # only the smaller side of the topmost join, for what it has given
    assert not told["paced"]
    assert at_work and all(names == {"q"} for names in at_work)


def join_of(cql: str) -> PhysicalNode:
    return next(node for node in walk_physical(plans(cql, rows(0))[0].physical) if len(node.inputs) == 2)


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(1, 12)), min_size=1), st.integers(0, 6))
def test_some_rows_end_when_all_of_them_do(drawn, sooner):
    columns = pa.record_batch({"A.k": [k for k, _, _ in drawn], "A.v": [v for _, v, _ in drawn]})
    since = np.arange(len(drawn))
    stored = Elements(columns, since, since + np.array([length for _, _, length in drawn]))
    join = join_of("SELECT A.k FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND A.v < 5")
    narrowing = Narrowing(sooner, RowTests(join.inputs[0]), columns, "")
    every = np.arange(len(drawn))
    ends = narrowing.applied(stored).valid_to
    assert np.array_equal(ends, narrowing.ends(since, stored.valid_to, every))
    there = np.array([v < 5 for _, v, _ in drawn]) & (stored.valid_to - sooner > since)
    assert np.array_equal(ends[there], stored.valid_to[there] - sooner) and (ends[~there] == BEGINNING).all()
    some = narrowing.slice(1, len(drawn) - 1).ends(since[1:], stored.valid_to[1:], every[: len(drawn) - 1])
    assert np.array_equal(some, ends[1:])


@pytest.mark.parametrize(
    ("old", "new", "sooner"),
    [
        ("A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "A [RANGE 4], B [RANGE 4] WHERE A.k = B.k", 5),
        ("A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "A [RANGE 4], B [RANGE 9] WHERE A.k = B.k", None),
        ("A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "A [RANGE 9], B [RANGE 12] WHERE A.k = B.k", None),
        ("A [RANGE 9], B [UNBOUNDED] WHERE A.k = B.k", "A [RANGE 4], B [UNBOUNDED] WHERE A.k = B.k", 5),
        ("A [RANGE 9], B [NOW] WHERE A.k = B.k", "A [RANGE 4], B [NOW] WHERE A.k = B.k", None),
        ("A [TUMBLE 9], B [TUMBLE 9] WHERE A.k = B.k", "A [TUMBLE 3], B [TUMBLE 3] WHERE A.k = B.k", None),
        ("A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND A.v = 5", 0),
        ("A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", "A [RANGE 9], B [RANGE 9] WHERE A.v = B.v", None),
        ("A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND A.v > 5", "A [RANGE 9], B [RANGE 9] WHERE A.k = B.k", None),
        (
            "A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND A.v > 5",
            "A [RANGE 9], B [RANGE 9] WHERE A.k = B.k AND (A.v > 5 OR (A.v > 6 AND A.v + 1 < 99))",
            None,
        ),
    ],
)
def test_by_how_much_a_selection_is_narrower(old, new, sooner):
    one, other = (_selection(f"SELECT A.k, A.v FROM {text}") for text in (new, old))
    assert one.sooner_than(other, frozenset({"A.k", "A.v"})) == sooner


def test_a_selection_is_the_same_by_every_plan():
    found = [Selection.of(plan.physical.inputs[0]) for plan in plans(OLD + " AND A.v < 9 AND B.v < C.v", rows(0))]
    assert len(found) == 5 and all(found)  # trees, one join of all, and routed joins
    assert len({(s.equal, frozenset(map(str, s.conditions)), frozenset(s.windows)) for s in found if s}) == 1


def _selection(cql: str) -> Selection:
    selection = Selection.of(join_of(cql))
    assert selection is not None
    return selection


@pytest.mark.parametrize("seed", always(7, range(120)))
def test_a_drawn_join_that_is_narrowed_keeps_what_it_promises(seed):
    change = draw_narrowing(seed)
    with patch.object(replacement, "is_much", lambda job, changes: False):
        wrong = wrong_after_change(change, Random(f"job {seed}"), Counter())
    assert wrong is None, f"{wrong}\n{change}"
