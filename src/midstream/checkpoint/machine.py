"""Which machine this is, as far as processes are concerned: who may judge whether a process number is in use.

A host name is chosen by people, and images are cloned with the machine's id in them; the id of a boot is not shared by
two running kernels. Process numbers mean the same only within one namespace of one boot.
"""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's id, that of its boot, and its namespaces of processes and of clocks; empty where unknown."""

    machine: str = ""
    boot: str = ""
    processes: str = ""
    clocks: str = ""

    def has_processes_of(self, other: Machine) -> bool:
        """Whether a process number of the other one means the same process here."""
        known = bool(self.machine and self.boot and self.processes)
        return known and (self.machine, self.boot, self.processes) == (other.machine, other.boot, other.processes)

    def has_clock_of(self, other: Machine) -> bool:
        """Whether both read one monotonic clock, which counts since the boot."""
        return bool(self.boot and self.clocks) and (self.boot, self.clocks) == (other.boot, other.clocks)


def this_machine() -> Machine:
    """The machine that this process runs on."""
    if sys.platform != "linux":
        # There is one space of processes; without an id of the boot a number may have been used again since.
        return Machine(f"{uuid.getnode():012x}", "unknown", "all")
    return Machine(
        _content("/etc/machine-id") or _content("/var/lib/dbus/machine-id") or f"{uuid.getnode():012x}",
        _content("/proc/sys/kernel/random/boot_id"),
        _target("/proc/self/ns/pid"),
        # Kernels before 5.6 have one clock for all.
        _target("/proc/self/ns/time") or "all",
    )


def start_of(pid: str) -> str:
    """When a process started, in the machine's own count, so that a number used again is not taken for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return f"{_content('/proc/sys/kernel/random/boot_id')}/{stat.rpartition(')')[2].split()[19]}"


def _content(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
