"""Any thread may call a session, and what runs within a batch may not begin another one: the same for every session."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns after almost every instruction, so that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_memory(_: Path, **options: Any) -> ms.Session:
    return ms.Session(**options)


def on_a_checkpoint(folder: Path, **options: Any) -> ms.Session:
    return ms.Session(checkpoint=str(folder), on="local", **options)


def ended(work: Callable[[], None]) -> bool:
    """Whether something ends; a thread that waits for itself never does."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


@pytest.mark.parametrize(("opened", "pushes"), [(in_memory, 60), (on_a_checkpoint, 4)])
def test_rows_that_several_threads_push_are_all_there(opened, pushes, tmp_path, frequent_switches):
    session = opened(tmp_path)
    for name in "AB":
        session.stream(name, SCHEMA, lateness=100_000, max_ahead="any")
    session.query("q", "SELECT k, v FROM A [NOW]")
    session.query("j", "SELECT A.k, B.v FROM A [RANGE 5], B [RANGE 5] WHERE A.k = B.k")
    session.start()
    failures: list[BaseException] = []

    def work(stream: str, number: int) -> None:
        try:
            for i in range(pushes):
                session.push(stream, [{"ts": i, "k": number, "v": i}])
                session.results("q")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(stream, n)) for n in range(2) for stream in "AB"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.finish()
    found = sorted((row["k"], row["v"]) for row in session.results("q").to_pylist())
    assert not failures and found == [(number, i) for number in range(2) for i in range(pushes)]


@pytest.mark.parametrize("opened", [in_memory, on_a_checkpoint])
def test_a_push_within_a_batch_is_refused_by_name_and_later_ones_are_taken(opened, tmp_path):
    refused: list[ms.JobError] = []

    def pushing(value: int) -> int:
        try:
            session.push("A", [{"ts": 3, "k": 1, "v": 1}])
        except ms.JobError as error:
            refused.append(error)
        return value

    session = opened(tmp_path, functions=[ms.ScalarFunction("pushing", pushing, pa.int64())])
    session.stream("A", SCHEMA)
    session.query("q", "SELECT pushing(k) AS k FROM A [NOW]")
    session.start()
    assert ended(lambda: session.push("A", [{"ts": 1, "k": 1, "v": 1}]))
    assert refused and "push was called within a batch of the same session" in refused[0].message
    assert ended(lambda: session.push("A", [{"ts": 2, "k": 1, "v": 1}]))
    session.finish()
    assert session.results("q").num_rows == 2


def test_a_push_from_a_sink_or_before_a_batch_is_refused(tmp_path):
    session = on_a_checkpoint(tmp_path).stream("A", SCHEMA)
    session.query("q", "SELECT k, v FROM A [NOW]")
    refused: list[str] = []

    def push(*_: object) -> None:
        try:
            session.push("A", [{"ts": 3, "k": 1, "v": 1}])
        except ms.JobError as error:
            refused.append(error.message)

    session.sink("q", push)
    session.before_batch(push)
    session.start()
    assert ended(lambda: session.push("A", [{"ts": 1, "k": 1, "v": 1}]))
    assert ended(lambda: session.push("A", [{"ts": 5, "k": 1, "v": 1}]))
    session.stop()
    assert len(refused) >= 3 and all("within a batch" in message for message in refused)


@pytest.mark.parametrize("by", ["join", "pool"])
@pytest.mark.parametrize("opened", [in_memory, on_a_checkpoint])
def test_a_push_for_which_its_own_batch_waits_is_refused(opened, by, tmp_path):
    refused: list[str] = []

    def push() -> None:
        try:
            session.push("A", [{"ts": 3, "k": 1, "v": 1}])
        except ms.JobError as error:
            refused.append(error.message)

    def waiting(value: int) -> int:
        if by == "join":
            thread = threading.Thread(target=push, daemon=True)
            thread.start()
            thread.join()
        else:
            pool.submit(push).result()
        return value

    pool = ThreadPoolExecutor(1)
    session = opened(tmp_path, functions=[ms.ScalarFunction("waiting", waiting, pa.int64())])
    session.stream("A", SCHEMA)
    session.query("q", "SELECT waiting(k) AS k FROM A [NOW]")
    session.start()
    assert ended(lambda: session.push("A", [{"ts": 1, "k": 1, "v": 1}]))
    assert set(refused) == {"a session was called from a thread for which a batch of the same session waits"}
    session.finish()
    assert session.results("q").num_rows == 1


def test_a_call_that_only_comes_while_a_sink_waits_for_others_is_taken(tmp_path):
    session = on_a_checkpoint(tmp_path).stream("A", SCHEMA)
    session.query("q", "SELECT k, v FROM A [NOW]")
    pushed = threading.Thread(target=lambda: session.push("A", [{"ts": 5, "k": 1, "v": 1}]), daemon=True)
    began: list[int] = []

    def sink(_: object, batch: int) -> None:
        if not began:
            pushed.start()
            other = threading.Thread(target=lambda: pushed.join(1))
            other.start()
            other.join()
        began.append(batch)

    session.sink("q", sink)
    session.start()
    assert ended(lambda: session.push("A", [{"ts": 1, "k": 1, "v": 1}]))
    assert ended(pushed.join)
    session.finish()
    assert session.results("q").num_rows == 2
