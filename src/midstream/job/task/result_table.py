"""Results as users see them: the selected columns with their validity, or with a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from midstream.algebra.plan import ToStream
from midstream.algebra.time import INFINITY, TimeDomain
from midstream.operators.elements import Elements, Ticks
from midstream.operators.vectors import column_of
from midstream.optimizer.plans import Plan


def result_table(plan: Plan, elements: Elements | None) -> pa.Table:
    """Released results as a table: payload and `valid_from`, `valid_to`, or `ts` for streams."""
    schema, domain = plan.query.schema, plan.query.domain
    columns = [] if elements is None else list(elements.columns.columns)
    if elements is None:
        columns = [pa.array([], f.type) for f in schema]
    none = np.empty(0, np.int64)
    start, end = (none, none) if elements is None else (elements.valid_from, elements.valid_to)
    if isinstance(plan.query, ToStream):
        names, times = ["ts"], [_times(start, domain)]
    else:
        names, times = ["valid_from", "valid_to"], [_times(start, domain), _times(end, domain)]
    return pa.table([*columns, *times], names=[*schema.names, *names])


def _times(ticks: Ticks, domain: TimeDomain) -> pa.Array:
    for_ever = ticks == INFINITY
    valid = ~for_ever if for_ever.any() else None
    return column_of(np.where(for_ever, 0, ticks) if valid is not None else ticks, domain.output_type, valid)
