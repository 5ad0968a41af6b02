"""An S3 server in this process, with a bucket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyarrow.fs import FileSystem


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The bucket's address, while the environment leads there."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    server = _serving_one_at_a_time()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    host, port = server.server_address[:2]
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
            filesystem = FileSystem.from_uri("s3://jobs?allow_bucket_creation=true")[0]
            filesystem.create_dir("jobs")
            yield "s3a://jobs"
            filesystem.delete_dir_contents("jobs")  # all servers of this process have one memory
    finally:
        server.shutdown()
        thread.join()


def _serving_one_at_a_time() -> Any:
    """The server; S3 decides conditional puts one after the other, which moto's threads do not."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def in_turn(environ: Any, start_response: Any) -> list[bytes]:
        with turn:
            return list(app(environ, start_response))

    return make_server("127.0.0.1", 0, in_turn, threaded=True)
