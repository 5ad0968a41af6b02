"""The gallery: a site of all experiments that opens offline, and the summary of it in the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midstream.interface.cli import app
from midstream.lab.experiments import gallery
from midstream.lab.experiments.clocked_joint import Stopwatch
from midstream.lab.experiments.genmig_example import genmig_example
from midstream.lab.experiments.papers import PAPERS, paper_of
from midstream.lab.experiments.registry import EXPERIMENTS, run_experiment
from midstream.lab.experiments.report import KINDS, Report

ROOT = Path(__file__).parents[2]
COMMITTED, README = ROOT / "docs" / "gallery.md", ROOT / "README.md"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gallery of an experiment that takes no time, made by the command."""
    monkeypatch.setattr(gallery, "EXPERIMENTS", {"genmig-example": EXPERIMENTS["genmig-example"]})
    done = CliRunner().invoke(app, ["experiment", "all", "-o", str(tmp_path / "site"), "--json"])
    assert done.exit_code == 0, done.output
    assert [e["experiment"] for e in json.loads(done.stdout)["experiments"]] == ["genmig-example"]
    return tmp_path / "site"


def test_the_gallery_opens_offline_and_its_links_lead_somewhere(made) -> None:
    pages = sorted(made.glob("*.html"))
    assert [page.name for page in pages] == ["genmig-example.html", "index.html"]
    for page in pages:
        text = page.read_text()
        assert "http" not in text and "<script" not in text and "@import" not in text
        links = re.findall(r'(?:href|src)="([^"]+)"', text)
        assert links and all((made / link).is_file() for link in links)


def test_a_page_has_its_figures_beside_published_facts_settings_and_data(made) -> None:
    page = (made / "genmig-example.html").read_text()
    for part in ("<h2>Verdicts</h2>", "as published", "<h2>Settings</h2>", "[RANGE 100]", "<svg"):
        assert part in page
    data = json.loads((made / "genmig-example.json").read_text())
    copies = {series["name"]: series["y"] for series in data["figures"][0]["series"]}
    assert max(copies["parallel track, forced"]) == 2 and max(copies["GenMig"]) == 1
    assert copies["GenMig"] == copies["oracle"]


def test_every_experiment_belongs_to_a_paper() -> None:
    assert {paper_of(name) for name in EXPERIMENTS} == set(PAPERS)


def sections() -> dict[str, str]:
    """The parts of the committed gallery, by experiment."""
    parts = re.split(r"^### (.+)$", COMMITTED.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The verdicts of a part of the gallery: claim, kind, published, measured, holds, stable."""
    found = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in text.splitlines() if line.startswith("| ")]
    return [row for row in found if len(row) == 6 and row[1] in KINDS]


def test_the_committed_gallery_has_exactly_the_experiments_of_the_registry() -> None:
    assert list(sections()) == list(EXPERIMENTS)


def test_the_committed_gallery_and_the_readme_count_what_is_listed() -> None:
    text = COMMITTED.read_text()
    every = [row for part in sections().values() for row in rows(part)]
    shown: list[str] = []
    for kind, name in KINDS.items():
        holds = [row[4] for row in every if row[1] == kind]
        partly = f", {holds.count('**in part**')} in part" if "**in part**" in holds else ""
        shown.append(f"{holds.count('yes')} of {len(holds)} {name}{'' if shown else ' hold'}{partly}")
    assert f"{'; '.join(shown)}, in {len(EXPERIMENTS)} experiments." in text
    assert shown[0] in README.read_text()


QUICK = ("genmig-example", "nos-overhead")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EXPERIMENTS]
)
def test_every_figure_of_the_committed_gallery_is_what_its_experiment_prints(name) -> None:
    """Numbers of the processor's clock are others in every run, and so are those of verdicts that it decides."""
    report = run_experiment(name)
    committed = ["| " + " | ".join(row[:4]) + " |" for row in rows(sections()[name])]
    printed = [gallery.measured_cells(verdict) for verdict in report.verdicts]
    clocked = [verdict.clocked for verdict in report.verdicts]
    assert [_masked(c) if by_clock else c for c, by_clock in zip(committed, clocked, strict=True)] == [
        _masked(p) if by_clock else p for p, by_clock in zip(printed, clocked, strict=True)
    ]


def _masked(text: str) -> str:
    return re.sub(r"[\d.,]+", "#", text)


def test_cells_of_the_summary_cannot_break_its_tables() -> None:
    report = Report("cape-x", "Title", {})
    report.verdict("a | b", "[20, 30)", "1\n2", False, "x*y")
    row = gallery.section(report).splitlines()[-1]
    assert row == r"| a \| b | published | \[20, 30) | 1 2 (x\*y) | **no** | one run |"


def test_example_1_shows_duplicates_of_parallel_track_alone() -> None:
    verdicts = {verdict.claim: verdict for verdict in genmig_example().verdicts}
    assert all(verdict.holds for verdict in verdicts.values())
    assert verdicts["parallel track gives the tuple twice"].measured == "twice at instants 70 to 120"


def test_a_stopwatch_adds_up_the_time_of_calls() -> None:
    ticks = iter([1.0, 1.5, 4.0, 6.0])
    watch = Stopwatch(clock=lambda: next(ticks))
    assert watch.around(max, 1, 2) == 2
    assert watch.around(min, 1, 2) == 1
    assert watch.seconds == 2.5
