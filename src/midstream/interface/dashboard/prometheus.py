"""A job's figures for Prometheus: what the newest manifest counts, in the exposition format.

Counters are those of the checkpoint, so they outlive restarts of the job and of this server. Times of streams are given
in seconds where a stream's ticks are timestamps, and as they are where they are integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from midstream.checkpoint.reading import StoredJob
from midstream.checkpoint.stops import Reason

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MICROSECONDS = 1e6


class JobCollector(Collector):
    """Collects the figures of a job as of one batch."""

    def __init__(self, job: StoredJob) -> None:
        self.job = job

    def collect(self) -> Iterator[Metric]:
        """All figures."""
        yield from self._of_the_job()
        yield from self._of_streams()
        yield from self._of_queries()
        yield from self._of_the_last_batch()

    def _of_the_job(self) -> Iterator[Metric]:
        job = self.job
        yield _gauge("midstream_running", "Whether somebody runs the job (1) or not (0).", float(job.running))
        stop = job.stopped
        failed = stop is not None and stop.reason is not Reason.ASKED
        yield _by("phase", "midstream_phase", "Which phase the job is in (1).", {str(job.phase): 1.0})
        yield _gauge(
            "midstream_failed", "Whether an error or a death ended the last run (1) or not (0).", float(failed)
        )
        if stop is not None:
            yield _gauge("midstream_stopped_at_seconds", "When the last run ended, since 1970.", stop.at)
        yield _gauge("midstream_last_batch", "The number of the newest batch.", job.batch)
        yield _gauge("midstream_slots", "How many slots share the work of a batch.", job.slots.count)
        yield _gauge("midstream_retained_manifests", "How many manifests are retained.", len(job.batches))
        yield CounterMetricFamily("midstream_dead_letters", "Rows that could not be used.", value=job.dead_letter_rows)
        yield _by("slot", "midstream_slot_state_bytes", "Bytes of state by slot.", dict(enumerate(job.slots.bytes)))

    def _of_streams(self) -> Iterator[Metric]:
        streams = self.job.streams
        for kind, words in _WORDS.items():
            counted = {name: getattr(stream, kind) for name, stream in streams.items()}
            yield _by("stream", f"midstream_stream_{kind}", f"{words} by stream.", counted, CounterMetricFamily)
        scale = MICROSECONDS if self._timestamps else 1.0
        registers = {name: s.register / scale for name, s in streams.items() if s.register is not None}
        yield _by("stream", "midstream_stream_register", "Nothing older than this will come.", registers)
        lags = {name: float(stream.lag) for name, stream in streams.items() if stream.lag is not None}
        yield _by("stream", "midstream_stream_lag_rows", "Rows that wait in the stream's source.", lags)

    @property
    def _timestamps(self) -> bool:
        return any(query.time == "timestamp" for query in self.job.queries.values())

    def _of_queries(self) -> Iterator[Metric]:
        queries = self.job.queries
        results = {name: query.results for name, query in queries.items()}
        yield _by("query", "midstream_query_results", "Results by query.", results, CounterMetricFamily)
        past = {name: sum(change.status == "done" for change in query.history) for name, query in queries.items()}
        words = "Ended migrations that the checkpoint remembers."
        yield _by("query", "midstream_query_migrations_remembered", words, past, CounterMetricFamily)
        moving = {name: float(query.migration is not None) for name, query in queries.items()}
        yield _by("query", "midstream_query_migrating", "Whether a query changes its plan (1) or not (0).", moving)
        scale = {name: MICROSECONDS if query.time == "timestamp" else 1.0 for name, query in queries.items()}
        released = {name: q.released / scale[name] for name, q in queries.items() if q.released is not None}
        yield _by("query", "midstream_query_released", "Results are complete before this.", released)
        rows = {name: query.state_rows for name, query in queries.items()}
        size = {name: query.state_bytes for name, query in queries.items()}
        yield _by("query", "midstream_query_state_rows", "Rows of state by query.", rows)
        yield _by("query", "midstream_query_state_bytes", "Bytes of state by query.", size)

    def _of_the_last_batch(self) -> Iterator[Metric]:
        table = self.job.metrics(1)
        newest = table.slice(max(0, table.num_rows - 1)).to_pylist()
        seconds = dict(newest[-1]["seconds"]) if newest else {}
        yield _by("part", "midstream_batch_part_seconds", "Seconds of the newest batch by part.", seconds)
        if newest and newest[-1]["at"] is not None:
            at = newest[-1]["at"].timestamp()
            yield _gauge("midstream_last_batch_timestamp_seconds", "When the newest batch was done.", at)


_WORDS = {"rows": "Rows that came", "late": "Rows that came too late", "unusable": "Rows that cannot be used"}


def exposition(job: StoredJob) -> bytes:
    """All figures of a job as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobCollector(job))
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by(
    label: str,
    name: str,
    text: str,
    values: Mapping[str, float] | Mapping[int, float],
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    family = kind(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family
