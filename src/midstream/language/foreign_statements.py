"""Statements of other systems as one query: the last one, behind those that it may read.

What a statement creates is a part of WITH for those behind it, and what is inserted into that is united with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby

from sqlglot.tokenizer_core import TokenType

from midstream.algebra.foreign_functions import DECLARED, MADE, PLACED, VERSIONED
from midstream.language.foreign_ksqldb import of_ksqldb
from midstream.language.foreign_tokens import calls, edited, text_of
from midstream.language.text import tokens_of


def one_query(text: str, dialect: str, times: Mapping[str, str]) -> str:
    """The last query of some statements, behind macros and the queries that it may read."""
    queries, keys, macros = defaultdict[str, list[str]](list), dict[str, str](), ""
    columns, kept = defaultdict[str, list[str]](list), dict[str, str]()
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
            queries[made[1] if made else ""].append(
                VERSIONED.sub(lambda m: m[0] + kept.get(m[1].casefold(), ""), query)
            )
        elif (declared := DECLARED.match(statement)) is not None:
            stream, opened = declared[1].casefold(), 0
            for part in (part for call in calls(statement, (declared[1].upper(),)) for part in call.arguments):
                name, written = text_of(statement, part[:1]), text_of(statement, part)
                columns[stream] += [] if opened else [name]
                opened += written.count("<") - written.count(">")
                if (key := re.search(r"\bPRIMARY\s+KEY\b(?:\s*\((.*?)\))?", written, re.IGNORECASE)) is not None:
                    keys[stream] = key[1] or name
            kept[stream] = f" [PARTITION BY {keys[stream]} ROWS 1]" if stream in keys else " [UNBOUNDED]"
    *before, (_, last) = [(name, " UNION ALL ".join(parts)) for name, parts in queries.items()] or [("", text)]
    parts = ", ".join(f"{name} AS ({query})" for name, query in before)
    begun = last[4:] if last[:5].upper() == "WITH " else ""
    return f"{macros}WITH {parts}{',' if begun else ' '}{begun or last}" if parts else macros + last
