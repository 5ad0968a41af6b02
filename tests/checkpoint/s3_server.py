"""An S3 server in this process, with a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyarrow.fs import FileSystem


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The bucket's address, while the environment leads there."""
    pytest.importorskip("obstore")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    named = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in named.items():
                patched.setenv(name, value)
            FileSystem.from_uri("s3://jobs?allow_bucket_creation=true")[0].create_dir("jobs")
            yield "s3a://jobs"
    finally:
        server.stop()
