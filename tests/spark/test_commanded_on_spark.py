"""A job on Spark takes every command from another process and goes on."""

from __future__ import annotations

import pytest
from tests.interface.running_jobs import obeys_every_command


@pytest.mark.spark
@pytest.mark.slow
def test_a_running_job_on_spark_takes_every_command_and_goes_on(tmp_path):
    obeys_every_command(tmp_path, "spark")
