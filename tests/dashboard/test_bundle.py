"""The page that is shipped was built from the sources beside it, and its lock file names no host."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
STATIC = ROOT / "src/midstream/interface/dashboard/static"
REBUILD = "run: cd frontend && npm ci && npm run build"


def test_the_bundle_was_built_from_the_sources():
    sources = [
        *(FRONTEND / "src").rglob("*"),
        *(FRONTEND / n for n in ("build.mjs", "package.json", "package-lock.json")),
    ]
    named = sorted((path.relative_to(FRONTEND).as_posix(), path) for path in sources if path.is_file())
    built = [(name, STATIC / name) for name in ("app.js", "app.css")]
    digest = hashlib.sha256()
    for name, path in [*named, *built]:
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    assert (STATIC / "built-from.txt").read_text().strip() == digest.hexdigest(), REBUILD


def test_the_page_loads_nothing_from_elsewhere():
    script, style = (STATIC / "app.js").read_text(), (STATIC / "app.css").read_text()
    addresses = set(re.findall(r"https?://[\w.\-/]+", script + style))
    assert addresses <= {
        f"http://www.w3.org/{name}" for name in ("2000/svg", "1999/xhtml", "1998/Math/MathML", "1999/xlink")
    }
    assert "@import" not in style and not re.search(r"url\((?!data:)", style) and "eval(" not in script


def test_the_lock_names_no_host():
    lock = (FRONTEND / "package-lock.json").read_text()
    assert '"resolved"' not in lock and not re.search(
        r'"https?://(?!github\.com|opencollective|.*funding)[^"]*\.tgz"', lock
    )
