"""What a running session answers when a second process asks through its checkpoint."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from midstream.checkpoint.commands import (
    Adapt,
    AddQuery,
    CancelMigration,
    CancelRebalance,
    ChangeLinks,
    Command,
    CorrectCosts,
    DropQuery,
    ForecastOf,
    Migrate,
    OfferPlans,
    Rebalance,
    ReplaceQuery,
    Rescale,
    ResumeQuery,
    ScheduleOperators,
    ShowPlan,
    ShowStatus,
    StopJob,
    SwitchQuery,
    command_in,
)
from midstream.checkpoint.control import Request
from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.process import RepeatedCall, this_process
from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.status import status_record
from midstream.cluster.any_session import Session
from midstream.cluster.query import Query
from midstream.errors import InternalError, MidstreamError, query_in
from midstream.job.commands.forecast import forecast, offered_plans
from midstream.job.events import AddingRecorded, CostsCorrected, TextChanged
from midstream.job.job import Job
from midstream.job.requests import without_deadline

log = logging.getLogger(__name__)


class Commanded(Session):
    """A session that other processes command."""

    _job: Job

    def queries_by(self, name: str) -> Query:
        """A query by its name."""
        raise NotImplementedError

    def request_stop(self) -> None:
        """Ends the session after the batch under way."""
        raise NotImplementedError


class Listener:
    """Looks for requests while the session runs."""

    def __init__(self, session: Commanded, pause: float = 0.5) -> None:
        self.session = session
        self.pause = pause
        self.looking: RepeatedCall | None = None

    def go_on(self) -> None:
        """Carries out what was asked of an earlier process and came into no manifest."""
        job = self.session._job
        job.requests.go_on(job.manifest, self.answer)

    def listen(self) -> None:
        """Begins to look for requests."""
        self.looking = this_process().repeat(self._look, self.pause, "midstream-control")

    def stop(self) -> None:
        """Stops looking."""
        if self.looking is not None:
            self.looking.stop(patience=10)

    def _look(self) -> None:
        job = self.session._job
        try:
            job.requests.answer_all(self.answer, job.commits.check_lease)
        except MidstreamError as error:
            log.warning("the control folder cannot be read: %s", error)
        except Exception:  # a job must not become deaf, whatever it was asked
            log.exception("a request could not be answered")

    def answer(self, request: Request) -> Any:
        """The answer to one request."""
        return carry_out(self.session, command_in(without_deadline(request)))


def carry_out(session: Commanded, command: Command) -> Any:
    """Has a session do what was asked of it; gives the answer."""
    job = session._job
    match command:
        case ShowStatus():
            return status(session)
        case ShowPlan(name):
            query = session.queries_by(name)
            return {"query": name, "plan": query.plan.text, "explain": query.explain()}
        case OfferPlans(name):
            return {"query": name, "plans": offered_plans(job, query_in(job.queries, name))}
        case ForecastOf(wanted):
            return forecast(job, wanted, session.catalog)
        case Migrate(name, plan, strategy):
            query = session.queries_by(name)
            query.migrate(plan, strategy, part=command.part, slots=command.slots, verify=command.verify)
            return {"query": name, "from": query.plan.text, "to": query.migrating}
        case ScheduleOperators(name):
            before, session.scheduling = session.scheduling, name
            return {"from": before, "to": session.scheduling}
        case CancelMigration(name):
            query = session.queries_by(name)
            left, known = query.migrating, job.state.verifications.by_query.get(name)
            query.cancel_migration()
            text = None if known is None or known.shadow is None else known.shadow.cql
            return {"query": name, "plan": query.plan.text, "cancelled": left, "text": text}
        case Rebalance(protocol, by, routing):
            return {"changes": session.rebalance(routing, protocol=protocol, by=by)}
        case CancelRebalance():
            session.cancel_rebalance()
            return {"cancelled": True}
        case Rescale(slots):
            return {"changes": session.rescale(slots)}
        case ChangeLinks(links):
            return {"links": session.links(links)}
        case CorrectCosts(factors):
            told = forecast(job, command, session.catalog)
            job.apply(CostsCorrected(factors))
            return told
        case Adapt(name, mode):
            return session.adapt(name, mode)
        case AddQuery(name, cql):
            settings: dict[str, Any] = {name: getattr(command, name) for name in ("plan", "adaptive", "backfill_rate")}
            added = session.query(name, cql, **settings, since=command.since)
            job.apply(AddingRecorded(name, {"cql": cql, **settings}))
            return {"query": name, "plan": added.plan.text}
        case ReplaceQuery():
            return _put_in_place(session, command)
        case SwitchQuery(name):
            told = forecast(job, command, session.catalog)
            session.queries_by(name).switch()
            return told
        case DropQuery(name):
            running, by_request = job.queries.get(name), name in job.state.added
            declared, _ = job.state.texts.get(name, (None if running is None else running.cql, None))
            session.drop(name)
            if running is not None and not by_request:
                job.apply(TextChanged(name, str(declared)))
            return {"query": name}
        case ResumeQuery(name):
            return {"query": name, **session.resume(name)}
        case StopJob():
            session.request_stop()
            return {"stopping": True}
    raise InternalError(f"nothing carries out {command}")


def _put_in_place(session: Commanded, command: ReplaceQuery) -> dict[str, Any]:
    """Replaces a query, with those that read it; all of them are remembered as what they have become."""
    job = session._job
    before, texts, added = dict(job.queries), dict(job.state.texts), dict(job.state.added)
    options = {field.name: getattr(command, field.name) for field in fields(command)}
    told = session.replace(options.pop("query"), options.pop("cql"), **options)
    if command.verify is not None or told["paced"]:
        return told
    for name in (command.query, *(reader["query"] for reader in told["readers"])):
        now, plan = job.queries[name].cql, command.plan if name == command.query else None
        if name in added:
            job.apply(AddingRecorded(name, {**added[name], "cql": now, "plan": plan}))
        else:
            job.apply(TextChanged(name, str(texts.get(name, (before[name].cql,))[0]), now))
    return told


def status(session: Commanded) -> dict[str, Any]:
    """How far a session is; before its first batch, which queries it has."""
    job = session._job
    begun = {name: QueryEntry(q.cql, q.plan.text, time=q.plan.domain.word) for name, q in job.queries.items()}
    return status_record(StoredJob(job.store, job.manifest or Manifest("", -1, queries=begun)))
