"""The judgement of a case: its snapshots are DuckDB's over what the windows hold, or the oracle's."""

from __future__ import annotations

import pyarrow as pa

from midstream.algebra.snapshots import snapshot_equal
from midstream.api import reference
from midstream.lab.fuzz.cases import Case
from midstream.lab.fuzz.database import answer, same_rows, snapshot
from midstream.lab.fuzz.window_contents import content

MOST_INSTANTS = 6


def difference(case: Case, found: pa.Table) -> str | None:
    """How results differ from what they should be; None if they do not. The oracle answers what SQL cannot say."""
    if case.sql is not None:
        return difference_from_database(case, found)
    equal = snapshot_equal(found, reference(case.query, case.inputs, time=case.time))
    return None if equal else str(equal)


def difference_from_database(case: Case, found: pa.Table) -> str | None:
    """How snapshots differ from DuckDB's at some instants; None if they do not."""
    assert case.sql is not None
    for instant in instants(case, found):
        contents = {leaf.alias: content(leaf, case.inputs[leaf.stream.name], instant) for leaf in case.leaves}
        expected, given = answer(case.sql, contents), snapshot(found, instant)
        if not same_rows(expected, given):
            return f"at {instant} the database says {expected}, and we say {given}"
    return None


def instants(case: Case, found: pa.Table) -> list[int]:
    """Some instants at which something happens or has just happened, spread over all of them."""
    times = [table.column(case.time) for table in case.inputs.values()]
    moments: set[int] = set()
    for column in [*times, found.column("valid_from"), found.column("valid_to")]:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        moments.update(moment for moment in column.cast(pa.int64()).to_pylist() if moment is not None)
    near = sorted({m + shift for m in moments for shift in (-1, 0)})
    step = max(1, len(near) // MOST_INSTANTS)
    return near[step // 2 :: step]
