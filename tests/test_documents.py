"""What README and docs show runs: Python, commands, queries and job files; and the reference is complete.

A block that needs Spark, a network or a job that runs elsewhere stands below a line `<!-- no-run -->`. README and the
tutorial are followed in `test_documented_commands.py`, by processes.
"""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.documents import BLOCK, FOLLOWED, ROOT
from typer.testing import CliRunner

import midstream as ms
from midstream.algebra.declarations import Catalog, StreamDeclaration
from midstream.connectors.registry import SINKS, SOURCES, Registry
from midstream.interface.cli import app
from midstream.interface.cli.app import COMMANDS, command_named
from midstream.interface.cli.endings import CLUSTER_ERROR, INTERNAL_ERROR, USER_ERROR
from midstream.interface.jobs.job_file import job_of
from midstream.interface.jobs.keys import FUNCTION_KEYS, JOB_KEYS, POLICY_KEYS, QUERY_KEYS, STREAM_KEYS, TABLE_KEYS
from midstream.language import parse

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

TIME = pa.timestamp("us", "UTC")
LANES = pa.schema([("id", pa.int64()), ("lane", pa.int64()), ("ts", pa.int64())])
CATALOG = Catalog(
    {name: StreamDeclaration(name, LANES, "ts") for name in ("cases", "products")}
    | {
        name: StreamDeclaration(name, pa.schema([*columns, ("ts", TIME)]), "ts")
        for name, columns in {
            "orders": [("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())],
            "payments": [("order_id", pa.int64()), ("paid", pa.float64())],
            "rates": [("currency", pa.string()), ("rate", pa.float64())],
        }.items()
    }
)
"""The streams of the pages on execution, and on Spark and Flink."""

KEYS = [{"ts": ts, "k": ts % 3, "v": ts} for ts in range(500)]


def blocks(page: Path, *kinds: str) -> list[tuple[str, str]]:
    """The kind and text of the blocks of a page that run."""
    return [(kind, text) for mark, kind, _, text in BLOCK.findall(page.read_text()) if kind in kinds and not mark]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def names_of_pages() -> dict[str, Any]:
    """What pages use without making it: a query, its streams, and rows to push."""
    query = "SELECT A.k FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
    a, b, c, d = KEYS, KEYS[::5], KEYS[::50], KEYS[::70]
    more = [{"ts": 3, "k": 7, "v": 5}]
    inputs = {"A": a, "B": b, "C": c}
    streams = {"a": a, "b": b, "c": c, "d": d, "more_a": more, "more_b": more}
    return {"ms": ms, "query": query, "inputs": inputs, **streams}


RUN, CHECKED, SHOWN = {"python", "sh"}, {"sql", "toml"}, {"text", "pycon"}
"""What is run, what is read as the program reads it, and what only shows something; `pycon` is run as a doctest."""


def test_every_block_says_what_it_is() -> None:
    kinds = {(named(page), kind) for page in PAGES for _, kind, _, _ in BLOCK.findall(page.read_text())}
    assert {found for found in kinds if found[1] not in RUN | CHECKED | SHOWN} == set()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_are_only_shown_exist_with_their_options(page: Path) -> None:
    commands = {name: command_named(name) for name in COMMANDS}
    shown = [text for mark, kind, _, text in BLOCK.findall(page.read_text()) if mark and kind == "sh"]
    for line in "".join(shown).replace("\\\n", " ").splitlines():
        for part in line.split("&&"):
            program, *arguments = shlex.split(part, comments=True) or [""]
            if program == "midstream" and arguments[:1] not in ([], ["--help"]):
                command = commands[arguments[0]]
                known = {option for parameter in command.params for option in parameter.opts}
                assert {a.partition("=")[0] for a in arguments if a.startswith("-")} <= known | {"--help"}, part


def test_nothing_but_a_language_stands_behind_the_opening_of_a_block() -> None:
    """Markdown as sites read it does not take more for a block, and swallows the text behind it."""
    odd = [(named(page), rest) for page in PAGES for _, _, rest, _ in BLOCK.findall(page.read_text()) if rest]
    assert odd == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python", "sh") and named(p) not in FOLLOWED], ids=named
)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.checkpoint", "flights"))
    shutil.copytree(ROOT / "docs" / "example", tmp_path / "docs" / "example")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # what would start Spark fails: such blocks are marked
    names = names_of_pages()
    for kind, text in blocks(page, "python", "sh"):
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)
        else:
            for line in text.replace("\\\n", " ").splitlines():
                run_line(line)


