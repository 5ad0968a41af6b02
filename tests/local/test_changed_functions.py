"""Functions of users whose code changes between two starts: noticed, refused, or accepted and remembered."""

from __future__ import annotations

import functools
import json
import marshal
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.local import function_texts
from tests.local.function_texts import NOTICED, UNNOTICED, WRITTEN, defined, module

import midstream as ms
from midstream.algebra.code_fingerprints import VERSION, differ, fingerprint

SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.int64())])

PLAIN = "def f(x): return pc.add(x, 1)"
EQUAL = [
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


@pytest.mark.parametrize("text", EQUAL)
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


@pytest.mark.parametrize(("one", "two"), NOTICED.values(), ids=NOTICED)
def test_a_change_is_noticed(one: str, two: str) -> None:
    assert fingerprint(defined(one)) == fingerprint(defined(one))
    assert differ(fingerprint(defined(one)), fingerprint(defined(two)))


@pytest.mark.parametrize(("one", "two"), UNNOTICED.values(), ids=UNNOTICED)
def test_a_change_is_not_noticed_where_the_documentation_says_so(one: str, two: str) -> None:
    assert fingerprint(defined(one)) == fingerprint(defined(two))


@pytest.mark.parametrize("text", function_texts.SAME.values(), ids=function_texts.SAME)
def test_what_has_no_stable_description_does_not_change_a_fingerprint(text: str) -> None:
    assert fingerprint(defined(text)) == fingerprint(defined(text))


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_what_a_function_writes_to_is_not_code(text: str) -> None:
    function = defined(text)
    before = fingerprint(function)
    function(1)
    function(2)
    assert fingerprint(function) == before == fingerprint(defined(text))


def test_fingerprints_are_the_same_in_every_process() -> None:
    texts = [*function_texts.SAME.values(), *WRITTEN.values(), *(text for pair in NOTICED.values() for text in pair)]
    program = (
        "import json, sys; from tests.local.function_texts import defined\n"
        "from midstream.algebra.code_fingerprints import fingerprint\n"
        "print(json.dumps([fingerprint(defined(text)) for text in json.load(sys.stdin)]))"
    )

    def in_a_process(seed: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        run = [sys.executable, "-c", program]
        done = subprocess.run(run, input=json.dumps(texts), env=environment, capture_output=True, text=True, check=True)
        found: list[str] = json.loads(done.stdout)
        return found

    one, two = in_a_process("1"), in_a_process("2")
    assert [text for text, a, b in zip(texts, one, two, strict=True) if a != b] == []
    assert one == [fingerprint(defined(text)) for text in texts]


def test_code_read_from_a_compiled_file_is_the_same() -> None:
    text = "def g(x): return x in (1, 2, 'a')\ndef f(x): return g(x) or x in (1, 2, 'a') or x in {'b', 'c'}"
    names: dict[str, Any] = {"__name__": "users"}
    exec(marshal.loads(marshal.dumps(compile(text, "users.py", "exec"))), names)
    assert fingerprint(names["f"]) == fingerprint(defined(text))


def test_modules_of_the_own_package_count_by_what_is_referred_to() -> None:
    called = "def f(x): return helpers.g(x)"
    one, two, more = (
        fingerprint(defined(called, helpers=module(text)))
        for text in ("def g(x): return x", "def g(x): return -x", "def g(x): return x\ndef other(x): return x")
    )
    assert one == more != two
    foreign = [module(f"def g(x): return {result}", "library") for result in ("x", "-x")]
    assert len({fingerprint(defined(called, helpers=library)) for library in foreign}) == 1
    within = [module("", "users") for _ in range(2)]
    for package, result in zip(within, ("x", "-x"), strict=True):
        vars(package).update(helpers=module(f"def g(x): return {result}"), users=package)
    nested = [fingerprint(defined("def f(x): return users.helpers.g(x)", users=package)) for package in within]
    assert nested[0] != nested[1]


def test_docstrings_may_come_and_go() -> None:
    bare = "def f(x):\n    def g(y): return None if y else 1\n    g(x)"
    explained = 'def f(x):\n    "Why."\n    def g(y):\n        "How."\n        return None if y else 1\n    g(x)'
    assert fingerprint(defined(bare)) == fingerprint(defined(explained))


def test_code_that_cannot_be_described_needs_a_version(tmp_path: Path) -> None:
    text = "class K:\n    __getstate__ = lambda self: 1 / 0\nk = K()\ndef f(x): return k"
    with pytest.raises(ms.JobError, match="cannot be described") as refused:
        fingerprint(defined(text))
    assert "version" in str(refused.value.hint)


def test_another_version_of_python_says_nothing() -> None:
    assert not differ("2.7:abc", f"{VERSION}:def")


def opened(folder: Path, text: str, version: str | None = None, **options: Any) -> Any:
    functions = [ms.ScalarFunction("f", defined(text), pa.int64(), version)]
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
    with opened(tmp_path, EQUAL[0]) as session:
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


def test_a_version_alone_says_whether_a_function_has_changed(tmp_path: Path) -> None:
    for first, text in ((0, PLAIN), (5, OTHER[0])):
        with opened(tmp_path, text, "1") as session:
            session.start()
            push(session, first)
    with opened(tmp_path, PLAIN, "2") as session, pytest.raises(ms.JobError, match="query calls calls f"):
        session.start()


def test_changed_functions_are_refused_or_accepted_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(ms.InputError, match="refused or accepted"):
        opened(tmp_path, PLAIN, changed_functions="ignore")
