"""The lease: one live driver, found out by number, time and process."""

from __future__ import annotations

import contextlib
import json
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
from midstream.checkpoint import process as processes
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.lease import EXPIRES_AFTER, FOLDER, Lease, seen
from midstream.checkpoint.process import Machine, this_machine
from midstream.errors import JobError

HERE = this_machine()
ELSEWHERE = Machine("elsewhere", "another boot", "pid:[2]", "time:[2]")


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
    shown = []

    def looking(change):
        def wrapped(*args, **kwargs):
            shown.append(seen(files))
            change(*args, **kwargs)
            shown.append(seen(files))

        return wrapped

    monkeypatch.setattr(files, "delete", looking(files.delete))
    monkeypatch.setattr(files, "write_atomic", looking(files.write_atomic))
    for _ in range(3):
        clock.now += 1
        held.beat()
    assert shown and all(s is not None and s.holder.owner == held.holder.owner for s in shown)


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
    left = seen(local)
    assert left is not None and left.number == 1 and not left.holder.released
    assert Lease.take(local).number == 2


def test_a_process_number_used_again_is_not_taken_for_the_holder(local, clock):
    held = Lease.take(local, clock=clock)
    if not held.holder.started:
        pytest.skip("this system does not tell when a process started")
    held._say(replace(held.holder, started="another boot/1"))
    Lease.take(local, clock=clock)


class Elsewhere:
    """A second machine: its own clock, and what it sees while it sleeps."""

    def __init__(self, monkeypatch, machine=ELSEWHERE):
        self.monkeypatch = monkeypatch
        self.machine = machine
        self.now = 5.0
        self.sleeps = 0
        self.meanwhile = lambda: None

    def take(self, files, **more):
        with self.monkeypatch.context() as patched:
            patched.setattr(processes, "this_machine", lambda: self.machine)
            return Lease.take(files, clock=lambda: self.now, sleep=self.sleep, **more)

    def sleep(self, seconds):
        self.now += seconds
        self.sleeps += 1
        self.meanwhile()


@pytest.mark.parametrize(
    "machine",
    [
        ELSEWHERE,
        replace(HERE, boot="another", clocks=""),
        replace(HERE, processes="pid:[1]", clocks=""),
        replace(HERE, machine="another", boot="another"),
        Machine(),
    ],
    ids=["elsewhere", "another boot", "another namespace", "a clone", "unknown"],
)
def test_a_live_holder_elsewhere_keeps_the_lease_whatever_its_process_number_is_here(
    machine, files, clock, monkeypatch
):
    held = Lease.take(files, clock=clock)
    held._say(replace(held.holder, pid=2**22 + 1))
    other = Elsewhere(monkeypatch, machine)
    other.meanwhile = held.beat
    with pytest.raises(JobError, match="another driver runs"):
        other.take(files)
    assert other.sleeps == 1
    held.check()


@pytest.mark.parametrize("ahead", [-(10**9), -61.0, 61.0, 10**9])
def test_clocks_of_two_machines_are_never_compared(files, clock, monkeypatch, ahead):
    held = Lease.take(files, clock=lambda: clock.now + ahead)
    monkeypatch.setattr("time.time", lambda: 10**9 + ahead)
    other = Elsewhere(monkeypatch)

    def beat_before_the_time_is_over():
        if other.sleeps == EXPIRES_AFTER - 1:
            held.beat()

    other.meanwhile = beat_before_the_time_is_over
    with pytest.raises(JobError, match="another driver"):
        other.take(files)
    assert other.sleeps == EXPIRES_AFTER - 1
    held.check()


def test_a_holder_elsewhere_that_is_silent_for_the_whole_time_loses_the_lease(files, clock, monkeypatch):
    held = Lease.take(files, clock=clock)
    other = Elsewhere(monkeypatch)
    taken = other.take(files)
    assert other.sleeps > EXPIRES_AFTER and taken.number == 2
    with pytest.raises(JobError, match="lost"):
        held.beat()


def test_a_lease_given_back_while_it_is_watched_is_taken(files, clock, monkeypatch):
    held = Lease.take(files, clock=clock)
    other = Elsewhere(monkeypatch)
    other.meanwhile = held.release
    assert other.take(files).number == 2
    assert other.sleeps == 1


def test_a_process_in_another_namespace_is_not_judged_by_its_number(local):
    """The number of a live holder may be nobody's in a container, and the host name be the same."""
    holder = Lease.take(local)
    if not HERE.has_clock_of(HERE):
        pytest.skip("this system does not tell namespaces apart")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(processes, "this_machine", lambda: replace(HERE, processes="pid:[1]"))
        patched.setattr(os, "kill", lambda *_: (_ for _ in ()).throw(ProcessLookupError()))
        with pytest.raises(JobError, match="another driver"):
            Lease.take(local)
    holder.check()


def test_a_lease_file_of_an_older_version_is_watched(local, clock):
    old = {"owner": "x", "host": socket.gethostname(), "pid": os.getpid(), "started": "", "renewed": 0.0}
    local.write_atomic(f"{FOLDER}/000000000003-000000000001.json", json.dumps({**old, "released": False}).encode())
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    assert Lease.take(local, clock=lambda: now[0], sleep=sleep).number == 4
    assert now[0] > EXPIRES_AFTER


def test_the_number_goes_on_above_the_manifests_where_lease_files_were_removed(local):
    assert Lease.take(local, above=7).number == 8


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
    real = leases.seen
    other: list[Lease] = []

    def slow(files):
        answer = real(files)
        monkeypatch.setattr(leases, "seen", real)
        other.append(Lease.take(files, clock=clock))
        other[0].beat()
        return answer

    monkeypatch.setattr(leases, "seen", slow)
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
