"""Functions of users whose code changes between two starts: noticed, refused, or accepted and remembered."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import midstream as ms
from midstream.algebra.code_fingerprints import VERSION, differ, fingerprint

SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.int64())])


def defined(text: str, **names: Any) -> Any:
    """The function f of a text, as a module of its own would have it."""
    module = {"pc": pc, "pa": pa, "__name__": "users", **names}
    exec(text, module)
    return module["f"]


PLAIN = "def f(x): return pc.add(x, 1)"
SAME = [
    "# a comment\n\n\ndef f(x):\n    return pc.add(x, 1)",
    "def f(y): return pc.add(y, 1)",
    "def f(x: pa.Array): return pc.add(x, 1)",
]
OTHER = [
    "def f(x): return pc.add(x, 2)",
    "def f(x): return pc.subtract(x, 1)",
    "def f(x, by=1): return pc.add(x, 1)",
    "def f(x): return pc.add(x, 1.0)",
    "def f(x): return [pc.add(part, 1) for part in x]",
]


@pytest.mark.parametrize("text", SAME)
def test_the_same_code_has_the_same_fingerprint(text: str) -> None:
    assert fingerprint(defined(text)) == fingerprint(defined(PLAIN))


def test_docstrings_do_not_matter() -> None:
    one, two = (defined(f'def f(x):\n    "{doc}"\n    return pc.add(x, 1)') for doc in ("Adds.", "Adds one."))
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize("text", OTHER)
def test_other_code_has_another_fingerprint(text: str) -> None:
    assert differ(fingerprint(defined(PLAIN)), fingerprint(defined(text)))


def test_closures_helpers_classes_and_partials_count() -> None:
    def adding(by: int) -> Any:
        return lambda x: pc.add(x, by)

    helped = "def g(x): return {0}\ndef f(x): return g(x)"
    kinds = "class f:\n    def initialize(self): return {0}\n    def iterate(self, s, x): return s"
    pairs = [
        (adding(1), adding(2)),
        (defined(helped.format("x")), defined(helped.format("-x"))),
        (defined("BY = 1\ndef f(x): return x + BY"), defined("BY = 2\ndef f(x): return x + BY")),
        (defined(kinds.format(0)), defined(kinds.format(1))),
        (functools.partial(adding, 1), functools.partial(adding, 2)),
    ]
    for one, two in pairs:
        assert fingerprint(one) == fingerprint(one) != fingerprint(two)
    assert fingerprint(adding(1)) == fingerprint(adding(1))


def test_another_version_of_python_says_nothing() -> None:
    assert not differ("2.7:abc", f"{VERSION}:def")


def opened(folder: Path, text: str, **options: Any) -> Any:
    functions = [ms.ScalarFunction("f", defined(text), pa.int64())]
    session = ms.Session(checkpoint=str(folder), on="local", slots=1, functions=functions, **options)
    session.stream("A", SCHEMA)
    session.query("calls", "SELECT f(v) AS w FROM A [RANGE 10]")
    session.query("other", "SELECT v FROM A [RANGE 10]")
    return session


def push(session: Any, first: int) -> None:
    times = list(range(first, first + 5))
    session.push("A", pa.table({"ts": times, "v": times}, schema=SCHEMA))


def test_changed_code_is_refused_or_accepted_and_remembered(tmp_path: Path) -> None:
    with opened(tmp_path, PLAIN) as session:
        session.start()
        push(session, 0)
    with opened(tmp_path, SAME[0]) as session:
        session.start()
        push(session, 5)
    with opened(tmp_path, OTHER[0]) as session, pytest.raises(ms.JobError, match="query calls calls f") as refused:
        session.start()
    assert "changed_functions" in str(refused.value.hint)
    with opened(tmp_path, OTHER[0], changed_functions="accept") as session:
        session.start()
        push(session, 10)
    stored = ms.open(tmp_path)
    assert [m.status for m in stored.queries["calls"].history] == ["functions changed"]
    assert stored.queries["calls"].history[-1].trigger == "accepted other code of f"
    assert not stored.queries["other"].history
    with opened(tmp_path, OTHER[0]) as session:
        session.start()
        push(session, 15)


def test_changed_functions_are_refused_or_accepted_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(ms.InputError, match="refused or accepted"):
        opened(tmp_path, PLAIN, changed_functions="ignore")
