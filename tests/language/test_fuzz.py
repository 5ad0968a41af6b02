"""Whatever is written, the answer is a plan or one of our errors, never a traceback from a library."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.language.catalogs import CATALOG
from tests.language.golden import HERE, blocks

from midstream.algebra.plan import Relation
from midstream.errors import QueryError
from midstream.language import parse

VALID = [query for path in sorted((HERE / "plans").glob("*.txt")) for query, _ in blocks(path)]
WRONG = [query for path in sorted((HERE / "errors").glob("*.txt")) for query, _ in blocks(path)]

WORDS = (HERE / "words.txt").read_text().split()

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SOUP = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)
STARTED = st.lists(st.sampled_from(WORDS), max_size=25).map(lambda words: "SELECT k FROM A [NOW] " + " ".join(words))
VALUES = st.lists(st.sampled_from(WORDS), max_size=25).map(lambda words: f"SELECT {' '.join(words)} FROM A [NOW]")
FRAMES = st.sampled_from(["SELECT {} FROM A", "SELECT k FROM {}", "SELECT k FROM A [{}]", "SELECT '{}' FROM A"])


def check(query: str) -> None:
    try:
        plan = parse(query, CATALOG)
    except QueryError as error:
        assert str(error)
        assert error.position is None or 0 <= error.position <= len(query)
    else:
        assert isinstance(plan, Relation)
        assert str(plan)


@COMMON
@given(st.one_of(SOUP, STARTED, VALUES))
def test_random_words_are_answered(query: str) -> None:
    check(query)


@COMMON
@given(st.text(max_size=200))
def test_random_characters_are_answered(query: str) -> None:
    check(query)


@COMMON
@given(st.text(max_size=30), FRAMES)
def test_random_characters_inside_a_query_are_answered(text: str, frame: str) -> None:
    check(frame.replace("{}", text))


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A query of the golden files with parts removed, repeated, swapped or replaced by parts of others."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    tokens = chance.choice(VALID).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(tokens) + 1)
        other = chance.choice(VALID + WRONG).split() or [""]
        match chance.randrange(4):
            case 0:
                del tokens[place : place + chance.randint(1, 3)]
            case 1:
                tokens[place:place] = tokens[place : place + 5]
            case 2:
                tokens[place : place + 1] = [chance.choice(WORDS)]
            case _:
                start = chance.randrange(len(other))
                tokens[place:place] = other[start : start + chance.randint(1, 8)]
    return " ".join(tokens)


@COMMON
@given(mutations())
def test_damaged_queries_are_answered(query: str) -> None:
    check(query)


@COMMON
@given(st.sampled_from(VALID), st.data())
def test_queries_cut_off_anywhere_are_answered(query: str, data: st.DataObject) -> None:
    check(query[: data.draw(st.integers(0, len(query)))])
