"""The results table in this process: the result files that a manifest names, as far as they are released."""

from __future__ import annotations

import pyarrow as pa

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.stored_results import stored_results
from midstream.job.task.results import result_table
from midstream.optimizer.plans import Plan


def results_of_query(files: Files, manifest: Manifest, query: str, plan: Plan, since: int = BEGINNING) -> pa.Table:
    """The released results that start at or after `since`, ordered by their start, then by all columns."""
    empty = result_table(plan, None)
    if query not in manifest.queries:
        return empty
    table = stored_results(files, manifest, query, since)
    return table.cast(empty.schema) if table.column_names else empty


def start_column(plan: Plan) -> str:
    """The column that says when a result starts."""
    names = result_table(plan, None).column_names
    return "ts" if names[-1] == "ts" and len(names) == len(plan.schema) + 1 else "valid_from"
