"""What other systems call by a name is answered by its meaning here, not by the name that is spelled most alike."""

from __future__ import annotations

import pyarrow as pa
import pytest

import midstream as ms
from midstream.algebra.elsewhere import INSTEAD
from midstream.algebra.functions import AGGREGATE, SCALAR, SYNONYMS

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


def refusal(cql: str) -> ms.QueryError:
    with pytest.raises(ms.QueryError) as raised:
        ms.plans(cql, {"A": SCHEMA})
    return raised.value


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        ("window(ts, 10)", "[TUMBLE"),
        ("hop(ts, 10)", "[HOP"),
        ("session_window(ts, 10)", "PARTITION BY k SESSION"),
        ("top(3)", "LIMIT n"),
        ("random()", "repeated"),
        ("now()", "time column"),
        ("PROCTIME()", "time column"),
    ],
)
def test_a_function_of_another_system_is_answered_with_what_is_written_here(call, instead):
    error = refusal(f"SELECT {call} AS x FROM A [RANGE 5]")
    assert "there is no function" in error.message and instead in (error.hint or "")


def test_only_names_that_are_spelled_almost_alike_are_suggested():
    assert refusal("SELECT coalesc(k, 0) AS x FROM A [NOW]").hint == "did you mean coalesce?"
    assert "did you mean" not in (refusal("SELECT shadow(k) AS x FROM A [NOW]").hint or "")


def test_nothing_that_the_language_has_is_said_to_be_elsewhere():
    assert not set(INSTEAD) & {*SCALAR, *AGGREGATE, *SYNONYMS}
