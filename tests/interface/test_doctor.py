"""`midstream doctor`: every lack is named with what to do about it, and none but real ones end with an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midstream.cluster.spark_version import java_program, java_version
from midstream.interface.cli import app
from midstream.interface.cli.doctor import available_memory, examine


def java(folder: Path, says: str) -> dict[str, str]:
    """An environment whose Java says a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


def finding(name: str, **arguments):
    return next(found for found in examine(**arguments) if found.name == name)


def test_a_machine_without_java_runs_jobs_locally(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    shown = CliRunner().invoke(app, ["doctor", "--json"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert told["local"] and not told["spark"]
    (found,) = [one for one in told["findings"] if one["name"] == "Java"]
    assert found["state"] == "without Spark" and "install Java 17" in found["advice"]
    assert "--on local" in CliRunner().invoke(app, ["doctor"]).stdout


@pytest.mark.parametrize(
    ("says", "number", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17, "good"),
        ('java version "1.8.0_292"', 8, "without Spark"),
        ('openjdk version "21" 2023-09-19', 21, "good"),
        ("cannot allocate memory", None, "attention"),
    ],
)
def test_the_version_of_java_is_read(says, number, state, tmp_path: Path):
    environment = java(tmp_path / "java", says)
    assert java_version(str(java_program(environment))) == number
    assert finding("Java", environment=environment).state == state


def test_a_java_home_without_java_is_named(tmp_path: Path):
    found = finding("Java", environment={"JAVA_HOME": str(tmp_path)})
    assert found.state == "without Spark" and str(tmp_path) in found.found


def test_a_checkpoint_that_does_not_exist_yet_is_fine_and_is_not_made(tmp_path: Path):
    found = finding("checkpoint", checkpoint=tmp_path / "new" / "checkpoint")
    assert found.state in ("good", "attention") and "free" in found.found
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_below_a_file_is_wrong(tmp_path: Path):
    (tmp_path / "file").write_text("")
    shown = CliRunner().invoke(app, ["doctor", str(tmp_path / "file" / "checkpoint")])
    assert shown.exit_code == 2 and "is a file" in shown.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="rights do not bind the superuser")
def test_a_folder_without_rights_is_wrong(tmp_path: Path):
    tmp_path.chmod(0o500)
    assert finding("checkpoint", checkpoint=tmp_path / "c").state == "wrong"


def test_little_disk_and_memory_ask_for_attention(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("midstream.interface.cli.doctor.ENOUGH_DISK", 2**80)
    monkeypatch.setattr("midstream.interface.cli.doctor.ENOUGH_MEMORY", 2**80)
    monkeypatch.setattr("midstream.interface.cli.doctor.available_memory", lambda: 2**20)
    found = {one.name: one for one in examine(tmp_path)}
    assert found["checkpoint"].state == "attention" and "free some space" in str(found["checkpoint"].advice)
    assert found["memory"].state == "attention" and "memory_per_slot" in str(found["memory"].advice)


def test_memory_is_what_the_system_says(tmp_path: Path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 4 kB\n")
    assert available_memory(tmp_path / "meminfo") == 4096
    assert available_memory(tmp_path / "missing") is None


def test_a_spark_that_is_too_old_is_refused_by_name(tmp_path: Path):
    """As a process: its package says another version than the one that is installed."""
    (tmp_path / "pyspark-3.5.9.dist-info").mkdir()
    (tmp_path / "pyspark-3.5.9.dist-info" / "METADATA").write_text("Name: pyspark\nVersion: 3.5.9\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "job.toml").write_text(
        '[job]\ncheckpoint = "cp"\non = "spark"\n'
        '[streams.A]\nformat = "csv"\npath = "in"\nschema = "ts BIGINT, k BIGINT"\n'
        '[queries.q]\ncql = "SELECT k FROM A [NOW]"\n'
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def midstream(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "midstream", *arguments]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)

    run = midstream("run", str(tmp_path / "job.toml"), "--available")
    assert run.returncode == 2 and "jobs need Spark 4.0 or later, and this is Spark 3.5.9" in run.stderr, run.stderr
    assert "--on local" in run.stderr
    told = json.loads(midstream("doctor", "--json").stdout)
    (found,) = [one for one in told["findings"] if one["name"] == "Spark"]
    assert found["state"] == "without Spark" and "midstream[spark]" in found["advice"]
