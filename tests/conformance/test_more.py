"""Whole suites of other systems, and TPC-H as its authors wrote it but for windows and the order of rows."""

from __future__ import annotations

import pytest
from tests.conformance.cases import available
from tests.conformance.more import SUITES, SuiteCase, suite, with_windows

import midstream as ms

pytestmark = pytest.mark.skipif(not available(), reason="the cases are kept beside the repository, and are not here")

NOT_YET = {
    ("asof", "duckdb integers USING"): "ASOF JOIN takes ON",
    ("asof", "duckdb integers right"): "expected JOIN",
}
"""What is refused, with words of the refusal."""

CASES = [case for name in SUITES for case in suite(name).values() if case.query] if available() else []
TPCH = list(suite("tpch").values()) if available() else []


def named(case: SuiteCase) -> str:
    return f"{case.suite}: {case.id}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_case_gives_what_is_expected_or_is_refused_by_name(case: SuiteCase) -> None:
    assert case.query is not None
    reason = NOT_YET.get((case.suite, case.id))
    if reason is not None:
        with pytest.raises(ms.QueryError, match=reason):
            ms.run(case.query, case.streams, time=case.time)
        return
    assert not (difference := case.difference(ms.run(case.query, case.streams, time=case.time))), difference


@pytest.mark.parametrize("case", TPCH, ids=named)
def test_a_query_of_tpch_runs_as_written_but_for_windows_and_order(case: SuiteCase) -> None:
    assert not (difference := case.difference(ms.run(with_windows(case), case.streams, time=case.time))), difference


def test_a_difference_is_noticed() -> None:
    case = suite("tpch")["q1"]
    result = ms.run(with_windows(case), case.streams, time=case.time)
    assert case.difference(result.slice(1))
