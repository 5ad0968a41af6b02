"""Rows that others push over HTTP: each request becomes a file of the folder that a stream is read from.

A request is acknowledged when its file is on the disk under its last name. From then on its rows count once, as those
of any file do. A request that was not acknowledged may have been written all the same; if it has an `Idempotency-Key`,
it can be sent again: a key names one file, which is written once. Other rows under a key that is known are refused.
"""

from __future__ import annotations

import filecmp
import hmac
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa

from midstream.errors import JobError
from midstream.inputs import write_table

TOKEN = "MIDSTREAM_LISTEN_TOKEN"
"""The variable of the environment that gives the token, for programs that must know it in advance."""

LARGEST = 64 * 2**20
"""How many bytes a request may have."""

MOST_CONNECTIONS = 64
"""How many clients are connected at once; more are turned away, so that none of them takes what the job needs."""

PATIENCE = 30.0
"""For how many seconds a client may be silent in the middle of a request."""

ARROW = "application/vnd.apache.arrow.stream"
TEXTS = ("application/json", "application/x-ndjson", "application/jsonl", "text/plain", "")
ENDINGS = {"json": ".json", "parquet": ".parquet"}


class Refused(Exception):
    """A request that is not taken, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Inbox:
    """The folders of streams into which rows can be pushed, with their formats."""

    folders: Mapping[str, tuple[str, Path]]

    def take(self, stream: str, body: bytes, kind: str, key: str | None) -> str:
        """Writes the rows of a request, once under each key; gives the file's name once it is safe."""
        if stream not in self.folders:
            near = get_close_matches(stream, self.folders, 1)
            raise Refused(404, f"rows cannot be pushed into {stream}" + (f": did you mean {near[0]}?" if near else ""))
        format, folder = self.folders[stream]
        mark = secrets.token_hex(8) if key is None else sha256(key.encode()).hexdigest()[:32]
        name = f"{time.time_ns():020}-{mark}" if key is None else f"key-{mark}"
        path = folder / f"{name}{ENDINGS[format]}"
        draft = folder / f".{secrets.token_hex(8)}{ENDINGS[format]}"
        try:
            _write(draft, body, kind, format)
            try:
                os.link(draft, path)  # only one request makes a file of this name
            except FileExistsError:
                if not filecmp.cmp(draft, path, shallow=False):
                    raise Refused(409, "a request with this Idempotency-Key had other rows") from None
            _sync(folder)
        except OSError as error:
            raise Refused(507, f"the rows cannot be kept: {error.strerror}") from error
        finally:
            draft.unlink(missing_ok=True)
        return path.name


def _write(draft: Path, body: bytes, kind: str, format: str) -> None:
    if kind == ARROW:
        try:
            write_table(pa.ipc.open_stream(body).read_all(), draft)
        except pa.ArrowException as error:
            raise Refused(400, f"this is no stream of Arrow: {error}") from None
    elif kind in TEXTS and format == "json":
        draft.write_bytes(body)
    else:
        raise Refused(415, f"a stream of format {format} does not take {kind or 'this'}")
    _sync(draft)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def inbox_of(streams: Mapping[str, tuple[str, str | None]]) -> Inbox:
    """The inbox of a job's streams, by format and path: those that are folders of this machine."""
    found = {
        name: (format.lower(), Path(path.removeprefix("file://")))
        for name, (format, path) in streams.items()
        if format.lower() in ENDINGS and path is not None and "://" not in path.removeprefix("file://")
    }
    if not found:
        raise JobError(
            "rows cannot be pushed into any stream of this job",
            hint='declare one with format = "json" or "parquet" and a folder as its path',
        )
    return Inbox(found)


@contextmanager
def listening(inbox: Inbox, host: str, port: int) -> Iterator[tuple[str, str]]:
    """Takes rows while inside; gives the address and the token."""
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
    try:
        server = _Server((host, port), _handler(inbox, token))
    except OSError as error:
        raise JobError(f"cannot listen on {host}, port {port}", detail=error.strerror) from error
    thread = threading.Thread(target=server.serve_forever, name="midstream-inbox", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/streams/", token
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Has a thread for each of the clients that are let in."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more."""
        return self._room.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a client to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


def _handler(inbox: Inbox, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Takes the rows of a request."""
            try:
                name = inbox.take(self._stream(), self._body(), self._kind(), self.headers.get("Idempotency-Key"))
                self._answer(200, {"file": name})
            except Refused as error:
                self.close_connection = True
                self._answer(error.status, {"error": str(error)})

        def _stream(self) -> str:
            kind, _, given = self.headers.get("Authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.encode(), token.encode()):
                raise Refused(401, "pushing rows needs the token")
            return self.path.removeprefix("/streams/").partition("?")[0]

        def _body(self) -> bytes:
            length = self.headers.get("Content-Length", "")
            if re.fullmatch("[0-9]{1,18}", length) is None:
                raise Refused(411, "a request must say how long it is")
            if int(length) > LARGEST:
                raise Refused(413, f"a request may have {LARGEST:,} bytes")
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                raise Refused(400, "the request is cut off")
            return body

        def _kind(self) -> str:
            return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

        def _answer(self, status: int, record: Mapping[str, Any]) -> None:
            content = json.dumps(record).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Says nothing: whoever pushes is answered."""

    return Handler
