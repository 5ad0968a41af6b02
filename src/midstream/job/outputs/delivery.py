"""What sinks are given.

A sink has had exactly the results of its query that start before an instant. Each delivery are the results from there
up to what is released by now, out of the results table: so a sink that failed, or that the job ran without for a time,
is given everything once it is back, and nothing else has to be remembered. The results of a query that was replaced or
dropped never reach a sink of another one. What can no longer be delivered is said by name.

A plain sink is called with results and the number of a batch. One with a method `deliver` is told instead whose results
they are, and from which instant to which. One with a method `last` is asked what it has had, and given
the rest (`connectors.sink`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import pyarrow as pa

from midstream.algebra.time import BEGINNING, INFINITY, instant
from midstream.checkpoint.files import Files
from midstream.checkpoint.ledger import Delivered, Ledger
from midstream.checkpoint.manifest import Manifest, name_of_identity
from midstream.checkpoint.refused import RefusedRow, keep_refused
from midstream.checkpoint.retention import kept_from
from midstream.checkpoint.stored_results import newest_instant, stored_results
from midstream.connectors.fitting import require_types
from midstream.connectors.sink import Delivery, RefusedResult, arrow, deliver, require_taken
from midstream.connectors.sink import Sink as ConnectedSink

log = logging.getLogger(__name__)

Released = Callable[[Manifest, str, int], tuple[Any, pa.Schema]]
"""Reads the results of a query that a manifest has released since an instant; gives them with their columns."""


class Delivering(Protocol):
    """A sink that is told whose results it is given."""

    def deliver(self, results: Any, delivery: Delivery) -> None:
        """Takes results; what it has had already it may be given again after a crash."""


Sink = Callable[[Any, int], None] | Delivering | ConnectedSink


@dataclass(slots=True)
class Deliveries:
    """The sinks of a job's queries, and the record of what they have had, once it was opened."""

    sinks: dict[str, list[Sink]] = field(default_factory=dict)
    ledger: Ledger | None = None
    has_none: bool = False
    """Whether the checkpoint was seen to have no record: then it has one only once this job keeps one."""

    def close(self) -> None:
        """Forgets the record: somebody else may go on with it."""
        self.ledger, self.has_none = None, False

    def open(self, files: Files, manifest: Manifest | None, epoch: int) -> Ledger | None:
        """The record of a checkpoint, taken up where its newest manifest is; None where nobody needs one.

        `epoch` is the number of the lease under which it is written.
        """
        if self.ledger is None and not self.sinks and not self.has_none:
            self.has_none = Ledger.stored(files) is None
        if self.ledger is None and (self.sinks or not self.has_none):
            self.ledger = Ledger.open(files, epoch)
            self._warn_of_copy(self.ledger)
            if manifest is not None:
                self._settle(self.ledger, manifest)
            self._begin(self.ledger, manifest)
            self.ledger.save()
        return self.ledger

    def add(self, query: str, sink: Sink, manifest: Manifest | None) -> None:
        """Adds a sink; if the job is under way already, it is given what is released from now on."""
        self.sinks.setdefault(query, []).append(sink)
        if self.ledger is not None:
            self._begin(self.ledger, manifest)

    def remove(self, query: str, manifest: Manifest | None) -> None:
        """Removes the sinks of a query that is dropped; says which results they have not had."""
        for record in self._records(query) if manifest is not None else ():
            assert manifest is not None
            if record.until < _released(manifest, record):
                _warn_of_loss(record, manifest, query, "the query is dropped")
        self.sinks.pop(query, None)

    def replaced(self, query: str, files: Files, manifest: Manifest) -> None:
        """Says which results of a query that is replaced its sinks have not had."""
        for record in self._records(query):
            _warn_of_replaced(record, files, manifest)

    def require_taken(self, query: str, schema: pa.Schema, first: pa.Schema | None = None) -> None:
        """Refuses results of a query that one of its sinks cannot take, by its form or by what its target has had.

        Before them the target may be given `first` what has other columns.
        """
        known = {} if self.ledger is None else self.ledger.sinks
        due = {column.name: str(column.type) for column in first or ()}
        for of, name, sink in self._declared():
            if of == query:
                had = known[of, name].columns if (of, name) in known else {}
                before = {**due, **had} if _keeps_types(sink) else {}
                require_taken(sink, query, schema, before)
                require_types(name, query, before, schema)

    def deliver(
        self, files: Files, manifest: Manifest | None, released: Released, may_write: Callable[[], None], epoch: int
    ) -> None:
        """Gives sinks what a manifest has released and they have not had; what they had is recorded.

        `may_write` fails if somebody else keeps the record by now.
        """
        ledger = self.open(files, manifest, epoch)
        if ledger is None:
            return
        read = cache(lambda query, since, until: released(_up_to(known, query, until), query, since))
        known = manifest or Manifest("", -1)
        try:
            for query, name, sink in self._declared():
                identity = known.account(query).identity
                if query not in known.queries or identity is None:
                    continue
                record = ledger.sinks[query, name]
                if not record.identity:
                    record = replace(record, identity=identity)
                elif record.identity != identity:
                    record = Delivered(query, name, identity, BEGINNING, BEGINNING, record.columns)
                for until, batch_id in _portions(record, known):
                    since = _kept(record, known, until)
                    newest = newest_instant(known, until)
                    record = _give(sink, record, ledger, read(query, since, until), (since, until, batch_id, newest))
                    ledger.put(record)
        finally:
            may_write()
            ledger.save()

    def owes(self, files: Files, manifest: Manifest, epoch: int) -> bool:
        """Whether a sink has not had all that a manifest has released."""
        ledger = self.open(files, manifest, epoch)
        keys = [(query, name) for query, name, _ in self._declared()]
        known = [] if ledger is None else [ledger.sinks[key] for key in keys if key in ledger.sinks]
        return any(record.identity == "" or record.until < _released(manifest, record) for record in known)

    def _declared(self) -> Iterator[tuple[str, str, Sink]]:
        """The sinks with their queries and names: a sink's own, or its place among those of its query without one."""
        for query, sinks in self.sinks.items():
            seen: dict[str, int] = {}
            for sink in sinks:
                own = str(getattr(sink, "name", "function"))
                number = seen[own] = seen.get(own, 0) + 1
                yield query, own if number == 1 else f"{own} ({number})", sink

    def _records(self, query: str) -> list[Delivered]:
        known = {} if self.ledger is None else self.ledger.sinks
        return [record for (of, _), record in known.items() if of == query]

    def _settle(self, ledger: Ledger, manifest: Manifest) -> None:
        """Takes up the record where the checkpoint is: says what sinks cannot be given any more, or not now."""
        declared = {(query, name) for query, name, _ in self._declared()}
        for key, record in list(ledger.sinks.items()):
            identity = manifest.account(record.query).identity
            if record.identity not in ("", identity):
                _warn_of_replaced(record, ledger.files, manifest)
                if name_of_identity(manifest, record.identity) is None:
                    _warn_of_dropped(record)
                    del ledger.sinks[key]
                if record.query in manifest.queries:  # it has had nothing yet of the query that has the name now
                    ledger.put(Delivered(*key, identity or "", BEGINNING, BEGINNING, record.columns))
            elif key not in declared and record.until < _released(manifest, record):
                ledger.put(_offered(record, manifest))
                log.warning(
                    "sink %s of query %s is not declared: it has had results that start before %s, and is given what "
                    "was released since once it is declared again",
                    *(record.sink, record.query, _instant(manifest, record.query, record.until)),
                )

    def _begin(self, ledger: Ledger, manifest: Manifest | None) -> None:
        """Begins the record of new sinks: of a query that has results, they are given later ones.

        A query that no manifest has yet has no identity. Its sinks are recorded all the same, before its first batch,
        so that after a crash they are not taken for sinks that were declared later.
        """
        for query, name, _ in self._declared():
            if (query, name) in ledger.sinks:
                continue
            if manifest is None or query not in manifest.queries:
                ledger.put(Delivered(query, name, "", BEGINNING, BEGINNING))
                continue
            now = manifest.released.get(query, BEGINNING)
            ledger.put(Delivered(query, name, manifest.account(query).identity or "", now, now))
            shown = _instant(manifest, query, now)
            log.info("sink %s of query %s is new: it is given results that start at %s or later", name, query, shown)

    def _warn_of_copy(self, ledger: Ledger) -> None:
        if ledger.copied_from is None:
            return
        place, origin = ledger.copied_from.place, ledger.origin
        if origin.history == origin.identity:
            log.warning(
                "the checkpoint %s is a copy of the one at %s, which is still there: results of the two are written "
                "apart, also into folders that they share",
                *(ledger.files.uri, place),
            )
            for record in list(ledger.sinks.values()):  # what sinks have had is of the other history
                ledger.put(replace(record, filled_until=None))
            return
        log.warning(
            "the checkpoint %s was restored from a copy, or moved: results that folders have had since the copy was "
            "made are compared, and not written again",
            ledger.files.uri,
        )
        for query, name, sink in self._declared():
            if not is_told(sink):
                log.warning(
                    "sink %s of query %s is a plain function: it is given results again that it had since the copy was "
                    "made, and numbers of batches that stood for other results; use a sink with a method deliver",
                    *(name, query),
                )


