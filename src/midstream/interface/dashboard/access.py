"""Who may see and do what.

Bound to this machine alone, anybody on it may look; acting needs the token. Bound to any other address, everything
needs it. The token travels once, in the link that the command prints, and becomes a cookie that scripts cannot read and
other sites' pages cannot send. Acting also needs a header that only this page's own script can set, and a request that
says that it comes from this page. A host name that was not expected is refused, so that a foreign name which is made to
resolve to this machine (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

CSRF = "x-midstream-csrf"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Access:
    """What is allowed on an address; `host` is the one that is bound, `names` those that it may be called by."""

    host: str
    port: int
    names: frozenset[str] = frozenset()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def cookie(self) -> str:
        """The cookie's name; cookies do not tell ports apart."""
        return f"midstream-{self.port}"

    @property
    def csrf(self) -> str:
        """What the page's script must send back to act."""
        return hmac.new(self.token.encode(), b"csrf", sha256).hexdigest()

    @property
    def link(self) -> str:
        """The address to open, with the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self.token}"

    def knows_host(self, request: Request) -> bool:
        """Whether the request names a host that this is expected to be called by."""
        host, _, port = request.headers.get("host", "").rpartition(":")
        if not port.isdecimal():
            host = request.headers.get("host", "")
        name = host.strip("[]").lower()
        if name in self.names or name == self.host.lower():
            return True
        if self.is_local:
            return name == "localhost" or is_loopback(name)
        # On all addresses any number may be meant; a name must be one that was allowed.
        return is_any(self.host) and is_number(name)

    def is_token(self, given: str) -> bool:
        """Whether it is the token."""
        return hmac.compare_digest(given.encode(), self.token.encode())

    def is_known(self, request: Request) -> bool:
        """Whether the request brings the token."""
        return self.is_token(request.cookies.get(self.cookie, ""))

    def may_look(self, request: Request) -> bool:
        """Whether the request may see the job; programs bring the token in a header."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return self.is_local or self.is_known(request) or (kind.lower() == "bearer" and self.is_token(given))

    def may_act(self, request: Request) -> bool:
        """Whether the request may change the job: it brings the token, and comes from this very page."""
        same = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
        # Behind a proxy that encrypts, the page's scheme is another than the one that arrives here.
        here = request.headers.get("host", "")
        same = same and request.headers.get("origin") in (f"http://{here}", f"https://{here}")
        csrf = hmac.compare_digest(request.headers.get(CSRF, "").encode(), self.csrf.encode())
        return same and csrf and self.is_known(request)

    def remember(self, response: Response) -> None:
        """Has the browser keep the token."""
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("127.0.0.1.example.org")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    return is_number(host) and ipaddress.ip_address(host).is_loopback


def is_any(host: str) -> bool:
    """Whether an address stands for all addresses of the machine."""
    return is_number(host) and ipaddress.ip_address(host).is_unspecified


def is_number(host: str) -> bool:
    """Whether a host is given as a number."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
