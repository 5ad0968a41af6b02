"""Names of files: they tell the batch that made them, and no two attempts ever share one.

A manifest names only the files of the attempts that won; who collects rubbish reads the batch off a name and leaves
alone what a batch in progress has made.
"""

from __future__ import annotations

import re

from midstream.checkpoint.process import this_process

STATE, RESULTS, DEAD_LETTERS, LISTS, METRICS = "state", "results", "dead_letters", "lists", "metrics"
DATA_FOLDERS = (STATE, RESULTS, DEAD_LETTERS, LISTS, METRICS)
"""The folders that hold what manifests name."""

REHEARSED = "~verify"
"""What is added to a query's name for a copy of it by which a migration is verified."""

LANE = "~"
"""What stands between a query's name and the number of one of its lanes."""

SHARED_RESULTS = f"{RESULTS}/_shared"
"""Where the result files are that several queries share, in a folder for each schema."""

_SUFFIXES = {STATE: ".pack", RESULTS: ".parquet", DEAD_LETTERS: ".parquet", LISTS: ".list", METRICS: ".parquet"}
_ODD = re.compile(r"[^\w-]")
_BATCH = re.compile(r"\.?(\d{12,})[-.]")
_FOLDERS = (STATE, rf"{RESULTS}/(?:_shared/)?[^/]+", DEAD_LETTERS, LISTS, METRICS)
_ISSUED = re.compile(
    rf"(?:{'|'.join(_FOLDERS)})/(?P<unfinished>\.)?(?P<batch>\d{{12,}})-\d{{2,}}-\d{{4,}}-[0-9a-f]{{12}}"
    r"\.(?:pack|parquet|list)(?(unfinished)\.[0-9a-f]{8}\.tmp)"
)


def name_for(kind: str, batch_id: int, slot: int, stage: int, suffix: str | None = None) -> str:
    """A new name; `kind` is a folder, such as `state` or `results/hot`.

    >>> name_for("state", 7, slot=2, stage=0)  # doctest: +ELLIPSIS
    'state/000000000007-00-0002-....pack'
    >>> name_for("results/a query/../x", 7, slot=2, stage=0)  # doctest: +ELLIPSIS
    'results/a_query/__/x/000000000007-00-0002-....parquet'
    """
    ending = _SUFFIXES.get(kind.partition("/")[0], "") if suffix is None else suffix
    folder = "/".join(_ODD.sub("_", part) or "_" for part in kind.split("/"))
    return f"{folder}/{batch_id:012d}-{stage:02d}-{slot:04d}-{this_process().token(6)}{ending}"


def issued(path: str) -> int | None:
    """The batch that a file was made for, if the path is one that `name_for` gives, or that of an unfinished file.

    What lies elsewhere, deeper or under another name is somebody else's, and is never collected.

    >>> issued("results/hot/000000000007-00-0002-0123456789ab.parquet")
    7
    >>> issued("results/hot/000000000007-hot-0123456789ab.parquet"), issued("results/000000000007-00-0002-ab.parquet")
    (None, None)
    """
    found = _ISSUED.fullmatch(path)
    return int(found["batch"]) if found else None


def replaced_name(query: str, batch_id: int) -> str:
    """The name that a query has since another took its place with a batch."""
    return f"{query}@{batch_id}"


def copy_name(query: str) -> str:
    """The name under which a copy of a query migrates."""
    return f"{query}{REHEARSED}"


def query_of_copy(copy: str) -> str:
    """The query of which a name is that of a copy.

    >>> query_of_copy(copy_name("hot"))
    'hot'
    """
    return copy.removesuffix(REHEARSED)


def lane_name(query: str, number: int) -> str:
    """The name of a query's lane in reports and manifests; the first has the query's own.

    >>> lane_name("hot", 0), lane_name("hot", 2)
    ('hot', 'hot~2')
    """
    return f"{query}{LANE}{number}" if number else query


def query_of(lane: str) -> str:
    """The query that a lane is of.

    >>> query_of("hot~2"), query_of("hot")
    ('hot', 'hot')
    """
    name, found, number = lane.rpartition(LANE)
    return name if found and number.isdigit() else lane


def renamed_lane(lane: str, query: str) -> str:
    """The same lane of another query.

    >>> renamed_lane("hot~2", "cold")
    'cold~2'
    """
    return query + lane.removeprefix(query_of(lane))


def is_rehearsal(query: str) -> bool:
    """Whether a name is that of a copy by which a migration is verified."""
    return query.endswith(REHEARSED)


def batch_of(path: str) -> int | None:
    """The batch that made a file, or an unfinished one.

    >>> batch_of("state/000000000007-00-0002-abc.pack"), batch_of("state/notes.txt")
    (7, None)
    """
    found = _BATCH.match(path, path.rfind("/") + 1)
    return int(found[1]) if found else None
