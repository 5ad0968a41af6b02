"""What is watched of a query: the columns of its streams, and what its operators did."""

from __future__ import annotations

from typing import Any

from midstream.adaptation.observer import Observer
from midstream.adaptation.summary import operators_summary, statistics_summary
from midstream.algebra.expressions import columns_of
from midstream.algebra.statistics import OperatorStatistics, Statistics
from midstream.job.queries.running_query import RunningQuery
from midstream.job.task.samples import OperatorReport


def sources_of(query: RunningQuery, observer: Observer) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Per alias the stream, and the columns that the query reads of it or that are interesting about it."""
    wanted = observer.wanted
    found = {}
    for source in query.sources:
        alias = source.stream.alias
        terms = [t for terms in wanted.keys.get(alias, {}).values() for t in terms]
        terms += [condition for _, condition in wanted.selections.get(alias, ())]
        terms += [condition for _, condition, owners in wanted.pairs if alias in owners]
        names = set(source.schema.names).union(*(columns_of(term) for term in terms))
        own = (name.removeprefix(f"{alias}.") for name in sorted(names) if name.startswith(f"{alias}."))
        found[alias] = source.stream.name, tuple(own)
    return found


def summary_of(statistics: Statistics) -> dict[str, Any]:
    """What is known, as plain values."""
    return {**statistics_summary(statistics), "operators": operators_summary(statistics), "moment": statistics.moment}


def per_tick(report: OperatorReport, ticks: int) -> OperatorStatistics:
    """What an operator did per tick, in so many."""
    work = report.work
    return OperatorStatistics(
        report.label,
        work.taken / ticks,
        work.given / ticks,
        work.probed / ticks,
        work.inserted / ticks,
        work.matched / ticks,
        report.seconds / report.rows if report.rows else None,
        report.purging / report.purges if report.purges else None,
        report.state_rows,
        report.state_bytes,
    )
