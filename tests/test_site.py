"""The documentation as a site: it builds strictly, opens offline, and a stranger finds things within three clicks."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parent.parent
CONFIGURATION = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
CLICKS = 3
WANTED = {
    "how-to/windows.html": "how to write a window",
    "how-to/deploy.html": "how to deploy on a cluster",
    "how-to/recover.html": "how to recover",
    "papers.html": "where a strategy is implemented",
}


def pages_of(nav: object) -> Iterator[str]:
    """The pages that a navigation names, however deep."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from pages_of(part)
    elif isinstance(nav, list):
        for part in nav:
            yield from pages_of(part)


def test_the_navigation_has_every_page_once() -> None:
    named = list(pages_of(CONFIGURATION["nav"]))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(named) == sorted(there)


class Links(HTMLParser):
    """The links, the anchors and the resources of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.resources: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.resources.append(found.get("href") or "")
        elif found.get("src"):
            self.resources.append(str(found["src"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as users build it."""
    pytest.importorskip("zensical", reason="the package zensical is not installed")
    work = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", work / "docs")
    shutil.copy(ROOT / "zensical.toml", work)
    command = shutil.which("zensical")
    if command is None:
        pytest.skip("the command zensical is not on the PATH")
    done = subprocess.run([command, "build", "--strict"], cwd=work, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    return work / "site"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    return {page.resolve(): Links(page) for page in sorted(site.rglob("*.html")) if page.name != "404.html"}


def inside(page: Path, link: str) -> Path | None:
    """The page or file that a link leads to, if it is one of the site's."""
    path, _ = urldefrag(link)
    if re.match(r"[a-z]+:|//", path):
        return None
    return (page.parent / unquote(path)).resolve() if path else page


def test_no_link_of_the_site_is_broken(pages) -> None:
    broken = []
    for page, found in pages.items():
        for link in found.links:
            target = inside(page, link)
            anchor = unquote(urldefrag(link)[1])
            if target is not None and target.is_dir():
                target = target / "index.html"
            if target is not None and (
                not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors)
            ):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_the_site_loads_nothing_from_elsewhere(site, pages) -> None:
    resources = {resource for found in pages.values() for resource in found.resources}
    assert [r for r in sorted(resources) if re.match(r"https?:|//", r)] == []
    styles = "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_a_stranger_finds_what_is_asked_for_most_within_three_clicks(site, pages) -> None:
    reached = {(site / "index.html").resolve()}
    for _ in range(CLICKS):
        reached |= {
            target
            for page in list(reached)
            if page in pages
            for link in pages[page].links
            if (target := inside(page, link)) is not None
        }
    missing = [what for page, what in WANTED.items() if (site / page).resolve() not in reached]
    assert missing == []
