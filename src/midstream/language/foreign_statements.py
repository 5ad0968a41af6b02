"""Statements of other systems as one query: the last one, behind those that it may read.

What a statement creates is a part of WITH for those behind it, and what is inserted into that is united with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby

from sqlglot.tokenizer_core import TokenType

from midstream.language.foreign_ksqldb import of_ksqldb
from midstream.language.foreign_tokens import beside, edited, text_of
from midstream.language.text import tokens_of

MADE = re.compile(
    r"""(?:CREATE\s.*?\b(?:STREAM|TABLE|VIEW|SINK)\s+(?:IF\s+NOT\s+EXISTS\s+)?|INSERT\s+INTO\s+)
    ("[^"]+"|`[^`]+`|[\w.]+).*?(?:\bAS\s+(?=\(|SELECT\b|WITH\b|VALUES\b)|\b(?=SELECT\b|WITH\s+\w+\s+AS\b))""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""What stands before a query whose rows go somewhere."""

PLACED = re.compile(
    r"\s+PARTITION\s+BY\b.*?(?=\s+EMIT\b|\s+LIMIT\b|\s*$)|\s+EMIT\s+(?:CHANGES|FINAL)\b", re.IGNORECASE | re.DOTALL
)
"""What ksqlDB says behind a query of where its rows go, and when."""

DECLARED = re.compile(r"CREATE\s.*?\b(?:STREAM|TABLE)\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\s*(?=\()", re.IGNORECASE)

KEYED = re.compile(r"CREATE\s.*?TABLE\s+(\w+)\s*\(.*?(\w+)\s+\w+\s+PRIMARY\s+KEY", re.IGNORECASE | re.DOTALL)


def one_query(text: str, dialect: str, times: Mapping[str, str]) -> str:
    """The last query of some statements, behind macros and the queries that it may read."""
    queries, keys, macros = defaultdict[str, list[str]](list), dict[str, str](), ""
    columns = dict[str, list[str]]()
    for ends, group in groupby(tokens_of(text), lambda token: token.token_type == TokenType.SEMICOLON):
        statement = "" if ends else text_of(text, list(group))
        made, word = MADE.match(statement), statement[:6].upper().split(maxsplit=1)
        if made is None and re.match(r"CREATE\s.*?\b(MACRO|FUNCTION)\b", statement, re.IGNORECASE):
            macros += f"{statement}; "
        elif made is not None or (word and word[0] not in ("CREATE", "SET", "DROP")):
            query = statement[made.end() :] if made else statement
            if dialect == "ksqldb":
                query = PLACED.sub("", query)
                query = edited(query, list(of_ksqldb(query, times, keys, columns)))
            queries[made[1] if made else ""].append(query)
        elif (declared := DECLARED.match(statement)) is not None:
            columns[declared[1].casefold()] = _columns(statement[declared.end() :])
            if (keyed := KEYED.match(statement)) is not None:
                keys[keyed[1].casefold()] = keyed[2]
    *before, (_, last) = [(name, " UNION ALL ".join(parts)) for name, parts in queries.items()] or [("", text)]
    parts = ", ".join(f"{name} AS ({query})" for name, query in before)
    begun = last[4:] if last[:5].upper() == "WITH " else ""
    return f"{macros}WITH {parts}{',' if begun else ' '}{begun or last}" if parts else macros + last


def _columns(text: str) -> list[str]:
    """The columns that stand in parentheses, each with its type."""
    level = beside(tokens := tokens_of(text), tokens[1].start)
    return [
        text_of(text, [token])
        for before, token in zip([tokens[0], *level], level, strict=False)
        if before.token_type in (TokenType.L_PAREN, TokenType.COMMA)
    ]
