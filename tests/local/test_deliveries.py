"""A sink has had exactly the results of its query that start before an instant, whatever happened in between."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.ledger import Delivered, Ledger
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.sinks import Delivery, Folder, folder
from midstream.interface.cli import app

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
CQL = "SELECT k FROM A [NOW]"


def rows(*numbers: int) -> pa.Table:
    return pa.table({"ts": [10 * k for k in numbers], "k": list(numbers)}, schema=SCHEMA)


class Kept:
    """A plain sink that keeps what it is given, and fails as often as it is asked to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[tuple[int, list[int]]] = []

    def __call__(self, results: pa.Table, batch_id: int) -> None:
        if results.num_rows and self.failures:
            self.failures -= 1
            raise OSError("the sink is away")
        self.calls.append((batch_id, results.column("k").to_pylist()))

    @property
    def all(self) -> list[int]:
        return [k for _, given in self.calls for k in given]


class Flaky(Folder):
    """A folder that fails when it is asked to: before it has written, or after."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.fails: str | None = None

    def deliver(self, results: Any, delivery: Delivery) -> None:
        fails, self.fails = self.fails, None
        if fails == "before":
            raise OSError("the folder is away")
        super().deliver(results, delivery)
        if fails == "after":
            raise OSError("the folder is away")


def opened(checkpoint: Path, *sinks: Any, cql: str = CQL, **options: Any) -> CheckpointSession:
    session = CheckpointSession(checkpoint=str(checkpoint), on="local", **options)
    session.stream("A", SCHEMA)
    session.query("q", cql, replace=True)
    for sink in sinks:
        session.sink("q", sink)
    return session.start()


def run(checkpoint: Path, sinks: Iterable[Any], *batches: Iterable[int], **options: Any) -> None:
    with opened(checkpoint, *sinks, **options) as session:
        for batch in batches:
            session.push("A", rows(*batch))


def test_a_sink_that_comes_back_is_given_what_it_is_owed(tmp_path, caplog):
    first, last = Kept(1), Kept()
    with opened(tmp_path, first) as session:
        session.push("A", rows(1))
        with pytest.raises(OSError, match="away"):
            session.push("A", rows(2))
    run(tmp_path, [], [3], [4])
    assert "sink function of query q is not declared" in caplog.text
    run(tmp_path, [last], [5])
    # What may have reached the sink before it failed comes under the number it had, apart from the rest.
    assert last.calls == [(1, [1]), (3, [2, 3]), (4, [4])]


def test_what_a_sink_may_have_had_as_its_very_first_comes_under_the_number_it_had(tmp_path):
    had, last = list[tuple[int, list[int]]](), Kept()

    def sink(results: pa.Table, batch_id: int) -> None:
        had.append((batch_id, results.column("k").to_pylist()))
        raise OSError("the sink is away")

    with opened(tmp_path, sink) as session, pytest.raises(OSError, match="away"):
        session.push("A", rows(1, 2))
    run(tmp_path, [], [3])
    run(tmp_path, [last], [4])
    assert last.calls == [*had, (1, [2]), (2, [3])]


def test_what_a_sink_is_owed_is_shown_until_it_has_had_it(tmp_path):
    def shown() -> tuple[list[tuple[str, int | None, int]], str]:
        sinks = [(sink.name, sink.until, sink.owed) for sink in ms.open(tmp_path).sinks["q"]]
        answer = CliRunner().invoke(app, ["status", str(tmp_path)])
        assert answer.exit_code == 0, answer.output
        return sinks, answer.output

    run(tmp_path, [Kept()], [1], [2], [3])
    assert shown()[0] == [("function", 30, 0)] and "is owed" not in shown()[1]
    run(tmp_path, [], [4], [5], [6])
    sinks, text = shown()
    assert sinks == [("function", 30, 3)] and ms.read_results(str(tmp_path), "q").num_rows == 5
    assert "sink function is owed 3 results, those that start at 30 or later" in text
    run(tmp_path, [Kept()])
    assert shown()[0][0][2] == 0 and "is owed" not in shown()[1]


def test_results_that_retention_removed_before_a_sink_came_back_are_named(tmp_path, caplog):
    run(tmp_path, [Kept()], [1], [2])
    run(tmp_path, [], *([k] for k in range(3, 30)), retained=2, retention={"results": "3 batches"})
    last = Kept()
    with pytest.warns(UserWarning):
        kept = ms.read_results(str(tmp_path), "q")["k"].to_pylist()
    run(tmp_path, [last])
    assert last.all == kept and kept[0] > 3
    gone = f"results of query q that start from 20 to before {(kept[0] - 1) * 10 + 1} never reach sink function"
    assert gone in caplog.text


def test_a_sink_that_is_new_to_a_query_is_given_what_is_released_from_then_on(tmp_path):
    run(tmp_path, [], [1], [2], [3])
    new = Kept()
    run(tmp_path, [new], [4], [5])
    assert new.all == [3, 4]


def test_a_sink_is_not_taken_for_a_new_one_because_its_first_results_were_interrupted(tmp_path):
    with opened(tmp_path, Kept(1)) as session:
        (record,) = (tmp_path / "deliveries").glob("record-*")
        before = record.read_bytes()
        with pytest.raises(OSError, match="away"):
            session.push("A", rows(1, 2))
    record.write_bytes(before)  # as if the process had been killed in between
    last = Kept()
    run(tmp_path, [last])
    assert last.all == [1]


def test_a_sink_that_took_its_results_is_not_given_them_again_because_another_failed(tmp_path):
    good, bad = Kept(), Kept(2)
    with opened(tmp_path, good, bad) as session:
        session.push("A", rows(1))
        with pytest.raises(OSError, match="away"):
            session.push("A", rows(2))
    with pytest.raises(OSError, match="away"):
        run(tmp_path, [good, bad], [3])
    run(tmp_path, [good, bad], [3])
    assert good.all == bad.all == [1, 2]


def restored(checkpoint: Path, copy: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)


def test_a_folder_has_every_result_once_after_a_checkpoint_is_restored(tmp_path, caplog):
    checkpoint, copy, out = tmp_path / "c", tmp_path / "copy", tmp_path / "out"
    run(checkpoint, [folder(str(out))], [1], [2])
    shutil.copytree(checkpoint, copy)
    run(checkpoint, [folder(str(out))], [3], [4], [5])
    restored(checkpoint, copy)
    plain = Kept()
    run(checkpoint, [folder(str(out)), plain], [3, 4, 5, 6], [7])
    assert held(out) == Counter([1, 2, 3, 4, 5, 6])
    assert "was restored from a copy, or moved" in caplog.text
    assert "sink function of query q is a plain function" in caplog.text


def test_other_results_after_a_restore_are_refused_until_the_files_are_removed(tmp_path):
    checkpoint, copy, out = tmp_path / "c", tmp_path / "copy", tmp_path / "out"
    run(checkpoint, [folder(str(out))], [1], [2])
    shutil.copytree(checkpoint, copy)
    run(checkpoint, [folder(str(out))], [3], [4], [5])
    restored(checkpoint, copy)
    with pytest.raises(ms.JobError, match="has other results of query q") as refused:
        run(checkpoint, [folder(str(out))], [4], [5])
    first, last = (word for word in str(refused.value).split() if word.endswith(".parquet"))
    for file in sorted(out.iterdir()):
        if first <= file.name <= last:
            file.unlink()
    run(checkpoint, [folder(str(out))], [6])
    assert held(out) == Counter(ms.read_results(str(checkpoint), "q")["k"].to_pylist()) == Counter([1, 2, 4])


def test_a_clone_and_its_original_that_share_a_folder_both_write_all_they_release(tmp_path, caplog):
    checkpoint, clone, out = tmp_path / "c", tmp_path / "clone", tmp_path / "out"
    run(checkpoint, [folder(str(out))], [1], [2])
    shutil.copytree(checkpoint, clone)
    run(checkpoint, [folder(str(out))], [3], [4])
    run(clone, [folder(str(out))], [3, 4], [5])
    run(checkpoint, [folder(str(out))], [5], [6])
    assert held(out) == Counter([1, 2, 2, 3, 3, 4, 4, 5])
    assert f"is a copy of the one at {checkpoint}, which is still there" in caplog.text


def test_a_checkpoint_that_is_moved_keeps_its_identity_and_one_that_only_looks_like_a_copy_its_history(tmp_path):
    checkpoint, moved, out = tmp_path / "c", tmp_path / "moved", tmp_path / "out"
    run(checkpoint, [folder(str(out))], [1], [2])
    first = Ledger.open(files_at(str(checkpoint))).origin
    os.rename(checkpoint, moved)
    run(moved, [folder(str(out))], [3])
    second = Ledger.open(files_at(str(moved))).origin
    assert second.identity == first.identity and second.place == str(moved)
    os.chmod(moved / "deliveries" / "mark", 0o640)
    run(moved, [folder(str(out))], [4])
    third = Ledger.open(files_at(str(moved))).origin
    assert third.identity != first.identity and third.history == first.history
    assert held(out) == Counter([1, 2, 3])


def test_a_driver_that_goes_on_after_it_was_taken_for_dead_does_not_undo_the_record_of_the_next(tmp_path):
    files = files_at(str(tmp_path))
    stopped = Ledger.open(files, 1)
    stopped.put(Delivered("q", "function", "x", 0, 5))
    stopped.save()
    following = Ledger.open(files, 2)
    following.put(Delivered("q", "function", "x", 0, 9))
    following.save()
    stopped.put(Delivered("q", "function", "x", 0, 7))
    stopped.save()
    known = Ledger.stored(files)
    assert known is not None and known.sinks["q", "function"].until == 9
    assert Ledger.open(files, 3).sinks == known.sinks


def held(out: Path, identity: str | None = None) -> Counter[int]:
    """The results in a folder: all, or those of one query."""
    found: Counter[int] = Counter()
    for file in out.glob("*.parquet"):
        table = pq.read_table(file)
        if identity is None or json.loads(table.schema.metadata[b"midstream"])["query_identity"] == identity:
            found.update(table["k"].to_pylist())
    return found


STEPS = st.sampled_from(["push", "fail before", "fail after", "absent", "present", "replace"])
AFTER_A_COPY = st.lists(st.tuples(STEPS, st.integers(1, 3)), min_size=1, max_size=5)


@settings(max_examples=8)
@given(st.lists(AFTER_A_COPY, min_size=2, max_size=4))
def test_a_folder_has_what_its_query_has_released_each_once_whatever_happens(tmp_path_factory, schedules):
    job = Random(tmp_path_factory.mktemp("random"))
    for steps in schedules:
        job.do("copy", 0)
        for step, number in [("push", 1), *steps, ("push", 2)]:
            job.do(step, number)
        if len(steps) % 2:
            job.do("restore", 0)
    job.do("restore", 0)
    job.end()


class Random:
    """A job whose rows can be read again from any place, as those of files can."""

    def __init__(self, place: Path) -> None:
        self.checkpoint, self.copy, self.out = place / "c", place / "copy", place / "out"
        self.read, self.most, self.copied = 0, 0, (0, CQL)
        self.cql, self.number, self.absent = CQL, 0, False
        self.sink = Flaky(str(self.out))
        self.session = opened(self.checkpoint, self.sink)

    def do(self, step: str, number: int) -> None:
        match step.split():
            case ["push"]:
                self.push(number)
            case ["fail", when]:
                self.sink.fails = when
                self.push(number)
            case ["absent" | "present" as how]:
                self.absent = how == "absent"
                self.restart()
            case ["copy"]:
                self.session.stop()
                shutil.rmtree(self.copy, ignore_errors=True)
                shutil.copytree(self.checkpoint, self.copy)
                self.copied = self.read, self.cql
                self.restart()
            case ["restore"] if self.copy.exists():
                self.session.stop()
                restored(self.checkpoint, self.copy)
                self.read, self.cql = self.copied
                self.restart()
            case ["replace"]:
                self.number += 1
                self.cql = f"SELECT k FROM A [NOW] WHERE k > -{self.number}"
                self.restart()

    def push(self, number: int) -> None:
        coming = rows(*range(self.read + 1, self.read + 1 + number))
        try:
            self.session.push("A", coming)
        except OSError as error:
            if not hasattr(error, "__notes__"):  # sinks come before the rows
                self.push(number)
                return
        self.read += number
        self.most = max(self.most, self.read)

    def restart(self) -> None:
        self.session.stop()
        self.sink = Flaky(str(self.out))
        self.session = opened(self.checkpoint, *([] if self.absent else [self.sink]), cql=self.cql)

    def end(self) -> None:
        self.absent = False
        self.restart()
        self.push(self.most - self.read + 1)  # what was read before a restore comes again
        self.session.finish()
        self.session.stop()
        manifest = CheckpointStore(str(self.checkpoint)).latest()
        assert manifest is not None
        for name, account in manifest.accounts.items():
            found, released = (
                held(self.out, account.identity),
                ms.read_results(str(self.checkpoint), name)["k"].to_pylist(),
            )
            if name == "q":
                assert found == Counter(released)
            else:  # before a restore it may have run for longer, and what it owed when it was replaced never came
                assert all(times == 1 for times in found.values())
