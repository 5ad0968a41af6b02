"""A running job takes every command from another process and goes on; it ends when it is told to, and says so."""

from __future__ import annotations

import signal

from tests.interface.running_jobs import described, obeys_every_command, running


def test_a_running_job_takes_every_command_and_goes_on(tmp_path):
    obeys_every_command(tmp_path, "local")


def test_a_signal_ends_a_job_in_order_and_it_says_so(tmp_path):
    with running(described(tmp_path)) as job:
        job.take_in(0)
        assert job.end(signal.SIGTERM) == 0
        assert "the job has stopped, as it was asked to" in job.said
