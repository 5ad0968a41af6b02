"""How a session takes up a checkpoint: under the lease, as it is by then, with all that it holds.

A session plans its queries when they are declared, by what the checkpoint says then. If another session went on with
it before this one has the lease, everything is planned again. Queries that the checkpoint runs and nobody has declared
go on as they are, or the start is refused: rows that a query does not see would be missing in its results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from midstream.algebra.declarations import Catalog
from midstream.checkpoint.lease import Heartbeat
from midstream.checkpoint.names import copy_name, is_rehearsal, query_of_copy, replaced_name
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.run import Enrolment, Run
from midstream.connectors.sink import UntakenResults
from midstream.errors import MidstreamError
from midstream.job.circumstances import is_finished
from midstream.job.commands.replacement import is_paced
from midstream.job.commands.rewording import DeclaredQuery, Rewording, Text, verdicts
from midstream.job.commits import Commits
from midstream.job.events import QueriesForgotten, QueryLeftOut, SettingsChanged
from midstream.job.job import Job
from midstream.job.queries.changed_columns import ChangedColumn, changed_columns
from midstream.job.queries.changed_functions import ChangedFunctions, functions_record, require_same_functions
from midstream.job.queries.completeness import COMPLETE
from midstream.job.queries.declared import require_same_streams
from midstream.job.queries.filling import Pace
from midstream.job.queries.replacing import cannot_go_on, undeclared, without_query
from midstream.job.queries.running_query import RunningQuery
from midstream.job.queries.succession import can_wait, hands_on
from midstream.job.task.exchange import Layout
from midstream.job.task.results import result_table
from midstream.job.watchers import readers_of
from midstream.language import parse
from midstream.optimizer.sites.links import links_to_json

log = logging.getLogger(__name__)


class ResumedSession(Protocol):
    """What is asked of a session that takes up a checkpoint."""

    _job: Job
    _run: Run
    _enrolment: Enrolment
    _declared: dict[str, DeclaredQuery]
    _left_out: set[str]
    _code: dict[str, str]
    _changed_functions: ChangedFunctions

    @property
    def catalog(self) -> Catalog:
        """What queries may refer to."""

    def _open(self) -> None:
        """Reads what the checkpoint has."""

    def _add(self, declared: DeclaredQuery) -> Any:
        """Adds a query."""

    def restore_added(self) -> list[str]:
        """Adds the queries again that were added by request."""

    def was_dropped(self, name: str, cql: str) -> bool:
        """Whether a query of this very text was dropped by request."""


@contextmanager
def starting(checkpoint: str) -> Iterator[None]:
    """Holds the lease of a checkpoint while a session on it is opened, which takes as long as Spark does to start.

    Whoever looks sees that the job is starting, and what refuses its start; another driver is refused at once.
    """
    commits = Commits(CheckpointStore(checkpoint), retained=1)
    commits.lease = Heartbeat(commits.files)
    try:
        yield
    except Exception as error:
        commits.record_error(error, max(commits.store.batch_ids(), default=None))
        raise
    finally:
        commits.stop()


def take_up(session: ResumedSession) -> None:
    """Takes the lease, and with it the checkpoint as it is by now; gives sinks what they have not had of it."""
    job = session._job
    first = job.commits.lease is None
    if first:
        job.commits.lease = Heartbeat(job.files, session._run.lose)
        job.store.make_safe()
        _read_again(session)
        job.cluster.repair(job.store)
    elif job.commits.torn:
        _read_again(session)
    session.restore_added()
    _go_on_undeclared(session)
    if first:
        _fill_first(session)
    _arrange(session)
    require_same_streams(job.manifest, job.needed(), partial(readers_of, job.queries))
    accepted, state = session._changed_functions == "accept", job.state
    require_same_functions(state.manifest, session._code, state.queries.values(), state.faults, accepted)
    functions = functions_record(state.manifest, session._code)
    links = links_to_json(job.watchers.located.declared)
    retention = job.commits.retention.record
    job.apply(SettingsChanged({"functions": functions, "retention": retention, "declared_links": links}))
    if not is_finished(job.manifest):
        job.deliver(job.manifest)
        for name, query in job.queries.items():
            job.deliveries.require_taken(query_of_copy(name), result_table(query.plan, None).schema)


def _before_first_batch(job: Job, act: Callable[[], None]) -> None:
    """Acts once before the next batch: sources can be read by then."""

    def prepare(batch_id: int) -> None:
        job.before_batch.remove(prepare)
        act()

    job.before_batch.insert(0, prepare)


def changed_columns_of(session: ResumedSession) -> list[ChangedColumn]:
    """The columns that streams have no more, or with other types than in the checkpoint."""
    readers = partial(readers_of, session._job.queries)
    return changed_columns(session._job.manifest, session.catalog.streams.values(), readers)


def leave_out(session: ResumedSession, name: str) -> None:
    """Leaves a query of the checkpoint that is not declared out of the next manifest."""
    job = session._job
    assert job.manifest is not None
    job.apply(QueryLeftOut(without_query(job.manifest, name)))


def _read_again(session: ResumedSession) -> None:
    """Reads the checkpoint again if somebody else went on with it since, and plans the queries again."""
    job = session._job
    newest = max(job.store.batch_ids(), default=-1)
    if newest == (-1 if job.manifest is None else job.manifest.batch_id) and not job.commits.torn:
        return
    log.info("batch %d was done by another session since this one was opened, or its commit interrupted", newest)
    _plan_again(session)


def _plan_again(session: ResumedSession, instead: Mapping[str, Text] | None = None) -> None:
    """Plans all queries again by what the checkpoint has; some with another text `instead` of what is declared."""
    job = session._job
    job.apply(QueriesForgotten())
    session._open()
    known = {} if job.manifest is None else job.manifest.queries
    for name in session._left_out & known.keys():
        leave_out(session, name)
    for name, declared in list(session._declared.items()):
        if session.was_dropped(name, declared.text.cql):
            log.warning("query %s was dropped from the job by now, and stays so", name)
            del session._declared[name]
        else:
            session._add(replace(declared, text=(instead or {}).get(name, declared.text)))
            session._declared[name] = declared


def _fill_first(session: ResumedSession) -> None:
    """Lets old texts go on where those that take their places at the start may have to be filled first, all together.

    Sources are open before the first batch, so that it is decided then; what was asked for by then stays. Where a sink
    cannot have what the old texts have given, those that take their places do so at once.
    """
    job = session._job
    for name, declared in list(session._declared.items()):
        changing = name in job.state.verifications.by_query
        if declared.replace and name in job.queries and job.queries[name].cql != declared.text.cql and not changing:
            session._add(declared)  # it was on its way, with another one that has a third text by now
    runs = to_be_filled(session)
    texts = [session._declared[name].text for name in runs]
    if runs:
        _plan_again(session, {n: Text(n, q.cql, q.plan.query, None, q.emit_every, q.share) for n, q in runs.items()})
        if _are_taken(job):
            _before_first_batch(job, partial(_begin_changes, session, texts))
        else:
            _plan_again(session)


def _are_taken(job: Job) -> bool:
    """Whether sinks can have what they are due; gives it to them."""
    try:
        if not is_finished(job.manifest):
            job.deliver(job.manifest)
    except UntakenResults as error:
        log.warning("%s: texts that are declared take the places of others at once", error.message)
        return False
    return True


def to_be_filled(session: ResumedSession) -> dict[str, RunningQuery]:
    """The queries that go on answering, by the names of those that take their places once these have been filled.

    They are filled first if they start with more rows than a batch is to read, or with rows of sources, or if instants
    were left out otherwise.
    """
    job, begun = session._job, verdicts(session._job)
    if (before := job.manifest) is None:
        return {}
    old = {name: replaced_name(name, before.batch_id + 1) for name in begun}
    old = {name: aside for name, aside in old.items() if aside in before.queries}
    rows, most = sum(begun[name].given for name in old if hands_on(job.queries[name])), Pace.of(before, ()).rows
    rates = {name: session._declared[name].text.begins.rate for name in old}
    lacking = any(rate is not None and begun[name].complete != COMPLETE for name, rate in rates.items())
    goes_on = all(copy_name(n) not in before.queries and aside in job.queries for n, aside in old.items())
    first = (
        lacking
        or (most is not None and rows > most)
        or any(begun[name].gap and can_wait(before, aside, job.queries[name]) for name, aside in old.items())
    )
    return {name: job.queries[aside] for name, aside in old.items()} if goes_on and first else {}


def _begin_changes(session: ResumedSession, texts: Sequence[Text]) -> None:
    """Begins to fill texts that take places together, or puts them there at once.

    A migration of an old text that was asked for meanwhile ends first.
    """
    job, enrolment = session._job, session._enrolment
    changing, known = job.state.verifications.by_query, {} if job.manifest is None else job.manifest.queries
    texts = [text for text in texts if text.name in job.queries and text.name in known and text.name not in changing]
    if any(job.queries[text.name].migrates for text in texts):
        _before_first_batch(job, partial(_begin_changes, session, texts))
        return
    changes = Rewording(job, enrolment.adding, session.catalog).changes(texts) if texts else []
    if not is_paced(job, changes):
        for text in texts:
            session._add(session._declared[text.name])
        return
    enrolment.begin_to_fill(changes)
    names = ", ".join(text.name for text in texts)
    log.warning("queries %s are replaced once the new texts can go on from where the old ones end", names)
    for change in changes:
        log.warning("query %s: %s", change.text.name, change.verdict.behind_old())


def _go_on_undeclared(session: ResumedSession) -> None:
    """Goes on with the queries that the checkpoint runs and nobody has declared."""
    known = session._job.queries.keys() | session._left_out
    for name, entry in undeclared(session._job.manifest, known).items():
        verifications = session._job.state.verifications
        if is_rehearsal(name) and query_of_copy(name) not in verifications.by_query:
            continue  # it was cancelled since
        try:
            relation = parse(entry.cql, session.catalog)
            share = not is_rehearsal(name) or verifications.is_shadow(name)
            session._add(DeclaredQuery(Text(name, entry.cql, relation, None, entry.emit_every, share)))
        except MidstreamError as error:
            raise cannot_go_on(name, entry, error) from error
        if is_rehearsal(name):
            continue
        log.warning("query %s is no longer declared: it keeps running as in the checkpoint until it is dropped", name)


def _arrange(session: ResumedSession) -> None:
    """Settles how rows arrive from now on."""
    job, declarations = session._job, session._run.declarations
    job.streams = dict(enumerate(declarations))
    job.arriving = Layout.of({port: declaration.columns for port, declaration in job.streams.items()})
