"""Results as requests to an address: each has a key that a repeat has again, by which a receiver tells it apart.

A request that is not answered, or answered with an error, is sent again with growing pauses; then the job ends, and
sends it again when it is started. So each result arrives at least once, and a receiver that remembers keys has it once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa

from midstream.connectors.digest import digest_of
from midstream.connectors.environment import conceal, hidden
from midstream.connectors.fitting import STOP, put_in
from midstream.connectors.forms import Form, in_form
from midstream.connectors.registry import ON_BAD, Option, form_option
from midstream.connectors.retrying import answered
from midstream.connectors.sink import Delivery, RefusedResult, arrow
from midstream.errors import JobError
from midstream.inputs.json_values import json_texts

PATIENCE = 30.0
"""For how many seconds an answer is waited for."""

AT_ONCE = 10_000
"""How many rows a request has at most."""

REFUSING = (400, 413, 422)
"""The statuses of a receiver that does not take the rows of a request."""


class RefusedRequest(Exception):
    """A request whose rows the receiver does not take."""


class Webhook:
    """Posts results to an address, as JSON."""

    options: ClassVar[Mapping[str, Option]] = {
        "url": Option(str, "The address that results are posted to.", needed=True),
        "headers": Option(dict, "Headers of the requests, such as Authorization."),
        "form": form_option("rows", "changelog"),
        "on_bad": ON_BAD,
    }

    def __init__(
        self, url: str, form: Form = "rows", headers: Mapping[str, str] | None = None, on_bad: str = STOP
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise JobError("the url of the sink 'webhook' is no address", hint="write https://host/path")
        conceal(url, "url")
        for name, value in (headers or {}).items():
            conceal(value, name)
        self.form, self.headers, self.on_bad = form, dict(headers or {}), on_bad
        self.refusals = (RefusedRequest,)
        self.name = f"webhook {parts.hostname}"
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Posts results, in as many requests as they take."""
        table = in_form(arrow(results), self.form, delivery.query, delivery.now)
        whose = f"{delivery.history}.{delivery.query}.{delivery.identity}.{delivery.since}.{delivery.until}"
        refused = list[RefusedResult]()
        collecting = replace(delivery, set_aside=lambda _, rows, __: refused.extend(rows))
        said = {"query": delivery.query, "since": delivery.since, "until": delivery.until, "form": self.form}

        def post(rows: pa.Table, number: int, part: pa.Table) -> None:
            texts = [text for batch in rows.to_batches() for text in json_texts(batch)]
            body = f'{json.dumps(said)[:-1]}, "rows": [{", ".join(texts)}]}}'
            key = f"{whose}.{number}" if rows is part else f"{whose}.{number}.{digest_of(rows)}"
            self._post(key, body.encode(), delivery.query)

        for number, start in enumerate(range(0, table.num_rows, AT_ONCE)):
            part = table.slice(start, AT_ONCE)
            put_in(self, collecting, part, partial(post, number=number, part=part))
        if refused:
            delivery.keep(refused, len(refused) == table.num_rows)

    def _post(self, key: str, body: bytes, query: str) -> None:
        words = f"sink {self.name} does not take results of query {query}"
        unsaid = () if self.on_bad == STOP else self.refusals
        answered(partial(self._posted, key, body), words, self.refusals, unsaid=unsaid)

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
        if answer.status in REFUSING:
            raise RefusedRequest(f"status {answer.status}: {text}")
        if 400 <= answer.status < 500 and answer.status not in (408, 425, 429):
            raise JobError(
                f"sink {self.name} refuses results with status {answer.status}",
                detail=hidden(text) or None,
                hint="correct the address or the receiver; started again, the job sends them again",
            )
        if not 200 <= answer.status < 300:
            raise OSError(f"status {answer.status}: {text}")
