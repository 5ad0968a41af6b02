"""A job as its checkpoint tells it, read only: neither Spark nor the job's program is needed, nor that it runs.

Everything here is what one manifest says: the newest, or any that is retained. This is the one place that turns a
manifest's content into the values that dashboards and commands show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.algebra.time import plural
from midstream.checkpoint.failures import MissingFile, NotRetained
from midstream.checkpoint.file_entries import rows_of
from midstream.checkpoint.files import Files
from midstream.checkpoint.inspect import tick
from midstream.checkpoint.lease import Holder, likely_holder
from midstream.checkpoint.ledger import StoredSink, sinks_by_query
from midstream.checkpoint.lists import dead_letters_of, results_of
from midstream.checkpoint.looked_up import looked_up
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.metrics import Rates, latencies, metrics_of, rates
from midstream.checkpoint.names import is_rehearsal
from midstream.checkpoint.outputs import DEAD_LETTER_COLUMNS, read_whole
from midstream.checkpoint.plotting import plot_batches
from midstream.checkpoint.records import StoredRequest
from midstream.checkpoint.request_log import waiting_requests
from midstream.checkpoint.retention import warn_of_removed_dead_letters
from midstream.checkpoint.stops import JobPhase, JobStanding, RunStop, newest_manifest, standing, stop_lines
from midstream.checkpoint.store import CheckpointStore, manifest_path
from midstream.checkpoint.stored import (
    StoredDecision,
    StoredMigration,
    StoredQuery,
    StoredStream,
)
from midstream.checkpoint.stored_queries import stored_query
from midstream.checkpoint.stored_results import newest_results, stored_results
from midstream.checkpoint.stored_slots import StoredSlots, stored_slots
from midstream.errors import query_in
from midstream.html import Records, escaped, section, table
from midstream.optimizer.sites.links import links_from_json, links_summary

RATES_OVER = 4096
"""How many batches rates are taken from, at most."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many bytes a checkpoint names: states, results and dead letters, and the manifest of the batch itself."""

    state: int
    results: int
    dead_letters: int
    commit: int

    @property
    def checkpoint(self) -> int:
        """All of it."""
        return self.state + self.results + self.dead_letters + self.commit


