"""Strikes: what is done to a running job from outside. Each says whether there was something to hit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from midstream.checkpoint.store import CheckpointStore
from midstream.lab.chaos.job import LOCAL, checkpoint_in, declared, sink_in, source_in
from midstream.lab.chaos.queries import DELIVERED

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


Strike = Callable[[subprocess.Popen[str]], bool]
Named = tuple[str, Strike]


class Strikes:
    """What can be done to a job whose folder is known; `disk` is a small file system of its own, if there is one."""

    def __init__(self, folder: Path, random: Random, has_disk: bool) -> None:
        self.folder = folder
        self.checkpoint = checkpoint_in(folder)
        self.random = random
        self.has_disk = has_disk
        self.flipped: tuple[Path, int] | None = None
        self.away: Path | None = None
        """The folder of a sink that cannot be written."""
        self.hidden: str | None = None
        """The stream whose folder is not where the job expects it."""
        self._dealt: list[Named] = []

    def drawn(self, master: str) -> Named:
        """A strike by its name: all that there are in turn, in any order, but first one that a copy can follow."""
        if not self._dealt:
            self._dealt = self._known(master)
            self.random.shuffle(self._dealt)
            self._dealt.append(("everything", self.kill_everything))
        return self._dealt.pop()

    def _known(self, master: str) -> list[Named]:
        known: list[Named] = [
            ("everything", self.kill_everything),
            ("stop and go on", self.stop_for_a_while),
            ("byte flip", self.flip_a_byte),
            ("sink fails", self.take_sink_away),
            ("restored copy", self.restore_copy),
            ("source moved", self.move_source),
            ("source away", self.take_source_away),
        ]
        if self.has_disk:
            known.append(("disk full", self.fill_the_disk))
        if master != LOCAL:
            known += [("jvm", self.kill_jvm), *[("worker", self.kill_worker)] * 6]
        if "cluster" in master:
            known += [("executor", self.kill_executor)] * 4
        return known

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

    def take_sink_away(self, job: subprocess.Popen[str]) -> bool:
        """The folder of a sink is no folder, until `bring_sink_back`."""
        folder = sink_in(self.folder, self.random.choice(DELIVERED))
        if not folder.is_dir():
            return False
        folder.rename(_aside(folder))
        folder.touch()
        self.away = folder
        return True

    def bring_sink_back(self) -> None:
        """The folder is as it was."""
        if self.away is not None:
            self.away.unlink()
            _aside(self.away).rename(self.away)
        self.away = None

    def move_source(self, job: subprocess.Popen[str]) -> bool:
        """The folder of a stream is elsewhere when the job comes back, whose file then names the new place."""
        self.kill_everything(job)
        source = source_in(self.folder, self.random.choice("ABC"))
        source.rename(source.with_name(str(int(source.name) + 1)))
        return True

    def take_source_away(self, job: subprocess.Popen[str]) -> bool:
        """The folder of a stream cannot be found, until `bring_source_back`."""
        self.hidden = self.random.choice("ABC")
        source = source_in(self.folder, self.hidden)
        source.rename(_aside(source))
        return True

    def bring_source_back(self) -> None:
        """The folder is where it was, with what has come since."""
        if self.hidden is not None:
            source = source_in(self.folder, self.hidden)
            source.rename(declared(source))
        self.hidden = None

    def copy(self) -> None:
        """Copies the checkpoint of a job that is down."""
        shutil.rmtree(self._copy, ignore_errors=True)
        if self.checkpoint.is_dir():
            shutil.copytree(self.checkpoint, self._copy)

    def restore_copy(self, job: subprocess.Popen[str]) -> bool:
        """The newest copy takes the place of the checkpoint; what the job did since is forgotten by all but sinks."""
        if not self._copy.is_dir():
            return False
        self.kill_everything(job)
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self._copy, self.checkpoint)
        return True

    @property
    def _copy(self) -> Path:
        return self.folder / "copy"

    @staticmethod
    def _flip(path: Path, place: int) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 0x55
        written = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}")


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
