"""Other systems' cases through the oracle and through the engine, whatever the size of batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.conformance import arroyo, flink, nexmark, odysseus, risingwave, spark
from tests.conformance.asked import Asked
from tests.conformance.cases import FAMILIES, Case, available, load, names_of

import midstream as ms

ASKED: dict[tuple[str, str], Asked] = {
    (family, name): asked
    for family, module in (
        ("flink", flink),
        ("spark", spark),
        ("risingwave", risingwave),
        ("arroyo", arroyo),
        ("odysseus", odysseus),
        ("nexmark", nexmark),
    )
    for name, asked in module.CASES.items()
}
INEXPRESSIBLE = {("spark", name): reason for name, reason in spark.INEXPRESSIBLE.items()}
BATCHES = (100, 25, 1)
"""Into how many batches a case is cut, at most."""

DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"

pytestmark = pytest.mark.skipif(not available(), reason="the cases are kept beside the repository, and are not here")

every_case = pytest.mark.parametrize(("family", "name"), list(ASKED), ids=["/".join(key) for key in ASKED])


def inputs_of(case: Case, asked: Asked, drop_late: bool) -> dict[str, pa.Table]:
    """The streams of a case, with a clock if the query has one."""
    tables = case.tables(asked.integer_time, drop_late)
    if asked.clock:
        last = max(table["ts"].to_pylist()[-1] for table in tables.values())
        tables["clock"] = pa.table({"ts": list(range(0, last + 6000, 1000))})
    return tables


@every_case
def test_the_oracle_gives_what_is_expected(family: str, name: str) -> None:
    case, asked = load(family, name), ASKED[family, name]
    result = ms.reference(asked.cql, inputs_of(case, asked, drop_late=True))
    assert not (difference := asked.compare.difference(result, case.expected)), difference


@pytest.mark.parametrize("batches", BATCHES)
@every_case
def test_the_engine_gives_what_is_expected(family: str, name: str, batches: int) -> None:
    case, asked = load(family, name), ASKED[family, name]
    inputs = inputs_of(case, asked, drop_late=asked.lateness is None)
    batch_rows = -(-sum(table.num_rows for table in inputs.values()) // batches)
    if asked.lateness is None:
        result = ms.run(asked.cql, inputs, batch_rows=batch_rows)
    else:
        with pytest.warns(ms.DeadLetterWarning):
            full = ms.run(asked.cql, inputs, batch_rows=batch_rows, lateness=asked.lateness, full=True)
        result = full.table
        assert dead_rows(full.dead_letters) == {
            stream: sorted(inputs[stream].take(rows).to_pylist(), key=str) for stream, rows in case.late.items()
        }
    assert not (difference := asked.compare.difference(result, case.expected)), difference
    starts = result.column("valid_from" if "valid_from" in result.column_names else "ts").to_pylist()
    assert starts == sorted(starts)


def dead_rows(dead: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """All dead letters by stream."""
    found: dict[str, list[dict[str, Any]]] = {}
    for letters in dead:
        assert letters.reason == "late"
        found.setdefault(letters.stream, []).extend(letters.rows.to_pylist())
    return {stream: sorted(rows, key=str) for stream, rows in found.items()}


@pytest.mark.parametrize("family", [*FAMILIES, "nexmark"])
def test_every_case_is_asked_or_has_a_reason_not_to_be(family: str) -> None:
    known = {name for key, name in [*ASKED, *INEXPRESSIBLE] if key == family}
    assert known == set(names_of(family))


def test_the_documentation_names_every_case_that_is_different() -> None:
    text = DOCUMENT.read_text()
    different = [name for (_, name), asked in ASKED.items() if asked.note] + [name for _, name in INEXPRESSIBLE]
    assert [name for name in different if f"`{name}`" not in text] == []


def test_comparisons_notice_a_difference() -> None:
    case = load("flink", "windowjoin_testLeftJoin")
    asked = ASKED["flink", "windowjoin_testLeftJoin"]
    result = ms.reference(asked.cql, inputs_of(case, asked, drop_late=True))
    assert asked.compare.difference(result, case.expected[1:])
    assert asked.compare.difference(result.slice(1), case.expected)