def run_line(line: str) -> None:
    """Runs a command of Midstream or a Python file, in this process."""
    program, *arguments = shlex.split(line, comments=True) or [""]
    if program == "midstream":
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{line}\n{done.output}"
    elif program == "python":
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        assert program == "", f"put <!-- no-run --> above the block of {line!r}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "language.md" and blocks(p, "sql")], ids=named)
def test_every_query_of_a_page_is_one(page: Path) -> None:
    for _, text in blocks(page, "sql"):
        parse(text, CATALOG)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "toml")], ids=named)
def test_every_job_of_a_page_is_one(page: Path, tmp_path: Path) -> None:
    for _, text in blocks(page, "toml"):
        job_of(tomllib.loads(text), tmp_path)


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("Job", JOB_KEYS),
        ("Streams", STREAM_KEYS),
        ("Tables", TABLE_KEYS.keys() - STREAM_KEYS.keys()),
        ("Queries", QUERY_KEYS),
        ("Functions", FUNCTION_KEYS),
        ("Adaptivity", POLICY_KEYS),
    ],
)
def test_the_reference_has_exactly_the_keys_of_a_job_file(heading, keys) -> None:
    text = (ROOT / "docs" / "reference" / "job-file.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(keys)


def test_the_page_on_databases_has_every_kind_of_sink_and_its_options() -> None:
    page = (ROOT / "docs" / "how-to" / "connect.md").read_text()
    reference = (ROOT / "docs" / "reference" / "job-file.md").read_text().partition("\n## Sinks\n")[2]
    require_kinds(SINKS, page, reference)


def test_the_page_on_sources_has_every_kind_and_its_options() -> None:
    page = (ROOT / "docs" / "how-to" / "read.md").read_text()
    reference = (ROOT / "docs" / "reference" / "job-file.md").read_text()
    require_kinds(SOURCES, page, reference.partition("\n## Sources\n")[2].partition("\n## ")[0])


def require_kinds(registry: Registry, page: str, reference: str) -> None:
    for kind in registry.known:
        assert f'| `"{kind}"` |' in page and re.search(rf"^\|.*`{kind}`.*\|", reference, re.MULTILINE), kind
        for name, option in registry.class_of(kind).options.items():
            assert f"`{name}` | {option.meaning}" in page, (kind, name)


def test_the_reference_has_every_exit_code() -> None:
    text = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    codes = set(re.findall(r"^\| (\d+) \|", text.partition("## Exit codes")[2], re.MULTILINE))
    assert codes == {"0", *map(str, (USER_ERROR, INTERNAL_ERROR, CLUSTER_ERROR))}


OLD_WORDS = re.compile(
    r"\b(anew|rubbish|whoever|goes over to|go over to|gone over to|taken up|for want of|dealt anew|is told as)\b"
)


@pytest.mark.parametrize("page", [p for p in PAGES if "decisions" not in p.parts], ids=named)
def test_a_page_is_in_plain_words(page: Path) -> None:
    found = [
        f"{number}: {line}" for number, line in enumerate(page.read_text().splitlines(), 1) if OLD_WORDS.search(line)
    ]
    assert found == []


def test_every_command_is_in_plain_words() -> None:
    commands = {name: command_named(name) for name in COMMANDS}
    said = {
        name: [command.help, *(getattr(option, "help", None) or "" for option in command.params)]
        for name, command in commands.items()
    }
    assert {name: text for name, texts in said.items() for text in texts if OLD_WORDS.search(text)} == {}


def test_every_page_is_linked_from_the_index() -> None:
    docs = ROOT / "docs"
    linked = {(docs / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", (docs / "index.md").read_text())}
    assert {page for page in docs.rglob("*.md") if page.name != "index.md"} <= linked


def test_links_lead_to_headings_that_exist() -> None:
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            target = (page.parent / link).read_text() if link else page.read_text()
            headings = re.findall(r"^#+ (.+)$", target, re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{named(page)} links to {link}#{anchor}"
