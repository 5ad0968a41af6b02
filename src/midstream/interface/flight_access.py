"""Servers of Arrow Flight that answer whoever knows their token, as `Bearer TOKEN` or as the password of any user."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from midstream.errors import JobError


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets clients introduce themselves by the header that every call has; it is looked at below."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing more is needed."""

    def is_valid(self, token: bytes) -> bytes:
        """Who calls is nobody in particular."""
        return b""


class AccessFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        self.token = token

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> Any:
        """Looks at the header of a call."""
        given = next((values[0] for name, values in headers.items() if name.lower() == "authorization"), "")
        kind, _, secret = given.partition(" ")
        if kind == "Basic":
            try:
                whole = secret + "=" * (-len(secret) % 4)  # some clients leave out what fills it up
                secret = base64.b64decode(whole).decode("utf-8", "replace").partition(":")[2]
            except ValueError:
                secret = ""
        if not hmac.compare_digest(secret.encode(), self.token.encode()):
            raise flight.FlightUnauthenticatedError("this server needs its token, which the command prints")
        return _Access(self.token)


class _Access(flight.ServerMiddleware):  # type: ignore[misc]
    """Gives a client what to send along from now on."""

    def __init__(self, token: str) -> None:
        self.token = token

    def sending_headers(self) -> dict[str, str]:
        """The headers of an answer."""
        return {"authorization": f"Bearer {self.token}"}


@contextmanager
def serving(host: str, port: int, made: Callable[[str], Any]) -> Iterator[int]:
    """Serves while inside; gives the port, which is a free one for 0."""
    address = f"[{host}]" if ":" in host else host
    try:
        server = made(f"grpc://{address}:{port}")
    except (OSError, pa.ArrowException) as error:
        hint = "choose another port; 0 picks a free one"
        raise JobError(f"cannot listen on {host}, port {port}", detail=str(error).split("\n")[0], hint=hint) from None
    try:
        yield server.port
    finally:
        server.shutdown()
