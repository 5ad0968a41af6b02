"""What steps leave where the job's own process runs them: reports, and files that may still be being written."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from midstream.checkpoint.parallel_writes import SideBySide
from midstream.job.task.reports import Report


@dataclass(slots=True)
class Collected:
    """The reports of steps, and the files that each of them has begun to write."""

    reports: list[Report] = field(default_factory=list)
    _writing: list[tuple[Report, SideBySide]] = field(default_factory=list)
    _waiting: Lock = field(default_factory=Lock)

    def begin(self, report: Report, files: SideBySide) -> None:
        """A step begins to write."""
        self._writing.append((report, files))

    def wait(self) -> None:
        """Waits until all files are there; reports then tell what writing them took.

        Several threads may wait. Whoever fails first raises the failure; no file is being written any more then.
        """
        with self._waiting:
            failures: list[BaseException] = []
            while self._writing:
                report, files = self._writing.pop()
                try:
                    files.wait()
                except Exception as failure:
                    failures.append(failure)
                report.processor += files.processor
            if failures:
                raise failures[0]
