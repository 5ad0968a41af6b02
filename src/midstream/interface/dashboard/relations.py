"""A job's results over HTTP: the current relation and the history of each query, SQL over them, and what is new.

Answers are JSON, or Arrow for whoever accepts it. Nothing here changes the job.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stored_results import read_query_results, start_of
from midstream.checkpoint.subscriptions import Released, Subscription, require_kept
from midstream.connectors.forms import in_form
from midstream.errors import InputError, MidstreamError, QueryError, query_in
from midstream.inputs.json_values import json_row
from midstream.interface.plain_values import columns_as_json, table_as_json

ARROW = "application/vnd.apache.arrow.stream"
CURRENT = "_current"
"""What follows the name of a query where SQL means its current relation."""


@dataclass(frozen=True, slots=True)
class Relations:
    """The results of a job's queries."""

    checkpoint: str

    async def queries(self, request: Request) -> Response:
        """The queries, with the columns of their results."""
        return JSONResponse(await asyncio.to_thread(self._queries))

    def _queries(self) -> list[dict[str, object]]:
        job = StoredJob.open(self.checkpoint)
        return [
            {"name": name, "cql": entry.cql, "columns": columns_as_json(job.results(name).schema)}
            for name, entry in job.manifest.queries.items()
        ]

    async def results(self, request: Request) -> Response:
        """All results of a query that are kept."""
        return await self._answer(request, request.path_params["name"], False)

    async def current(self, request: Request) -> Response:
        """What is valid at the last instant for which all results of a query are known."""
        return await self._answer(request, request.path_params["name"], True)

    async def _answer(self, request: Request, query: str, current: bool) -> Response:
        table = await asyncio.to_thread(read_query_results, self.checkpoint, query, current=current)
        return answered(request, table)

    async def sql(self, request: Request) -> Response:
        """The answer to a question in SQL over the results: `q` has them all, `q_current` those that are valid now."""
        text = request.query_params.get("q") or (await request.body()).decode("utf-8", "replace")
        return answered(request, await asyncio.to_thread(self.asked, text))

    def asked(self, text: str) -> pa.Table:
        """The answer to a question in SQL. It can read nothing but results."""
        import duckdb

        with duckdb.connect(config={"enable_external_access": False, "lock_configuration": True}) as run:
            try:
                statements = run.extract_statements(text)
            except duckdb.Error as error:
                raise InputError("this is not SQL", detail=str(error)) from None
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InputError("one question is answered at a time", hint="send one SELECT")
            for name, table in self._named_in(text):
                run.register(name, table)
            try:
                return run.sql(text).to_arrow_table()
            except duckdb.Error as error:
                raise InputError("the question cannot be answered", detail=str(error)) from None

    def _named_in(self, text: str) -> Iterator[tuple[str, pa.Table]]:
        """The relations that a text may name; others are not read."""
        for query in StoredJob.open(self.checkpoint).manifest.queries:
            if re.search(rf"\b{re.escape(query)}\b", text, re.IGNORECASE):
                yield query, read_query_results(self.checkpoint, query)
            if re.search(rf"\b{re.escape(query + CURRENT)}\b", text, re.IGNORECASE):
                yield query + CURRENT, read_query_results(self.checkpoint, query, current=True)

    def changes(self, query: str, since: int, form: str) -> AsyncIterator[str]:
        """What is released of a query from an instant on, as server-sent events, until the job does not run.

        An event's id is the instant up to which results are known, from which a client that comes back goes on.
        """
        job = StoredJob.open(self.checkpoint)
        if form not in ("rows", "changelog"):
            raise InputError(f"changes have no form {form!r}", hint="use rows or changelog")
        query_in(job.manifest.queries, query)
        require_kept(job.manifest, query, since)
        return self._events(Subscription(self.checkpoint, query, since), form)

    async def _events(self, subscription: Subscription, form: str) -> AsyncIterator[str]:
        try:
            async for released in subscription.releases():
                yield _event(released, subscription.query, form)
        except MidstreamError as error:  # the answer has begun: what is wrong is its last event
            said = {"message": error.message, "detail": error.detail, "hint": error.hint}
            yield f"event: failed\ndata: {json.dumps(said)}\n\n"


def _event(released: Released, query: str, form: str) -> str:
    table = released.table
    if form == "changelog" and table.column_names:
        if start_of(table.schema) == "ts":
            raise QueryError(f"query {query} gives a stream, which has no changelog")
        table = in_form(table, "changelog", query, released.until)
    rows = [json_row(row) for row in table.to_pylist()]
    return f"id: {released.until}\nevent: released\ndata: {json.dumps({'until': released.until, 'rows': rows})}\n\n"


def since_of(text: str | None) -> int:
    """The instant in an address, in ticks; the beginning if there is none."""
    if text is None:
        return BEGINNING
    if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
        raise InputError(f"since must be an instant in ticks, not {text!r:.40}", hint="use the id of an event")
    return max(BEGINNING, int(text))


def answered(request: Request, table: pa.Table) -> Response:
    """A table as the request accepts it."""
    if ARROW in request.headers.get("accept", ""):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW)
    return JSONResponse(table_as_json(table))
