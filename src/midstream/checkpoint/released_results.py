"""How many results of a query are released, and how many are computed and wait until every register has passed them.

What users see counts released results, which is what `midstream results` shows and sinks are given.
"""

from __future__ import annotations

from functools import lru_cache

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.result_files import read_results
from midstream.operators.vectors import numbers_of


def released_results(files: Files, manifest: Manifest, query: str) -> int:
    """How many results have been released, those that retention has removed since included."""
    return manifest.account(query).results - waiting_results(files, manifest, query)


def waiting_results(files: Files, manifest: Manifest, query: str) -> int:
    """How many results wait. Files in lists have none, and only those that are released in part are read."""
    until = manifest.released.get(query, BEGINNING)
    return sum(_rows_from(files, file, until) for file in manifest.outputs.results.get(query, ()))


@lru_cache(maxsize=4_096)
def _rows_from(files: Files, file: ResultFile, until: int) -> int:
    """The results of a file that start at an instant or later; a file never changes."""
    if file.last_from < until:
        return 0
    if file.first_from >= until:
        return file.rows
    table = read_results(files, file)
    # Times follow what is selected, which may have the same names.
    place = max(table.schema.get_all_field_indices("ts" if table.schema.names[-1] == "ts" else "valid_from"))
    return int((numbers_of(table.column(place).combine_chunks()) >= until).sum())
