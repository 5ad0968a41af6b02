"""Results as requests to an address: each has a key that a repeat has again, by which a receiver tells it apart.

A request that is not answered, or answered with an error, is sent again with growing pauses; then the job ends, and
sends it again when it is started. So each result arrives at least once, and a receiver that remembers keys has it once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, ClassVar
from urllib.parse import urlsplit

from midstream.connectors.environment import conceal, hidden
from midstream.connectors.forms import Form, in_form
from midstream.connectors.registry import Option, form_option
from midstream.connectors.retrying import retried
from midstream.connectors.sink import Delivery, arrow
from midstream.errors import JobError, MidstreamError
from midstream.inputs.json_values import json_texts

PATIENCE = 30.0
"""For how many seconds an answer is waited for."""

AT_ONCE = 10_000
"""How many rows a request has at most."""


class Webhook:
    """Posts results to an address, as JSON."""

    options: ClassVar[Mapping[str, Option]] = {
        "url": Option(str, "The address that results are posted to.", needed=True),
        "headers": Option(dict, "Headers of the requests, such as Authorization."),
        "form": form_option("rows", "changelog"),
    }

    def __init__(self, url: str, form: Form = "rows", headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise JobError("the url of the sink 'webhook' is no address", hint="write https://host/path")
        conceal(url, "url")
        for name, value in (headers or {}).items():
            conceal(value, name)
        self.form, self.headers = form, dict(headers or {})
        self.name = f"webhook {parts.hostname}"
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Posts results, in as many requests as they take."""
        table = in_form(arrow(results), self.form, delivery.query, delivery.now)
        whose = f"{delivery.history}.{delivery.query}.{delivery.identity}.{delivery.since}.{delivery.until}"
        for number, start in enumerate(range(0, table.num_rows, AT_ONCE)):
            rows = [text for part in table.slice(start, AT_ONCE).to_batches() for text in json_texts(part)]
            said = {"query": delivery.query, "since": delivery.since, "until": delivery.until, "form": self.form}
            body = f'{json.dumps(said)[:-1]}, "rows": [{", ".join(rows)}]}}'
            self._post(f"{whose}.{number}", body.encode(), delivery.query)

    def _post(self, key: str, body: bytes, query: str) -> None:
        try:
            retried(lambda: self._posted(key, body), f"sink {self.name} does not take results of query {query}")
        except MidstreamError:
            raise
        except Exception as error:
            raise JobError(
                f"sink {self.name} does not take results of query {query}",
                detail=hidden(f"{type(error).__name__}: {error}".strip()),
            ) from None

    def _posted(self, key: str, body: bytes) -> None:
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=PATIENCE)
        try:
            headers = {"Content-Type": "application/json", "Idempotency-Key": key, **self.headers}
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            text = answer.read(1000).decode("utf-8", "replace")
        finally:
            connection.close()
        if 400 <= answer.status < 500 and answer.status not in (408, 425, 429):
            raise JobError(
                f"sink {self.name} refuses results with status {answer.status}",
                detail=hidden(text) or None,
                hint="correct the address or the receiver; started again, the job sends them again",
            )
        if not 200 <= answer.status < 300:
            raise OSError(f"status {answer.status}: {text}")
