"""Random queries of several stages over A, B and C: joins by one or two keys, below what meets by another key."""

from __future__ import annotations

import random

WINDOWS = ("RANGE 20", "RANGE 20", "RANGE 9", "HOP 20, 5", "UNBOUNDED")
TOPS = (
    ("A.v AS a, C.v AS c", ""),
    ("DISTINCT A.v, C.k", ""),
    ("A.v, count(*) AS n", " GROUP BY A.v"),
    ("C.v AS v, sum(B.v) AS n, max(A.k) AS m", " GROUP BY C.v"),
    ("count(*) AS n", ""),
)


def draw_query(chance: random.Random, one_key: bool = False) -> str:
    """A query; with `one_key` all joins are on one key, so that they are one fragment whatever their order."""
    windows = [chance.choice(WINDOWS) for _ in "ABC"]
    streams = [f"{name} [{window}]" for name, window in zip("ABC", windows, strict=True)]
    columns, rest = chance.choice(TOPS[1:] if one_key else TOPS)
    second = "B.k = C.k" if one_key else chance.choice(["B.v = C.v", "B.v = C.v", "B.k = C.k", "A.v = C.v"])
    where = f"A.k = B.k AND {second}" + chance.choice(["", "", " AND A.v > 4", " AND B.v <> C.v"])
    query = f"SELECT {columns} FROM {', '.join(streams)} WHERE {where}{rest}"
    if not one_key and "UNBOUNDED" not in query and chance.random() < 0.2:
        query = query.replace(f"{streams[0]}, {streams[1]}, ", f"{streams[0]} LEFT JOIN {streams[1]} ON A.k = B.k, ")
    return query
