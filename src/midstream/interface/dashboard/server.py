"""The dashboard's server: the page, the news as server-sent events, earlier batches, the export, and actions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.commands import COMMANDS, command_in, form_of
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stops import standing
from midstream.checkpoint.store import CheckpointStore
from midstream.checkpoint.trials import last_trial
from midstream.errors import InputError, InternalError, MidstreamError, QueryError
from midstream.interface.answers import answer_text, forecast_text
from midstream.interface.asking import asked
from midstream.interface.dashboard.access import HEADERS, Access
from midstream.interface.dashboard.assets import TYPES, asset
from midstream.interface.dashboard.export import exported
from midstream.interface.dashboard.feed import NewsFeed
from midstream.interface.dashboard.page_data import job_summary_at, results_preview
from midstream.interface.dashboard.prometheus import CONTENT_TYPE, exposition
from midstream.interface.dashboard.relations import Relations, since_of
from midstream.interface.dashboard.series import series_summary

PATIENCE = 60.0
"""How many seconds an action waits for the job's answer."""

LARGEST = 200_000
"""How many bytes a request may have."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """Serves one job."""

    def __init__(self, checkpoint: str, access: Access, most_pages: int = 32) -> None:
        self.checkpoint = checkpoint
        self.most_pages = most_pages
        self.pages = 0
        self.access = access
        self.feed = NewsFeed(checkpoint)
        self.relations = Relations(checkpoint)

    @property
    def app(self) -> Starlette:
        """The application, ready to be served."""
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/assets/{name}", self.asset),
                Route("/api/events", self._looking(self.events)),
                Route("/api/job", self._looking(self.job)),
                Route("/api/results", self._looking(self.results)),
                Route("/api/series", self._looking(self.series)),
                Route("/api/trial", self._looking(self.trial)),
                Route("/api/session", self._looking(self.session)),
                Route("/api/export", self._looking(self.export)),
                Route("/metrics", self._looking(self.metrics)),
                Route("/api/ask", self.ask, methods=["POST"]),
                Route("/queries", self._looking(self.relations.queries)),
                Route("/queries/{name}/results", self._looking(self.relations.results)),
                Route("/queries/{name}/current", self._looking(self.relations.current)),
                Route("/queries/{name}/changes", self._looking(self.changes)),
                Route("/sql", self._looking(self.relations.sql), methods=["GET", "POST"]),
                Route("/healthz", self.healthz),
                Route("/readyz", self.readyz),
            ],
            middleware=[Middleware(Guard, access=self.access)],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.feed.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    def _looking(self, endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            if not self.access.may_look(request):
                return refused("this dashboard needs its token", 401, "open the link that the command has printed")
            try:
                return await endpoint(request)
            except NotANumber as error:
                return refused(str(error), 400)
            except MidstreamError as error:
                return error_response(error)

        return guarded

    async def page(self, request: Request) -> Response:
        """The page; a link with the token becomes a cookie first, so that it does not stay in the address."""
        token = request.query_params.get("token")
        if token is None:
            return Response(asset("index.html"), media_type=TYPES["index.html"])
        if not self.access.is_token(token):
            return refused("this is not the dashboard's token", 401, "open the link that the command has printed")
        answer = RedirectResponse("/", status_code=303)
        self.access.remember(answer)
        return answer

    async def asset(self, request: Request) -> Response:
        """The page's script and style."""
        name = request.path_params["name"]
        if name not in TYPES:
            return refused("there is no such file", 404)
        return Response(asset(name), media_type=TYPES[name])

    async def events(self, request: Request) -> Response:
        """The news; a page that comes back says up to which batch it knows them."""
        since = whole_number("since", request.headers.get("last-event-id") or request.query_params.get("since"), -1)
        return self._streamed(self.feed.events(since))

    async def changes(self, request: Request) -> Response:
        """What is released of a query from an instant on; who comes back says up to which instant it knows it."""
        since = since_of(request.headers.get("last-event-id") or request.query_params.get("since"))
        name, form = request.path_params["name"], request.query_params.get("form", "rows")
        return self._streamed(await asyncio.to_thread(self.relations.changes, name, since, form))

    def _streamed(self, events: AsyncIterator[str]) -> Response:
        if self.pages >= self.most_pages:
            return refused("too many pages are open", 503, "close some of them")
        return StreamingResponse(self._counted(events), media_type="text/event-stream")

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self.pages += 1
        try:
            async for event in events:
                yield event
        finally:
            self.pages -= 1

    async def healthz(self, request: Request) -> Response:
        """That this server answers."""
        return JSONResponse({"alive": True})

    async def readyz(self, request: Request) -> Response:
        """Whether the job runs: it holds its lease and is at work."""
        try:
            found = await asyncio.to_thread(phase_of, self.checkpoint)
        except MidstreamError:
            found = "unreadable"
        return JSONResponse({"phase": found}, 200 if found == "running" else 503)

    async def job(self, request: Request) -> Response:
        """The job as of a batch."""
        job = await self._opened()
        batch = whole_number("batch", request.query_params.get("batch"), job.batch)
        return JSONResponse(await asyncio.to_thread(job_summary_at, job, batch))

    async def results(self, request: Request) -> Response:
        """The newest results of a query."""
        job = await self._opened()
        return JSONResponse(await asyncio.to_thread(results_preview, job, request.query_params.get("query", "")))

    async def series(self, request: Request) -> Response:
        """The metrics table."""
        since = whole_number("since", request.query_params.get("since"), -1)
        return JSONResponse(await asyncio.to_thread(series_summary, await self._opened(), since))

    async def trial(self, request: Request) -> Response:
        """What the last trial beside the job has found, if there was one."""
        return JSONResponse(await asyncio.to_thread(last_trial, files_at(self.checkpoint)))

    async def session(self, request: Request) -> Response:
        """Whether this page may act, what it must send along to do so, and the forms of what it can ask for."""
        known = self.access.is_known(request)
        record = {"may_act": known, "csrf": self.access.csrf if known else None}
        return JSONResponse({**record, "commands": [form_of(kind) for kind in COMMANDS.values() if kind.forecast]})

    async def export(self, request: Request) -> Response:
        """The job as one file."""
        job = await self._opened()
        content = await asyncio.to_thread(exported, job)
        named = {"Content-Disposition": f'attachment; filename="midstream-batch-{job.batch}.html"'}
        return Response(content, media_type=TYPES["index.html"], headers=named)

    async def metrics(self, request: Request) -> Response:
        """The job's figures for Prometheus."""
        content = await asyncio.to_thread(exposition, await self._opened())
        return Response(content, media_type=CONTENT_TYPE)

    async def ask(self, request: Request) -> Response:
        """Asks the job for something, or what it would do."""
        if not self.access.may_act(request):
            return refused("actions need the dashboard's token", 403, "open the link that the command has printed")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return refused("a request is JSON", 415)
        try:
            wanted = json.loads(await request.body())
            if not isinstance(wanted, dict):
                raise InputError("a request is a JSON object")
            dry_run = wanted.pop("dry_run", True) is not False
            command = command_in(wanted)
            dry_run = dry_run and command.forecast
            answer = await asyncio.to_thread(asked, self.checkpoint, command, PATIENCE, dry_run=dry_run)
        except ValueError:
            return refused("a request is a JSON object", 400)
        except MidstreamError as error:
            return error_response(error)
        text = forecast_text(command, answer) if dry_run else answer_text(command, answer)
        return JSONResponse({"dry_run": dry_run, "answer": answer, "text": text})

    async def _opened(self) -> StoredJob:
        known = self.feed.job
        return await asyncio.to_thread(StoredJob.open, self.checkpoint) if known is None else known


