"""Queries that a value stops: one that cannot be cast, a number that overflows, a function that fails.

A batch is a function of the last manifest and its rows, so what fails once fails whenever it is repeated: without a
decision the job could never go on. The decision is the query's (`on_error`). It is taken before the batch is committed
and is part of its manifest, so a batch that is repeated comes to the same one:

- `stop_query`: the batch counts for all other queries. The one that failed is in quarantine: it keeps the state and the
  results of the manifest before, takes in nothing, and stays so, over restarts too, until it is resumed, replaced or
  dropped by name. Resumed, it goes on with its state as if the rows of the batches in between had never come.
- `dead_letter`: the rows of streams that make the query's expressions fail are set aside with the reason, and the query
  goes on without them. That is possible where a row fails by itself, before it meets others; otherwise as `stop_query`.
- `stop_job`: nothing counts, and the job ends.

Which queries failed is found by running those that were at work when something failed apart from the others: a query
that only shares operators with the one at fault does not fail by itself, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

from midstream.checkpoint.manifest import Manifest, QueryEntry
from midstream.checkpoint.names import query_of
from midstream.checkpoint.records import Fault, QueryAccount, happened
from midstream.errors import InputError, JobError, MidstreamError, QueryError
from midstream.job.task.reports import Report

T = TypeVar("T")

OnError = Literal["stop_query", "dead_letter", "stop_job"]

DEFAULT: OnError = "stop_query"
"""One query's bad value must not stop the others, and nothing may be left out of its results without a word."""

QUARANTINED = "quarantined"
"""The status of a query that takes in nothing because a value stopped it."""


def on_error_of(value: object) -> OnError:
    """What a query does about errors, if there is such a way."""
    for known in get_args(OnError):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise QueryError(f"on_error cannot be {value!r}", hint=f"use one of {', '.join(get_args(OnError))}")


@dataclass(slots=True)
class Faults:
    """What queries do about errors, and those that are in quarantine."""

    policies: dict[str, OnError] = field(default_factory=dict)
    stopped: dict[str, Fault] = field(default_factory=dict)
    resuming: set[str] = field(default_factory=set)
    """Queries that shall go on with the next batch, as was asked for."""
    news: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What the histories of queries say of this, until a manifest does."""

    def follow(self, manifest: Manifest) -> None:
        """Goes on with what a manifest says, and with what was asked for since."""
        known = manifest.accounts.items()
        self.stopped = {name: account.fault for name, account in known if account.fault is not None}
        asked = {name: on_error_of(account.on_error) for name, account in known if account.on_error is not None}
        self.policies = {**asked, **self.policies}
        for name in self.resuming & self.stopped.keys():
            self.resume(name)

    def policy(self, query: str) -> OnError:
        """What a query does about errors."""
        return self.policies.get(query, DEFAULT)

    def stop(self, query: str, batch_id: int, error: MidstreamError) -> None:
        """Puts a query in quarantine."""
        fault = self.stopped[query] = Fault(batch_id, error.message, error.detail, error.hint)
        self.tell(query, happened(QUARANTINED, batch_id, fault.reason))

    def record(self, query: str, what: str, batch_id: int, reason: str) -> None:
        """Adds another event to a query's history."""
        self.tell(query, happened(what, batch_id, reason))

    def tell(self, query: str, *events: dict[str, Any]) -> None:
        """Has a query's history tell of events."""
        self.news[query] = [*self.news.get(query, ()), *events]

    def resume(self, query: str) -> Fault:
        """Resumes a query with the next batch, as if the rows since the one that stopped it had never come."""
        if query not in self.stopped:
            raise JobError(f"query {query} is not in quarantine")
        fault = self.stopped.pop(query)
        self.resuming.add(query)
        self.tell(query, happened("resumed", fault.batch, fault.reason))
        return fault

    def forget(self, query: str) -> None:
        """Forgets a query that is gone."""
        for known in (self.policies, self.stopped, self.news):
            known.pop(query, None)
        self.resuming.discard(query)

    def rename(self, query: str, name: str) -> None:
        """A query in quarantine goes by another name until its end."""
        if query in self.stopped:
            self.stopped[name] = self.stopped.pop(query)

    def in_manifest(self, manifest: Manifest, before: Manifest | None, entries: Mapping[str, QueryEntry]) -> Manifest:
        """A batch's manifest with the queries that were not at work in it, as the one before has them.

        `entries` are those of all queries. What a query shared is forgotten with the quarantine: resumed, it has not
        had the rows that others have had, so it shares nothing until all that it missed has expired.
        """
        idle = [name for name in self.stopped if name in entries]
        known = before or Manifest(manifest.query_id, -1)
        known = replace(known, queries={**entries, **known.queries})
        made = manifest.with_queries_of(known, idle)
        queries = {n: replace(e, status=QUARANTINED) if n in idle else e for n, e in made.queries.items()}
        accounts = {n: self._account(n, made.account(n), manifest.batch_id) for n in queries}
        return replace(made, queries=queries, accounts=accounts)

    def _account(self, query: str, account: QueryAccount, batch_id: int) -> QueryAccount:
        """What is remembered of a query, with its faults."""
        news = [{**event, "end_batch": batch_id} for event in self.news.get(query, ())]
        fault, policy = self.stopped.get(query), self.policy(query)
        return replace(
            account,
            history=[*account.history, *news] if news else account.history,
            sharing=account.sharing if fault is None else None,
            on_error=None if policy == DEFAULT else policy,
            fault=fault,
        )


NO_FAULTS = Faults()


def resumed(manifest: Manifest, query: str) -> Manifest:
    """A manifest of a job that does not run, from which a query in quarantine goes on."""
    faults = Faults()
    faults.follow(manifest)
    faults.resume(query)
    entry = replace(manifest.queries[query], status="running")
    made = faults.in_manifest(manifest, manifest, manifest.queries)
    return replace(made, queries={**made.queries, query: entry})


Attempt = Callable[[Collection[str]], Generator[Any, Any, MidstreamError | None]]
"""Runs some queries alone; gives what makes one of them fail."""


def suspects(reports: Iterable[Report]) -> set[str]:
    """The queries that were at work where something failed; raises what no query can be at fault for."""
    found: set[str] = set()
    for report in reports:
        if report.error is None:
            continue
        if not isinstance(report.error, InputError) or not report.blamed:
            raise report.error
        found |= {query_of(name) for name in report.blamed}
    return found


def at_fault(
    names: Collection[str], error: MidstreamError, attempt: Attempt
) -> Generator[Any, Any, dict[str, MidstreamError]]:
    """Those of some queries that fail by themselves, and with what; all of them if none does so alone.

    The set is halved as long as a half fails, so few queries at fault among many are found in few attempts.
    """
    if len(names) == 1:
        return dict.fromkeys(names, error)
    ordered = sorted(names)
    found: dict[str, MidstreamError] = {}
    for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        failed = yield from attempt(half)
        if failed is not None:
            found |= yield from at_fault(half, failed, attempt)
    return found or dict.fromkeys(ordered, error)


def named(query: str, error: MidstreamError) -> InputError:
    """What stops a job, with the query that it was raised for."""
    return InputError(
        f"query {query}: {error.message}",
        detail=error.detail,
        hint=f'{error.hint or "mend the value"}; on_error = "stop_query" lets the other queries continue',
    )
