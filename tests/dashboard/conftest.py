"""A real browser for the dashboard's tests: Debian's Chromium, driven by Playwright; skipped without either."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from midstream.interface.dashboard import feed
from midstream.interface.dashboard.serving import served

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PATIENCE = 60_000
"""Milliseconds."""

IMAGES = Path(__file__).parents[2] / "docs/images"
KEEP = "MIDSTREAM_SCREENSHOTS"
"""Set to 1, tests write the screenshots of the documentation."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser, started once."""
    sync = pytest.importorskip(
        "playwright.sync_api", reason="the package playwright is missing: pip install playwright"
    )
    pytest.importorskip("uvicorn", reason="the package uvicorn is missing: pip install 'midstream[dashboard]'")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("the package chromium is missing: apt-get install chromium")
    sync.expect.set_options(timeout=PATIENCE)  # a machine that is busy with other tests is slow, not wrong
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


class Pages:
    """Opens pages, and notes what they complain about."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._opened = ExitStack()
        self.complaints: list[str] = []

    def __call__(self, address: str, expected: str | None = None, **options: Any) -> Any:
        """A page, which may complain about what is `expected`."""
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        self._opened.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)

        def note(text: str) -> None:
            if expected is None or expected not in text:
                self.complaints.append(text)

        page.on("console", lambda m: note(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note(str(error)))
        page.goto(address)
        return page

    def close(self) -> None:
        """Closes all pages."""
        self._opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Pages]:
    """Opens pages; at the end, none of them may have complained about anything."""
    pages = Pages(browser)
    yield pages
    pages.close()
    assert pages.complaints == []


@pytest.fixture
def dashboard(open_page: Pages) -> Callable[[Path], AbstractContextManager[str]]:
    """Serves the dashboard of a checkpoint; its pages are closed first, as without their server they would complain."""

    @contextmanager
    def serving(checkpoint: Path) -> Iterator[str]:
        with served(str(checkpoint), "127.0.0.1", 0) as (link, _):
            yield link
            open_page.close()

    return serving


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are told of a batch as soon as it is there."""
    monkeypatch.setattr(feed, "PAUSE", 0.05)


@pytest.fixture
def shot() -> Callable[[Any, str], None]:
    """Keeps a screenshot for the documentation, if that is asked for."""

    def take(page: Any, name: str) -> None:
        if os.environ.get(KEEP) == "1":
            IMAGES.mkdir(exist_ok=True)
            page.screenshot(path=IMAGES / f"dashboard-{name}.png", animations="disabled")

    return take
