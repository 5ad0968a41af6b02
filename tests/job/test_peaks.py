"""What a slot holds does not grow with the batch: four times the rows take about the memory of one time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.job.chain import Chain
from tests.job.many import Many
from tests.job.peaks import peak_of, run_batch, run_move
from tests.profiles import always

from midstream.api import ask
from midstream.job.batch import Batch
from midstream.job.slots.moving import Move
from midstream.job.task.memory import Memory
from midstream.job.task.reports import Report

MEMORY = 2**21
PART = 1_500
DISTINCT = {
    "few tuples, again and again": ("SELECT DISTINCT A.k FROM A [NOW]", 20),
    "few tuples, always there": ("SELECT DISTINCT A.k FROM A [RANGE 500]", 20),
    "many tuples": ("SELECT DISTINCT A.k FROM A [RANGE 20]", 2_000),
    "above a join": ("SELECT DISTINCT A.v FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k", 100),
}

ONE_WINDOW = {
    "groups": "SELECT A.k, count(*) AS n, sum(A.v) AS s FROM A [RANGE 50000] GROUP BY A.k",
    "least and greatest": "SELECT A.k, min(A.v) AS low, count(DISTINCT A.v) AS n FROM A [RANGE 50000] GROUP BY A.k",
    "left join": "SELECT A.v AS a, B.v AS b FROM A [RANGE 50000] LEFT JOIN B [RANGE 50000] ON A.k = B.k",
    "full join": "SELECT A.v AS a, B.v AS b FROM A [RANGE 50000] FULL JOIN B [RANGE 50000] ON A.k = B.k AND A.v < B.v",
    "anti join": "SELECT A.v FROM A [RANGE 50000] WHERE NOT EXISTS (SELECT 1 FROM B [RANGE 50000] WHERE A.k = B.k)",
    "difference": "SELECT A.k FROM A [RANGE 50000] EXCEPT ALL SELECT B.k FROM B [RANGE 50000]",
    "intersection": "SELECT A.k FROM A [RANGE 50000] INTERSECT ALL SELECT B.k FROM B [RANGE 50000]",
}

ONE_KEY = {
    "all rows": "SELECT count(*) AS n, sum(A.v) AS s, min(A.v) AS low FROM A [RANGE 50000]",
    "what enters": "SELECT ISTREAM A.k, A.v FROM A [RANGE 50000]",
    "different values": "SELECT count(DISTINCT A.v) AS n, avg(A.v) AS m FROM A [RANGE 50000]",
    "what is there": "SELECT RSTREAM A.k, A.v FROM A [RANGE 20]",
    "last rows": "SELECT A.k, A.v FROM A [PARTITION BY k ROWS 4]",
    "sequence": "SELECT x.v AS a, y.v AS b FROM A AS x FOLLOWED BY B AS y ON x.k = y.k",
}

WINDOWS = "A [RANGE 50000], B [RANGE 50000], C [RANGE 50000]"
MOVES = {
    "joins": f"SELECT A.v AS a, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.v = C.v",
    "joins below a distinct": f"SELECT DISTINCT A.v AS a, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.v = C.v",
}


def rows_of(stream: str, first: int, rows: int, keys: int) -> pa.RecordBatch:
    random = np.random.default_rng([ord(stream), first])
    columns = {"k": random.integers(0, keys, rows), "v": random.integers(0, keys, rows)}
    return pa.RecordBatch.from_pydict({**columns, "ts": (first + np.arange(rows)) // 10})


def arriving(streams: str, rows: int, keys: int) -> Iterator[dict[str, pa.RecordBatch]]:
    for first in range(0, rows, PART):
        yield from ({stream: rows_of(stream, first, PART, keys)} for stream in streams)


def opened(query: str, keys: int, folder: Path, plan: str | None = None) -> Chain:
    streams = {name: pa.Table.from_batches([rows_of(name, 0, 10, keys)]) for name in "ABC"}
    question = ask(query, {name: table for name, table in streams.items() if f"{name} " in query})
    return Chain(question.plan, question.catalog, folder, slots=1, plan=plan, memory=Memory(MEMORY))


@pytest.mark.parametrize("name", always(1, DISTINCT))
def test_a_large_batch_of_a_distinct_takes_no_more_memory_than_a_small_one(name, tmp_path):
    query, keys = DISTINCT[name]

    def peak(rows: int) -> int:
        chain = opened(query, keys, tmp_path / str(rows))
        streams = "".join(sorted(d.name for d in chain.driver.streams.values()))
        return peak_of(lambda: run_batch(chain, arriving(streams, rows, keys)))

    small, large = peak(12_000), peak(48_000)
    assert large < 2 * small


@pytest.mark.parametrize("name", MOVES)
def test_a_move_of_large_states_takes_no_more_memory_than_one_of_small_ones(name, tmp_path):
    def peak(rows: int) -> int:
        chain = opened(MOVES[name], rows, tmp_path / str(rows), "((A B) C)")
        run_batch(chain, arriving("ABC", rows, rows))
        peaks: list[int] = []
        moved: list[Report] = []

        def watched(move: Move) -> list[Report]:
            peaks.append(peak_of(lambda: moved.extend(run_move(move))))
            return moved

        chain.cluster.move = watched  # type: ignore[method-assign]
        chain.migrate("(A (B C))", "moving_state")
        run_batch(chain, ())
        assert sum(part.processed_twice for report in moved for part in report.fragments.values()) >= rows
        return peaks[0]

    small, large = peak(6_000), peak(24_000)
    assert large < 2 * small


def test_a_move_inside_tasks_takes_no_more_memory_than_one_of_small_states(tmp_path):
    query = f"SELECT A.v AS a, C.v AS c FROM {WINDOWS} WHERE A.k = B.k AND B.k = C.k"

    def peak(rows: int) -> int:
        chain = opened(query, rows, tmp_path / str(rows), "((A B) C)")
        run_batch(chain, arriving("ABC", rows, rows))
        chain.migrate("(A (B C))", "moving_state")
        moved: list[Batch] = []
        found = peak_of(lambda: moved.append(run_batch(chain, ())))
        parts = [part for report in moved[0].reports for part in report.fragments.values()]
        assert sum(part.processed_twice for part in parts) >= rows
        return found

    small, large = peak(6_000), peak(24_000)
    assert large < 2 * small


@pytest.mark.parametrize("name", always(2, ONE_WINDOW))
def test_a_large_window_takes_no_more_memory_than_a_small_one(name, tmp_path):
    def peak(rows: int) -> int:
        chain = opened(ONE_WINDOW[name], rows, tmp_path / str(rows))
        streams = "".join(sorted(d.name for d in chain.driver.streams.values()))
        run_batch(chain, arriving(streams, rows, rows))
        found: list[Batch] = []
        most = peak_of(lambda: found.append(run_batch(chain, (), end=True)))
        parts = [part for report in found[0].reports for part in report.fragments.values()]
        assert sum(part.rows_out for part in parts) >= rows / 4
        return most

    small, large = peak(12_000), peak(48_000)
    assert large < 2 * small


@pytest.mark.parametrize("name", always(1, ONE_KEY))
def test_what_has_no_keys_or_few_is_looked_at_in_parts(name, tmp_path):
    def peak(rows: int) -> int:
        chain = opened(ONE_KEY[name], rows, tmp_path / str(rows))
        streams = "".join(sorted(d.name for d in chain.driver.streams.values()))
        run_batch(chain, arriving(streams, rows, rows))
        return peak_of(lambda: run_batch(chain, (), end=True))

    small, large = peak(12_000), peak(48_000)
    assert large < 2 * small


def sharing(rows: int, folder: Path) -> Many:
    streams = {name: pa.Table.from_batches([rows_of(name, 0, 10, rows)]) for name in "AB"}
    many = Many(catalog=ask("SELECT A.v, B.v AS w FROM A [NOW], B [NOW]", streams).catalog, folder=folder, slots=1)
    many.driver.memory = Memory(MEMORY)
    return many


def test_queries_that_share_a_join_hold_little_of_what_it_gives(tmp_path):
    def peak(keys: int) -> tuple[int, int]:
        many = sharing(10, tmp_path / str(keys))
        for number in range(3):
            many.add(
                f"q{number}",
                f"SELECT A.v AS a, B.v AS b FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k AND A.v >= {number}",
            )
        found: list[Batch] = []
        most = peak_of(lambda: found.append(run_batch(many, arriving("AB", 3_000, keys))))
        return most, sum(part.rows_out for report in found[0].reports for part in report.fragments.values())

    (small, few), (large, many) = peak(200), peak(4)
    assert many > 20 * few
    assert large < 2 * small


def test_new_queries_over_large_windows_take_no_more_memory_than_over_small_ones(tmp_path):
    windows = "A [RANGE 50000], B [RANGE 50000]"

    def peak(rows: int) -> int:
        many = sharing(rows, tmp_path / str(rows))
        many.add("first", f"SELECT A.v AS a, B.v AS b FROM {windows} WHERE A.k = B.k")
        run_batch(many, arriving("AB", rows, rows))
        many.add("selection", f"SELECT A.v AS a, B.v AS b FROM {windows} WHERE A.k = B.k AND A.v > 1")
        many.add("distinct", f"SELECT DISTINCT A.k AS k FROM {windows} WHERE A.k = B.k")
        many.add("groups", f"SELECT A.k, count(*) AS n FROM {windows} WHERE A.k = B.k GROUP BY A.k")
        found: list[Batch] = []
        most = peak_of(lambda: found.append(run_batch(many, ())))
        parts = {name[0]: part for report in found[0].reports for name, part in report.fragments.items()}
        assert parts["selection"].rows_out > rows / 2
        assert parts["distinct"].work.taken > rows / 2
        return most

    small, large = peak(6_000), peak(24_000)
    assert large < 2 * small


@pytest.mark.slow
def test_many_queries_share_the_memory_of_a_slot(tmp_path):
    def peak(queries: int) -> int:
        many = sharing(200, tmp_path / str(queries))
        for number in range(queries):
            condition = f"A.k = B.k AND A.v >= {number}"
            query = f"SELECT A.v AS a, B.v AS b FROM A [RANGE 40], B [RANGE 40] WHERE {condition}"
            many.add(f"q{number}", query, share=False)
        return peak_of(lambda: run_batch(many, arriving("AB", 7_500, 200)))

    assert peak(12) < 2 * MEMORY


def test_dead_letters_wait_in_files(tmp_path):
    def without_time(rows: int) -> Iterator[dict[str, pa.RecordBatch]]:
        for first in range(0, rows, PART):
            whole = rows_of("A", first, PART, 100)
            yield {"A": whole.set_column(2, "ts", pa.nulls(PART, pa.int64()))}

    def peak(rows: int) -> int:
        chain = opened("SELECT DISTINCT A.k FROM A [NOW]", 100, tmp_path / str(rows))
        found = peak_of(lambda: run_batch(chain, without_time(rows)))
        assert sum(file.rows for file in chain.manifest.outputs.dead_letters.newer) == rows
        return found

    small, large = peak(7_500), peak(30_000)
    assert large < 1.5 * small
