"""`midstream doctor`: whether this machine has what jobs need, and what to do about what it lacks."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer

from midstream.algebra.time import size
from midstream.cluster.spark_version import (
    EXTRA,
    OLDEST_JAVA,
    installed_spark,
    is_there,
    is_too_old,
    java_program,
    java_version,
)
from midstream.interface.cli import options
from midstream.interface.cli.endings import USER_ERROR, ends_clearly
from midstream.interface.cli.output import show_json, show_text

ENOUGH_DISK = 5 * 2**30
ENOUGH_MEMORY = 2 * 2**30
EARLIEST_CLOCK = 1_704_067_200
"""2024-01-01: a clock before that was never set."""
CLOCK_TOLERANCE = 5.0

State = Literal["good", "without Spark", "attention", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. "without Spark" means that jobs run with --on local only."""

    name: str
    state: State
    found: str
    advice: str | None = None


@ends_clearly
def doctor(
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="[CHECKPOINT]", help="A checkpoint, or where one will be.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check what jobs need: Python, Java, Spark, Arrow, disk, rights, clock, cores and memory.

    The exit code is 2 if something is wrong for every job. Without Java, jobs still run with --on local.

    \b
    Example:
      midstream doctor
      midstream doctor orders.checkpoint --json
    """
    findings = list(examine(checkpoint))
    wrong = any(finding.state == "wrong" for finding in findings)
    if json:
        spark = not any(finding.state in ("wrong", "without Spark") for finding in findings)
        show_json({"local": not wrong, "spark": spark, "findings": [asdict(finding) for finding in findings]})
    else:
        show_text("\n".join(_lines(findings)))
    if wrong:
        raise typer.Exit(USER_ERROR)


def examine(checkpoint: Path | None = None, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """What this machine has and lacks."""
    yield Finding("Python", "good", platform.python_version())
    yield _java(environment)
    yield _spark()
    yield _package("pyarrow", "Arrow")
    yield _folder("temporary folder", Path(tempfile.gettempdir()), "set TMPDIR to another folder")
    if checkpoint is not None:
        yield _folder("checkpoint", checkpoint, "choose another place for the checkpoint")
        yield _clock(checkpoint)
    else:
        yield _clock(Path(tempfile.gettempdir()))
    yield _cores()
    yield _memory()


def _java(environment: Mapping[str, str]) -> Finding:
    java = java_program(environment)
    install = f"install Java {OLDEST_JAVA} or later (for instance openjdk-17-jre-headless), or set JAVA_HOME"
    if java is None:
        home = environment.get("JAVA_HOME")
        found = f"JAVA_HOME is {home}, which has no bin/java" if home else "none on the PATH, and JAVA_HOME is not set"
        return Finding("Java", "without Spark", found, f"{install}; without it, use --on local")
    number = java_version(java)
    if number is None:
        return Finding("Java", "attention", f"{java} does not say its version", f"{java} -version says why")
    state: State = "good" if number >= OLDEST_JAVA else "without Spark"
    return Finding("Java", state, f"{number} ({java})", None if state == "good" else install)


def _spark() -> Finding:
    if not is_there():
        return Finding("Spark", "without Spark", "not installed", EXTRA)
    found = installed_spark()
    if found is not None and is_too_old(found):
        return Finding("Spark", "without Spark", found, EXTRA)
    return Finding("Spark", "good", found or "of this machine, without a package that says its version")


def _package(package: str, name: str) -> Finding:
    try:
        return Finding(name, "good", version(package))
    except PackageNotFoundError:
        return Finding(name, "wrong", "not installed", f"pip install {package}")


def _folder(name: str, path: Path, advice: str) -> Finding:
    """Whether files can be made, and how much more fits. Nothing but one unnamed file is ever made."""
    if "://" in str(path) or ":/" in str(path):
        return Finding(name, "attention", f"{path} is remote storage, which is not looked at here")
    folder = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not folder.is_dir():
        return Finding(name, "wrong", f"{folder} is a file", advice)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"midstream")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Finding(name, "wrong", f"{folder} cannot be written: {error.strerror}", advice)
    free = shutil.disk_usage(folder).free
    found = f"{path}, {size(free)} free"
    if free < ENOUGH_DISK:
        return Finding(name, "attention", found, f"free some space: below {size(ENOUGH_DISK)} a job may run full")
    return Finding(name, "good", found)


def _clock(folder: Path) -> Finding:
    """Whether the clock was set, and agrees with that of the storage."""
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "set the clock, or start a time service such as chrony"
    if now < EARLIEST_CLOCK:
        return Finding("clock", "wrong", shown, advice)
    place = next((place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir()), None)
    try:
        with tempfile.NamedTemporaryFile(dir=place) as file:
            apart = os.stat(file.name).st_mtime - now
    except OSError:
        return Finding("clock", "good", shown)
    if abs(apart) > CLOCK_TOLERANCE:
        return Finding("clock", "attention", f"{shown}; the storage's clock is {apart:+.0f} s apart", advice)
    return Finding("clock", "good", shown)


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if usable < 2:
        return Finding("cores", "attention", "1", "Spark and its Python workers share one core: expect slow batches")
    return Finding("cores", "good", str(usable))


def _memory() -> Finding:
    free = available_memory()
    if free is None:
        return Finding("memory", "good", f"unknown on {sys.platform}")
    if free < ENOUGH_MEMORY:
        advice = "end other programs, or lower memory_per_slot and slots in the job file"
        return Finding("memory", "attention", f"{size(free)} available", advice)
    return Finding("memory", "good", f"{size(free)} available")


def available_memory(source: Path = Path("/proc/meminfo")) -> int | None:
    """The bytes that programs can still take; None where the system does not say."""
    try:
        lines = source.read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None


def _lines(findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = "ok" if finding.state == "good" else finding.state
        yield f"{finding.name:<{width}}  {mark}: {finding.found}"
        if finding.advice:
            yield f"{'':<{width}}    {finding.advice}"
    states = {finding.state for finding in findings}
    if "wrong" in states:
        yield "Jobs cannot run here until what is wrong is repaired."
    elif "without Spark" in states:
        yield "Jobs run in this process (midstream run JOB.toml --on local), but not on Spark."
    else:
        yield "Jobs run here, on Spark and in this process."