@dataclass(frozen=True)
class StoredJob:
    """A job as of one batch. `at` gives it as of another that is retained, `refresh` as of the newest.

    Results, dead letters and metrics are read from files when they are asked for. Once the batch is no longer retained
    some of these may have gone; to read them is then an error that says so, `NotRetained`.
    """

    store: CheckpointStore
    manifest: Manifest

    @staticmethod
    def open(checkpoint: str) -> StoredJob:
        """The job at a checkpoint's path or address, as of its newest batch."""
        store = CheckpointStore(checkpoint)
        return StoredJob(store, newest_manifest(store))

    def __repr__(self) -> str:
        return f"StoredJob({self.checkpoint!r}, batch={self.batch})"

    def _repr_html_(self) -> str:
        return job_html(self)

    def refresh(self) -> StoredJob:
        """The job as of the newest batch: itself, if there is no newer one."""
        batches = self.batches
        if not batches or batches[-1] == self.batch:
            return self
        newest = self.store.latest()
        return self if newest is None else StoredJob(self.store, newest)

    def at(self, batch: int) -> StoredJob:
        """The job as of a batch whose manifest is retained."""
        if batch not in self.batches:
            raise NotRetained(f"the manifest of batch {batch} is not retained", detail=self._kept())
        with self._retained(batch):
            return StoredJob(self.store, self.store.read(batch))

    def _kept(self) -> str:
        batches = self.batches
        return f"the checkpoint keeps batches {batches[0]} to {batches[-1]}" if batches else ""

    @contextmanager
    def _retained(self, batch: int) -> Iterator[None]:
        """Tells a file that went with its batch from one that is lost.

        Manifests go before the files that only they name, so a batch that is still retained has all of its files.
        """
        try:
            yield
        except MissingFile as error:
            if batch in self.batches:
                raise
            raise NotRetained(
                f"batch {batch} of {self.checkpoint} is no longer retained",
                detail=self._kept(),
                hint="open the job again, or refresh() it, to read as of its newest batch; a larger `retained` of the "
                "session keeps batches for longer",
            ) from error

    @property
    def checkpoint(self) -> str:
        """Where the checkpoint is."""
        return self.store.uri

    @property
    def batch(self) -> int:
        """The batch that the values are of."""
        return self.manifest.batch_id

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches whose manifests are retained, oldest first."""
        return tuple(self.store.batch_ids())

    @property
    def holder(self) -> Holder | None:
        """Who runs the job now, if anyone does."""
        return likely_holder(self.store.files)

    @property
    def running(self) -> bool:
        """Whether the job runs now, or is starting."""
        return self.standing.runs

    @property
    def phase(self) -> JobPhase:
        """What the job does now: it is running, starting, stopped, failed or finished."""
        return self.standing.phase

    @property
    def stopped(self) -> RunStop | None:
        """Why the job does not run: what ended its last run. While it runs, what did before any batch since."""
        return self.standing.stop

    @property
    def standing(self) -> JobStanding:
        """What the job does now, and why it stopped, whichever batch the other values are of."""
        newest = self.batches[-1:] == (self.batch,)
        return standing(self.store.files, self.manifest if newest else self.store.latest())

    @property
    def finished(self) -> bool:
        """Whether all streams were declared to have ended."""
        return self.manifest.settings.finished

    @property
    def name(self) -> str:
        """The job's name; the folder of its checkpoint if it has none."""
        return self.manifest.settings.job or self.checkpoint.rstrip("/").rpartition("/")[2]

    @looked_up
    def sizes(self) -> Sizes:
        """How large the checkpoint is, by what the manifest says of its files."""
        files, manifest = self.store.files, self.manifest
        with self._retained(self.batch):
            results = (file for query in manifest.outputs.results for file in results_of(files, manifest, query))
            return Sizes(
                sum(self.slots.bytes),
                sum(file.bytes or 0 for file in results),
                sum(file.bytes or 0 for file in dead_letters_of(files, manifest)),
                len(files.read(manifest_path(self.batch))),
            )

    @looked_up
    def latencies(self) -> Mapping[str, float | None]:
        """How many seconds by the clock each query takes from rows to complete results, as of the batch."""
        known = latencies(self.metrics(RATES_OVER), {name: query.streams for name, query in self.queries.items()})
        return {name: column[-1] if column else None for name, column in known.items()}

    @property
    def scheduling(self) -> str:
        """Which operator runs when."""
        return self.manifest.settings.scheduling

    @property
    def links(self) -> dict[str, str]:
        """The links between sites: those that are declared, and those that were changed since."""
        known = self.manifest.settings
        return links_summary({**links_from_json(known.declared_links), **links_from_json(known.links)})

    @property
    def last_batch(self) -> Mapping[str, Any] | None:
        """The row of the metrics table of the newest batch."""
        recent = self.manifest.outputs.recent
        return recent[-1] if recent else None

    @looked_up
    def queries(self) -> Mapping[str, StoredQuery]:
        """The queries by name, those that were replaced included."""
        known = self.manifest.queries.items()
        return {name: stored_query(self.manifest, name, entry) for name, entry in known if not is_rehearsal(name)}

    @looked_up
    def sinks(self) -> Mapping[str, Sequence[StoredSink]]:
        """The sinks that were ever given results, or are to be, by query: what each has had, and what it is owed."""
        with self._retained(self.batch):
            return sinks_by_query(self.store.files, self.manifest)

    def query(self, name: str) -> StoredQuery:
        """A query by its name."""
        return query_in(self.queries, name)

    @looked_up
    def streams(self) -> Mapping[str, StoredStream]:
        """The streams by name."""
        known = self.manifest.streams
        times = {stream: query.time for query in self.queries.values() for stream in query.streams}
        return {
            name: StoredStream(
                name,
                tick(known.registers.get(name)),
                tick(known.latest.get(name)),
                known.rows.get(name, 0),
                known.late.get(name, 0),
                known.unusable.get(name, 0),
                times.get(name, "integer"),
                known.lags.get(name),
            )
            for name in sorted({*known.registers, *known.latest, *known.rows})
        }

    @looked_up
    def slots(self) -> StoredSlots:
        """Which slot owns each partition group, and how much state it has."""
        return stored_slots(self.manifest)

    @property
    def requests(self) -> tuple[StoredRequest, ...]:
        """Requests to the job: those not accepted yet, then pending ones, then completed ones."""
        return (*waiting_requests(self.store.files, self.manifest), *self.manifest.asked.requests)

    @property
    def history(self) -> Records[StoredMigration]:
        """All changes of all queries, by the batch in which they began."""
        found = [m for query in self.queries.values() for m in (*query.history, query.migration) if m is not None]
        return Records(sorted(found, key=lambda m: -1 if m.start_batch is None else m.start_batch))

    @property
    def decisions(self) -> Records[StoredDecision]:
        """All decisions about all queries, by moment."""
        return Records(sorted((d for q in self.queries.values() for d in q.decisions), key=lambda d: d.moment))

    def metrics(self, batches: int | None = None) -> pa.Table:
        """The metrics table: a row per batch, oldest first; with `batches`, about that many from its end."""
        with self._retained(self.batch):
            return metrics_of(self.store.files, self.manifest, batches)

    def recent(self, batches: int = 60) -> tuple[list[int], list[float | None]]:
        """How many rows came with each of the last batches, and how many seconds each took."""
        rows = self.metrics(batches).to_pylist()[-batches:]
        took = [dict(row["seconds"]) for row in rows]
        return [sum(dict(row["rows"]).values()) for row in rows], [each.get("batch", each.get("job")) for each in took]

    def rates(self) -> Rates:
        """Rows and results a second over the last minutes."""
        return rates(self.metrics(RATES_OVER))

    def behind(self, query: str) -> int | None:
        """How far the complete results of a query are behind the newest row of its streams, in ticks, if it has any."""
        known = self.queries[query]
        newest = [s.latest for name, s in self.streams.items() if name in known.streams and s.latest is not None]
        return max(0, max(newest) - known.released) if newest and known.released is not None else None

    def newest_results(self, query: str, rows: int) -> pa.Table:
        """The released results of a query that start last, no more than `rows`, in order of their start."""
        with self._retained(self.batch):
            return newest_results(self.store.files, self.manifest, query, rows)

    def results(self, query: str) -> pa.Table:
        """The results of a query that were released as of the batch, in order of their start."""
        with self._retained(self.batch):
            return stored_results(self.store.files, self.manifest, query)

    def plot(self, query: str) -> Any:
        """Draws results, state and time of each batch of a query, with its migrations, as a figure of matplotlib."""
        known = self.query(query)
        history = (*known.history, *([] if known.migration is None else [known.migration]))
        return plot_batches(query, self.metrics(), history)

    @property
    def dead_letter_rows(self) -> int:
        """How many rows could not be used."""
        outputs = self.manifest.outputs
        return int((outputs.removed_dead_letters or {"rows": 0})["rows"]) + rows_of(outputs.dead_letters)

    def dead_letters(self, limit: int | None = None) -> pa.Table:
        """Rows that could not be used, with the reasons, newest batch first; no more than `limit`."""
        warn_of_removed_dead_letters(self.manifest)
        with self._retained(self.batch):
            found = pa.concat_tables(_dead_letters(self.store.files, self.manifest, limit))
        return found if limit is None else found.slice(0, limit)


def job_html(job: StoredJob) -> str:
    """A job's queries and streams as of its batch, as notebooks show them."""
    known = job.queries.values()
    now = job.standing
    queries = [[q.name, now.of_query(q.status), q.results, q.plan or "without joins", q.adaptivity.mode] for q in known]
    streams = [[s.name, s.rows, s.late, s.unusable] for s in job.streams.values()]
    return section(
        f"{job.name} at {job.checkpoint}: {now.phase}, batch {job.batch:,}, {plural(job.slots.count, 'slot')}",
        *(f"<p>{escaped(line)}</p>" for line in stop_lines(now)),
        table(["query", "status", "results", "plan", "adaptivity"], queries),
        table(["stream", "rows", "late", "unusable"], streams),
    )


def _dead_letters(files: Files, manifest: Manifest, limit: int | None) -> Iterator[pa.Table]:
    """Dead letters, newest batch first, until there are `limit`."""
    yield DEAD_LETTER_COLUMNS.empty_table()
    rows = 0
    for file in reversed(list(dead_letters_of(files, manifest))):
        if limit is not None and rows >= limit:
            return
        yield read_whole(files, file).cast(DEAD_LETTER_COLUMNS)
        rows += file.rows
