"""The lease: one live driver, found out by number, time and process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from tests.checkpoint.storages import hdfs, objects

from midstream.checkpoint import lease as leases
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.lease import EXPIRES_AFTER, FOLDER, Lease, newest
from midstream.errors import JobError


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["local", "objects", "renaming"])
def files(request, tmp_path):
    if request.param == "local":
        return files_at(str(tmp_path / "checkpoint"))
    return objects() if request.param == "objects" else hdfs(tmp_path / "job")


@pytest.fixture
def local(tmp_path):
    return files_at(str(tmp_path / "checkpoint"))


def test_a_second_live_driver_is_refused_and_told_of_the_first(files, clock):
    Lease.take(files, clock=clock)
    clock.now += 5
    with pytest.raises(JobError, match=f"process {os.getpid()} on ") as error:
        Lease.take(files, clock=clock)
    assert "5 seconds ago" in str(error.value)


def test_a_lease_that_was_given_back_is_free(files, clock):
    with Lease.take(files, clock=clock):
        pass
    Lease.take(files, clock=clock).beat()


def test_a_silent_holder_loses_the_lease(files, clock):
    first = Lease.take(files, clock=clock)
    clock.now += EXPIRES_AFTER + 1
    second = Lease.take(files, clock=clock)
    second.check()
    for late in (first.check, first.beat):
        with pytest.raises(JobError, match="lost"):
            late()
    first.release()
    second.beat()


def test_a_holder_that_beats_keeps_the_lease(files, clock):
    first = Lease.take(files, clock=clock)
    for _ in range(5):
        clock.now += EXPIRES_AFTER - 1
        first.beat()
        with pytest.raises(JobError, match="another driver"):
            Lease.take(files, clock=clock)
    assert len(files.list(FOLDER)) == 1


def test_the_lease_is_never_absent_while_it_is_renewed(files, clock, monkeypatch):
    """Every state of the folder that another driver could see names the holder."""
    held = Lease.take(files, clock=clock)
    seen = []

    def looking(change):
        def wrapped(*args, **kwargs):
            seen.append(newest(files)[1])
            change(*args, **kwargs)
            seen.append(newest(files)[1])

        return wrapped

    monkeypatch.setattr(files, "delete", looking(files.delete))
    monkeypatch.setattr(files, "write_atomic", looking(files.write_atomic))
    for _ in range(3):
        clock.now += 1
        held.beat()
    assert seen and all(holder is not None and holder.owner == held.holder.owner for holder in seen)


def test_a_dead_process_of_this_machine_loses_the_lease_at_once(local):
    script = (
        "import os, signal, sys\n"
        "from midstream.checkpoint.addresses import files_at\n"
        "from midstream.checkpoint.lease import Lease\n"
        "Lease.take(files_at(sys.argv[1]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", script, local.uri], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    number, holder = newest(local)
    assert number == 1 and holder is not None and not holder.released
    assert Lease.take(local).number == 2


def test_a_process_number_used_again_is_not_taken_for_the_holder(local, clock):
    held = Lease.take(local, clock=clock)
    if not held.holder.started:
        pytest.skip("this system does not tell when a process started")
    held._say(replace(held.holder, started="another boot/1"))
    Lease.take(local, clock=clock)


def test_a_process_of_another_machine_is_left_its_time(local, clock, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    held = Lease.take(local, clock=clock)
    held._say(replace(held.holder, pid=2**22 + 1))
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    with pytest.raises(JobError, match="on elsewhere"):
        Lease.take(local, clock=clock)
    clock.now += EXPIRES_AFTER + 1
    Lease.take(local, clock=clock)


def test_of_many_that_ask_at_once_one_gets_the_lease(local):
    barrier = threading.Barrier(8)
    taken, refused = [], []

    def ask() -> None:
        barrier.wait()
        try:
            taken.append(Lease.take(local))
        except JobError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1 and len(refused) == 7
    taken[0].beat()


def test_of_many_that_take_over_at_once_one_gets_the_lease(local, clock):
    for _ in range(5):
        Lease.take(local, clock=clock)
        clock.now += EXPIRES_AFTER + 1
        barrier = threading.Barrier(4)
        taken: list[Lease] = []

        def ask(barrier=barrier, taken=taken) -> None:
            barrier.wait()
            with contextlib.suppress(JobError):
                taken.append(Lease.take(local, clock=clock))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        clock.now += EXPIRES_AFTER + 1


def test_a_slow_taker_whose_number_was_used_and_swept_is_refused(local, clock, monkeypatch):
    """Between looking and taking, another driver took the lease and renewed it."""
    real = leases.newest
    other: list[Lease] = []

    def slow(files):
        answer = real(files)
        monkeypatch.setattr(leases, "newest", real)
        other.append(Lease.take(files, clock=clock))
        other[0].beat()
        return answer

    monkeypatch.setattr(leases, "newest", slow)
    with pytest.raises(JobError, match="another driver"):
        Lease.take(local, clock=clock)
    other[0].check()


def test_a_damaged_lease_is_named(local):
    local.write_atomic(f"{FOLDER}/000000000001-000000000000.json", b"{")
    with pytest.raises(JobError, match="lease file .* is damaged"):
        Lease.take(local)


def test_what_a_dead_driver_left_unfinished_is_swept(local, clock):
    local.write_atomic(f"{FOLDER}/.000000000001-000000000000.json.ab.tmp", b"x")
    held = Lease.take(local, clock=clock)
    held.beat()
    assert local.list(FOLDER) == [f"{FOLDER}/000000000001-000000000001.json"]
