"""Queries that read other queries of a job: the text of each stands alone, with what it reads defined by WITH.

So a job keeps no order among its queries, any of them can be dropped or changed, and what several compute alike is
shared as everything else is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from midstream.errors import QueryError
from midstream.language.binding import match_name
from midstream.language.text import DIALECT, read


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