def _portions(record: Delivered, manifest: Manifest) -> list[tuple[int, int]]:
    """Up to which instants, and with which batches, results are due: first what a sink may have had in part."""
    now = _released(manifest, record)
    due = [(record.offered_until, record.offered_batch), (now, manifest.batch_id)]
    found, reached = [], record.until
    for until, batch_id in due:
        if until is not None and batch_id is not None and reached < until <= now:
            found.append((until, batch_id))
            reached = until
    return found


def _give(
    sink: Any, record: Delivered, ledger: Ledger, known: tuple[Any, pa.Schema], span: tuple[int, int, int, int]
) -> Delivered:
    """Gives a sink results that it is due; gives what it has had then."""
    (results, schema), (since, until, batch_id, newest) = known, span
    # A target keeps the columns of texts that were replaced.
    columns = {**record.columns, **{column.name: str(column.type) for column in schema}}
    aside = _Aside(ledger.files, record.sink)
    if is_told(sink):
        if _keeps_types(sink):
            require_types(record.sink, record.query, record.columns, schema)
        results = arrow(results) if hasattr(sink, "last") and not hasattr(sink, "deliver") else results
        origin = ledger.origin
        whose = (record.query, record.identity, origin.identity, origin.history)
        delivery = Delivery(*whose, batch_id, since, until, schema, record.filled_until, newest, aside.keep)
        sink.deliver(results, delivery) if hasattr(sink, "deliver") else deliver(sink, results, delivery)
    else:
        sink(results, batch_id)
    has_rows = isinstance(results, pa.Table) and results.num_rows > 0 and not aside.all_of_them
    filled = until if has_rows else record.filled_until
    done = replace(record, until=until, columns=columns, batch_id=batch_id, filled_until=filled)
    return replace(done, offered_until=None, offered_batch=None)


