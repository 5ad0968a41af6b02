"""Queries that read other queries of a job: the text of each stands alone, with what it reads defined by WITH.

So a job keeps no order among its queries, any of them can be dropped or changed, and what several compute alike is
shared as everything else is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.errors import QueryError
from midstream.language.binding import match_name
from midstream.language.text import DIALECT, read

DELETED = ("d", "delete", "deleted", "-d", "remove", "tombstone")
BEFORE = ("-u", "update_before", "update_preimage")
"""What changes are called that delete a row, and those that repeat a row as it was before another replaced it."""


def with_queries(query: str, queries: Mapping[str, str], streams: Collection[str] = ()) -> str:
    """The text of a query with those that it reads defined by WITH; streams come first where names are equal.

    >>> with_queries("SELECT n FROM totals [NOW]", {"totals": "SELECT count(*) AS n FROM A [NOW]"})
    'WITH "totals" AS (SELECT count(*) AS n FROM A [NOW]\\n) SELECT n FROM totals [NOW]'
    """
    return _standing_alone(query, queries, streams, ()) if queries else query


def redefined(query: str, name: str, old: str, new: str) -> str:
    """The text of a query that reads another one, once that one has another text; any other text as it is.

    >>> high = with_queries("SELECT n FROM totals [NOW]", {"totals": "SELECT v AS n FROM A [NOW]"})
    >>> redefined(high, "totals", "SELECT v AS n FROM A [NOW]", "SELECT w AS n FROM A [NOW]")
    'WITH "totals" AS (SELECT w AS n FROM A [NOW]\\n) SELECT n FROM totals [NOW]'
    """
    return query.replace(_definition(name, old), _definition(name, new))


def changelog_view(stream: str, key: Sequence[str], op: str | None = None) -> str:
    """The table that a stream of changes describes: the newest row of each key that has not been deleted."""
    by = ", ".join(f'"{name}"' for name in key)
    if op is None:
        return f'SELECT * FROM "{stream}" [PARTITION BY {by} ROWS 1]'
    before, gone = (", ".join(f"'{word}'" for word in words) for words in (BEFORE, DELETED))
    kind = f"lower(coalesce(\"{op}\", ''))"
    changes = f'(SELECT * FROM "{stream}" WHERE {kind} NOT IN ({before})) [PARTITION BY {by} ROWS 1]'
    return f'SELECT * EXCLUDE ("{op}") FROM {changes} AS newest WHERE {kind} NOT IN ({gone})'


def _standing_alone(query: str, queries: Mapping[str, str], streams: Collection[str], reading: tuple[str, ...]) -> str:
    read_here = [name for name in _read_by(query, queries, streams) if name not in reading]
    if not read_here:
        return query
    defined = ", ".join(
        _definition(name, _standing_alone(queries[name], queries, streams, (*reading, name))) for name in read_here
    )
    first = next(iter(DIALECT.tokenize(query)))
    if first.token_type == TokenType.WITH:
        return f"{query[: first.end + 1]} {defined},{query[first.end + 1 :]}"
    return f"WITH {defined} {query}"


def _definition(name: str, query: str) -> str:
    return f'"{name}" AS ({query.rstrip(" ;")}\n)'


def _read_by(query: str, queries: Mapping[str, str], streams: Collection[str]) -> list[str]:
    """The queries that a text names in FROM; of a text that cannot be read, none."""
    try:
        tree = read(query)
    except QueryError:
        return []
    own = [cte.args["alias"].this.name for cte in tree.find_all(exp.CTE)]
    tables = [table.this for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    found = [match_name(name, queries) for name in tables if not match_name(name, [*own, *streams])]
    return list(dict.fromkeys(name for names in found for name in names[:1]))
