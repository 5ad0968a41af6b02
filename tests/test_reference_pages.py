"""The reference pages are in step with the program, and their examples give what they show."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

import pytest
from scripts.reference.error_examples import EXAMPLES
from scripts.reference.errors import error_classes
from scripts.reference.pages import PAGES, REFERENCE
from typer.testing import CliRunner

import midstream as ms
from midstream.algebra.borrowed import BORROWED
from midstream.algebra.borrowed_aggregates import BORROWED_AGGREGATES
from midstream.algebra.borrowed_forms import QUANTIFIED
from midstream.algebra.functions import AGGREGATE, SCALAR, SYNONYMS, UNWRITTEN
from midstream.checkpoint.metrics import SCHEMA
from midstream.interface.cli import app
from midstream.interface.jobs.tracing import PARTS
from midstream.language.nested import ORDERINGS
from midstream.migration.registry import STRATEGIES

ROOT = Path(__file__).parent.parent
AS_OPERATORS = (
    {"subscript", "field", "joined", "trim_of", "ltrim_of", "rtrim_of", "named_struct", "quotient", "as_seconds"}
    | {
        "list_places",
        "list_field",
        "list_or_null",
        "list_or_empty",
        "packed",
        "nested_greatest",
        "nested_least",
        "as_type",
        "plus",
        "minus",
        "moved",
        "raised",
        "glob",
        "moved_by_months",
        "times",
        "divided",
        "list_within",
        "json_has_key",
        "json_at",
        "json_text_at",
        "json_pairs",
        "json_pairs_text",
        "ceil_to",
        "floor_to",
        "date_trunc_of",
        "regexp_matches_by",
        "regexp_matches_all",
        "json_without",
        "generate_series_by_months",
        "range_by_months",
    }
    | {f"{part}_of_amount" for part in ("epoch", "day", "hour", "minute", "second")}
    | {"regexp_matches_any_case"}
    | {f"{word}_{name}" for word in ("any", "all") for name in QUANTIFIED.values()}
    | {"nested_equal", *ORDERINGS.values()}
    | {"as_time", "as_text", "as_uuid", "as_json", "as_list", "as_interval"}
    | {*("bitwise_and", "bitwise_or", "bitwise_not", "integer_division", "quotient")}
)
FUNCTIONS = (REFERENCE / "functions.md").read_text()
METRICS = (REFERENCE / "metrics.md").read_text()
EXAMPLE = re.compile(r"^\| `(\w+)\([^|]*\| [^|]+ \| `([^|]+)` \| `([^|]*)` \|$", re.MULTILINE)
ROWS = [{"ts": 1, "x": 1, "y": 2.5}, {"ts": 1, "x": 4, "y": 2.5}, {"ts": 1, "x": None, "y": 0.5}]


def test_the_reference_has_exactly_the_functions_of_the_language() -> None:
    named = {name for name, _, _ in EXAMPLE.findall(FUNCTIONS)}
    scalar = {name for name in SCALAR if name.isidentifier()} - UNWRITTEN
    assert named == scalar | set(AGGREGATE) | {"if"}
    others = re.findall(r"^\| `(\w+)` \| `([\w%]+)` \|$", FUNCTIONS.partition("## Other names")[2], re.MULTILINE)
    assert dict(others) == dict(SYNONYMS)
    listed = FUNCTIONS.partition("## As in DuckDB")[2].partition("Written as operators")[0]
    missing = {name for name in BORROWED if f"`{name}`" not in listed}
    assert missing == AS_OPERATORS
    aggregates = FUNCTIONS.partition("## Aggregates as in DuckDB")[2].partition("\n## ")[0]
    unwritten = {name for name in BORROWED_AGGREGATES if f"`{name}`" not in aggregates}
    assert unwritten == {"last_known", "only_value", *(f"nested_{name}" for name in ("min", "max", "sum", "avg"))}


@pytest.mark.parametrize(("example", "shown"), [(e, r) for _, e, r in EXAMPLE.findall(FUNCTIONS)])
def test_an_example_gives_what_is_shown(example, shown) -> None:
    rows = ROWS if example in FUNCTIONS.partition("## Aggregates")[2] else [{"ts": 1}]
    found = ms.run(f"SELECT {example} AS r FROM s [NOW]", {"s": rows}).column("r").to_pylist()
    assert ["NULL" if value is None else str(value) for value in found] == [shown]


def test_the_reference_has_exactly_the_columns_of_the_metrics_table() -> None:
    section = METRICS.partition("## The metrics table")[2].partition("\n## ")[0]
    columns, _, parts = section.partition("| part of `seconds` |")
    assert set(re.findall(r"^\| `(\w+)` \|", columns, re.MULTILINE)) == set(SCHEMA.names)
    assert set(PARTS) <= set(re.findall(r"^\| `(\w+)` \|", parts, re.MULTILINE))


def test_the_reference_has_exactly_the_metrics_of_prometheus(tmp_path, monkeypatch) -> None:
    pytest.importorskip("prometheus_client")
    from midstream.interface.dashboard.prometheus import exposition

    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.checkpoint", "flights"))
    job = tmp_path / "examples" / "orders.toml"
    assert CliRunner().invoke(app, ["run", str(job), "--on", "local", "--available"]).exit_code == 0
    text = exposition(ms.open(tmp_path / "examples" / "orders.checkpoint")).decode()
    section = METRICS.partition("## Prometheus")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(midstream_\w+)` \| (\w+) \|", section, re.MULTILINE)
    assert sorted(documented) == sorted(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_written_from_the_program_is_in_step(name) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run python -m scripts.reference"


def test_every_error_has_an_example_with_a_cause_and_a_remedy() -> None:
    kinds = {kind.__name__ for kind in error_classes()} - {"MidstreamError"}
    assert kinds == set(EXAMPLES)


def test_every_public_name_is_in_the_reference() -> None:
    text = (REFERENCE / "python-api.md").read_text() + (REFERENCE / "errors.md").read_text()
    assert [name for name in ms.__all__ if name != "__version__" and f"`ms.{name}`" not in text] == []


def test_the_files_that_the_map_of_papers_names_exist() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    named = set(re.findall(r"`((?!src)[a-z_]+/[\w/]+(?:\.py|/))`", text))
    assert len(named) > 40
    assert sorted(path for path in named if not (ROOT / "src" / "midstream" / path).exists()) == []


def test_the_map_of_papers_names_every_strategy() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    homes = {Path(inspect.getfile(type(strategy))).name for strategy in STRATEGIES.values()} - {"auto.py"}
    assert sorted(home for home in homes if f"`migration/{home}`" not in text) == []