@dataclass(slots=True)
class _Aside:
    """Keeps the rows of a delivery that a sink's target refuses, in the checkpoint."""

    files: Files
    sink: str
    all_of_them: bool = False

    def keep(self, delivery: Delivery, refused: Sequence[RefusedResult], all_of_them: bool) -> None:
        rows = [RefusedRow(delivery.query, self.sink, delivery.batch_id, one.reason, one.row) for one in refused]
        keep_refused(self.files, rows, f"{delivery.identity}/{delivery.since}")
        self.all_of_them = all_of_them
        log.warning(
            "sink %s does not take %d of the results of query %s, which midstream dead %s shows: %s",
            *(self.sink, len(rows), delivery.query, self.files.uri, refused[0].reason),
        )


def _keeps_types(sink: Any) -> bool:
    """Whether a sink's target has columns of a type."""
    return is_told(sink) and bool(getattr(sink, "keeps_types", hasattr(sink, "last")))


def is_told(sink: Any) -> bool:
    """Whether a sink is told whose results it is given, so that it can know what it has had."""
    return hasattr(sink, "deliver") or hasattr(sink, "last")


def _kept(record: Delivered, manifest: Manifest, until: int) -> int:
    """From where on results are there that a sink is due; warns of those that are gone."""
    kept = min(kept_from(manifest, record.query), until)
    if kept <= record.until:
        return record.until
    domain = (manifest, record.query)
    log.warning(
        "results of query %s that start from %s to before %s never reach sink %s: retention removed them while it was "
        "away",
        *(record.query, _instant(*domain, record.until), _instant(*domain, kept), record.sink),
    )
    return kept


def _offered(record: Delivered, manifest: Manifest) -> Delivered:
    """The record of a sink that may have had what the newest batch released."""
    if record.offered_until is not None:
        return record
    return replace(record, offered_until=_released(manifest, record), offered_batch=manifest.batch_id)


def _released(manifest: Manifest, record: Delivered) -> int:
    """Up to which instant the query of a record has released results."""
    own = record.identity in ("", manifest.account(record.query).identity)  # "": it has had nothing, as far as is known
    return manifest.released.get(record.query, BEGINNING) if own else BEGINNING


def _up_to(manifest: Manifest, query: str, until: int) -> Manifest:
    """The manifest as if it had released results of a query up to an instant."""
    return replace(manifest, released={**manifest.released, query: until})


def _warn_of_replaced(record: Delivered, files: Files, manifest: Manifest) -> None:
    """Says which results of a query that another has taken the name of its sink has not had."""
    name = name_of_identity(manifest, record.identity)
    if name is None or name == record.query or record.until >= manifest.released.get(name, BEGINNING):
        return
    rows = stored_results(files, manifest, name, record.until).num_rows
    if rows:
        how = f"it was replaced; {rows:,} in all, which midstream results {files.uri} {name} shows"
        _warn_of_loss(record, manifest, name, how)


def _warn_of_dropped(record: Delivered) -> None:
    if record.offered_until is not None and record.until < record.offered_until:
        log.warning(
            "results of query %s that start from %d on, up to batch %d, never reached sink %s: the query was dropped",
            *(record.query, record.until, record.offered_batch, record.sink),
        )


def _warn_of_loss(record: Delivered, manifest: Manifest, name: str, why: str) -> None:
    since, until = (_instant(manifest, name, at) for at in (record.until, manifest.released.get(name, BEGINNING)))
    text = "results of query %s that start from %s to before %s never reached sink %s: %s"
    log.warning(text, record.query, since, until, record.sink, why)


def _instant(manifest: Manifest, query: str, ticks: int) -> str:
    """An instant as people read it."""
    if ticks in (BEGINNING, INFINITY):
        return "the beginning" if ticks == BEGINNING else "the end"
    return instant(ticks, manifest.domain(query))
