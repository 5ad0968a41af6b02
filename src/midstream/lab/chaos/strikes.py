"""Strikes: what is done to a running job from outside. Each says whether there was something to hit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from midstream.checkpoint.store import CheckpointStore

JVM, EXECUTOR, WORKER = "java", "CoarseGrainedExecutorBackend", "pyspark.daemon"


def descendants(process: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in brackets may itself hold anything; what follows it is plain.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, waiting = [], [process]
    while waiting:
        above = waiting.pop()
        below = [child for child, parent in parents.items() if parent == above]
        found += below
        waiting += below
    return found


def running(job: int, what: str, but: str | None = None) -> list[int]:
    """The processes of a job in whose command something occurs, and something else does not."""
    found = []
    for process in descendants(job):
        with suppress(OSError):
            command = Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
            if what in command and (but is None or but not in command):
                found.append(process)
    return found


class Strikes:
    """What can be done to a job whose folder is known; `disk` is a small file system of its own, if there is one."""

    def __init__(self, folder: Path, random: Random, has_disk: bool) -> None:
        self.folder = folder
        self.checkpoint = folder / "disk" / "checkpoint"
        self.random = random
        self.has_disk = has_disk
        self.flipped: tuple[Path, int] | None = None

    def drawn(self, master: str) -> tuple[str, Callable[[subprocess.Popen[str]], bool]]:
        """A strike by its name."""
        known: list[tuple[str, Callable[[subprocess.Popen[str]], bool]]] = [
            ("everything", self.kill_everything),
            ("jvm", self.kill_jvm),
            *[("worker", self.kill_worker)] * 6,
            *[("stop and go on", self.stop_for_a_while)] * 3,
            ("byte flip", self.flip_a_byte),
        ]
        if self.has_disk:
            known.append(("disk full", self.fill_the_disk))
        if "cluster" in master:
            known += [("executor", self.kill_executor)] * 4
        return self.random.choice(known)

    def kill_everything(self, job: subprocess.Popen[str]) -> bool:
        """The job and all that it has started."""
        for process in [job.pid, *descendants(job.pid)]:
            _signal(process, signal.SIGKILL)
        job.wait()
        return True

    def kill_jvm(self, job: subprocess.Popen[str]) -> bool:
        """Spark's own process."""
        return self._kill_one(running(job.pid, JVM, EXECUTOR))

    def kill_executor(self, job: subprocess.Popen[str]) -> bool:
        """An executor of a cluster."""
        return self._kill_one(running(job.pid, EXECUTOR))

    def kill_worker(self, job: subprocess.Popen[str]) -> bool:
        """A Python process that runs tasks; not the one that starts the others, which has children."""
        return self._kill_one([worker for worker in running(job.pid, WORKER) if not descendants(worker)])

    def _kill_one(self, processes: list[int]) -> bool:
        return bool(processes) and _signal(self.random.choice(processes), signal.SIGKILL)

    def stop_for_a_while(self, job: subprocess.Popen[str]) -> bool:
        """The driver, Spark or a worker stands still, and goes on."""
        process = self.random.choice([job.pid, *running(job.pid, JVM), *running(job.pid, WORKER)])
        if not _signal(process, signal.SIGSTOP):
            return False
        time.sleep(self.random.uniform(0.2, 3.0))
        _signal(process, signal.SIGCONT)
        return True

    def fill_the_disk(self, job: subprocess.Popen[str]) -> bool:
        """There is no room for a while."""
        ballast = self.folder / "disk" / "ballast"
        with suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while True:
                file.write(bytes(2**16))
        time.sleep(self.random.uniform(0.5, 4.0))
        ballast.unlink(missing_ok=True)
        return True

    def flip_a_byte(self, job: subprocess.Popen[str]) -> bool:
        """A byte of a file of the checkpoint is another one, while the job is down and as long as it runs again."""
        self.kill_everything(job)
        store = CheckpointStore(str(self.checkpoint))
        manifest = store.latest()
        if manifest is None:
            return False
        paths = [self.checkpoint / path for path in sorted(manifest.files())]
        paths = [path for path in paths if path.exists() and path.stat().st_size]
        if not paths:
            return False
        path = self.random.choice(paths)
        place = self.random.randrange(path.stat().st_size)
        self._flip(path, place)
        self.flipped = path, place
        return True

    def mend(self) -> None:
        """Puts the byte back, if the file is still there."""
        if self.flipped is not None and self.flipped[0].exists():
            self._flip(*self.flipped)
        self.flipped = None

    @staticmethod
    def _flip(path: Path, place: int) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 0x55
        written = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))


def _signal(process: int, number: int) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def small_disk(folder: Path, size: str = "96m") -> Iterator[bool]:
    """A file system of its own for the checkpoint, where this user may mount one; whether there is one."""
    folder.mkdir(parents=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "midstream-chaos", str(folder)], capture_output=True
    )
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=False)
