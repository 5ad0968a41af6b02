"""Looks at finite inputs as a running query would, without running it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from midstream.adaptation.observer import Observer
from midstream.algebra.declarations import Catalog
from midstream.algebra.physical import SourceNode, walk_physical
from midstream.algebra.plan import Relation
from midstream.algebra.statistics import Statistics
from midstream.cluster.local.embedded import StreamProgress, batches
from midstream.job.task.ingest import source_elements
from midstream.optimizer.plans import plan_query

BATCHES = 32
"""Into how many batches the inputs are cut: a rate takes several."""


def observe(query: Relation, inputs: Mapping[str, pa.Table], catalog: Catalog) -> Statistics:
    """What there is to know about the streams of a query, from all their rows."""
    observer = Observer(query, catalog.functions)
    sources = [n for n in walk_physical(plan_query(query).physical) if isinstance(n, SourceNode)]
    streams = {s.stream.name: StreamProgress(catalog.streams[s.stream.name]) for s in sources}
    rows = sum(inputs[name].num_rows for name in streams)
    for parts in batches(streams, inputs, max(1, rows // BATCHES)):
        for name, part in parts.items():
            usable, ticks = streams[name].accept(part)
            for source in sources:
                if source.stream.name == name and len(ticks):
                    observer.take(source.stream.alias, source_elements(source, usable, ticks), ticks)
        observer.end_batch()
    return observer.snapshot()
