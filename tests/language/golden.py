"""Golden files: queries, each with what the binder makes of it.

A file holds blocks separated by empty lines: a query, a line `=>`, and the plan or the error as text. Run this module
to write the files anew after a change that is meant, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.language.catalogs import CATALOG

from midstream.errors import QueryError
from midstream.language import parse

HERE = Path(__file__).parent
ARROW = "\n=>\n"


def blocks(path: Path) -> list[tuple[str, str]]:
    """The queries of a file and what is expected of them."""
    found = []
    for block in path.read_text().strip("\n").split("\n\n"):
        query, _, expected = block.partition(ARROW)
        found.append((query, expected))
    return found


def examples(folder: str) -> list[object]:
    """All blocks of a folder's files as parameters of a test, named by file and query."""
    return [
        pytest.param(query, expected, id=f"{path.stem}: {' '.join(query.split())}")
        for path in sorted((HERE / folder).glob("*.txt"))
        for query, expected in blocks(path)
    ]


def outcome(query: str) -> str:
    """The plan of a query, or its error, as text."""
    try:
        return str(parse(query, CATALOG))
    except QueryError as error:
        return str(error)


if __name__ == "__main__":
    for file in sorted(HERE.glob("*/*.txt")):
        texts = [query + ARROW + outcome(query) + "\n" for query, _ in blocks(file)]
        file.write_text("\n".join(texts))
