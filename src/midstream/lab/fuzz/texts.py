"""Damaged texts of queries: each must give a plan or a `QueryError`, nothing else."""

from __future__ import annotations

from random import Random

from midstream.errors import QueryError
from midstream.inputs import catalog_of
from midstream.lab.fuzz.cases import Case
from midstream.language import parse

WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "JOIN", "LEFT", "FULL", "ON", "AND", "NOT", "EXISTS", "IN"),
    *("CASE", "WHEN", "THEN", "END", "AS", "WITH", "UNION", "EXCEPT", "ISTREAM", "FOLLOWED", "WITHIN", "ASOF"),
    *("RANGE", "ROWS", "HOP", "NOW", "UNBOUNDED", "PARTITION", "INTERVAL", "NULL"),
    *("[", "]", "(", ")", ",", ".", "*", "=", "<", "-", "--", ";", "1", "-1", "1e9", "A", "B", "k", "v", "ts"),
    *("'x'", "\x00", "é"),
)
MOST_DAMAGES = 5


def damaged(text: str, random: Random) -> str:
    """A text with words left out, repeated, replaced and made up."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(random.randint(1, MOST_DAMAGES)):
        place = random.randrange(len(tokens) + 1)
        match random.randrange(4):
            case 0:
                del tokens[place : place + random.randint(1, 3)]
            case 1:
                tokens[place:place] = tokens[place : place + 4]
            case 2:
                tokens[place : place + 1] = [random.choice(WORDS)]
            case _:
                tokens.insert(place, "".join(chr(random.randrange(1, 500)) for _ in range(random.randint(1, 6))))
    return " ".join(tokens)


def foreign_errors(case: Case, random: Random, count: int) -> list[str]:
    """What the parser answers to damaged texts of a case's query with anything but a plan or its own error."""
    catalog = catalog_of({name: table.schema for name, table in case.inputs.items()}, case.time)
    found = []
    for _ in range(count):
        text = damaged(case.query, random)
        try:
            parse(text, catalog)
        except QueryError:
            pass
        except Exception as error:
            found.append(f"{text!r} gives {type(error).__name__}: {error}")
    return found
