"""A job whose checkpoint is on an object store: stopped, taken up again, and its results as anywhere else."""

from __future__ import annotations

import pytest
from tests.checkpoint.s3_server import s3_bucket
from tests.job.chain import Chain
from tests.job.test_power_loss import QUERY, tables

import midstream as ms
from midstream.api import ask
from midstream.checkpoint import fetched
from midstream.checkpoint.check import check
from midstream.checkpoint.lease import Heartbeat
from midstream.errors import JobError


def test_a_job_on_s3_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_DIR, str(tmp_path))
    inputs = tables("AB")
    question = ask(QUERY, inputs)

    def opened(bucket: str) -> Chain:
        chain = Chain(question.plan, question.catalog, f"{bucket}/resumed", slots=2)
        chain.driver.commits.lease = Heartbeat(chain.driver.files)
        return chain

    with s3_bucket() as bucket:
        first = opened(bucket)
        for part in first.cut(question.tables, 8)[:3]:
            first.batch(part)
        with pytest.raises(JobError, match="another driver"):
            opened(bucket)
        assert first.driver.commits.lease is not None
        first.driver.commits.lease.stop()
        second = opened(bucket)
        got = second.run(question.tables, 8)
        assert check(second.driver.files, second.manifest) == []
        assert second.manifest.epoch == 2
        second.driver.commits.stop()
    assert ms.snapshot_equal(got, ms.run(QUERY, inputs))