def phase_of(checkpoint: str) -> str:
    """What the job of a checkpoint does."""
    store = CheckpointStore(checkpoint)
    return str(standing(store.files, store.latest()).phase)


class Guard:
    """Refuses requests that name an unknown host or are too large; adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                added = [
                    (n.lower().encode(), v.encode()) for n, v in HEADERS.items() if n.lower().encode() not in names
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        request = Request(scope)
        app = self.app
        length = request.headers.get("content-length", "0")
        if not self.access.knows_host(request):
            app = refused("this host name is not expected", 421, "add it with --allow-host")
        elif not is_whole_number(length) or int(length) > LARGEST or "transfer-encoding" in request.headers:
            app = refused("the request is too large", 413)
        await app(scope, receive, guarded)


def refused(message: str, status: int, hint: str | None = None) -> JSONResponse:
    """An answer that says why not."""
    return JSONResponse({"error": {"message": message, "detail": None, "hint": hint}}, status)


def error_response(error: MidstreamError) -> JSONResponse:
    """An error as the page shows it."""
    record = {"message": error.message, "detail": error.detail, "hint": error.hint}
    if isinstance(error, QueryError) and error.line is not None:
        record["message"], *place = str(error).split("\n")[:3]
        record["place"] = "\n".join(place)
    return JSONResponse({"error": record}, 500 if isinstance(error, InternalError) else 422)


class NotANumber(Exception):
    """An address that has something else where a number belongs."""


def is_whole_number(text: str) -> bool:
    """Whether a text from outside is a whole number that can be worked with.

    >>> [text for text in ("7", "-1", "--5", "9" * 5000, "１") if is_whole_number(text)]
    ['7', '-1']
    """
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def whole_number(name: str, text: str | None, otherwise: int) -> int:
    """The number in a part of an address; refuses what is none."""
    if text is None:
        return otherwise
    if not is_whole_number(text):
        raise NotANumber(f"{name} must be a whole number, not {text!r:.40}")
    return int(text)
