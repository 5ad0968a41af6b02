"""A Delta table has each result once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from midstream.cluster.sinks import connect
from midstream.testing import check_sink

MISSING = "the package deltalake is not installed: pip install 'midstream[delta]'"


def rows(path: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


@pytest.mark.parametrize("form", ["rows", "changelog"])
def test_a_delta_table_has_each_result_once(form, tmp_path):
    """In a process of its own: the law forks, and a fork of a process that has used the client cannot use it."""
    pytest.importorskip("deltalake", reason=MISSING)
    done = subprocess.run(
        [sys.executable, "-m", "tests.connectors.test_delta_sink", str(tmp_path), form], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    folder, form = sys.argv[1:]
    check_sink(
        lambda place: connect("delta", path=f"{folder}/{place}", form=form), lambda place: rows(Path(folder, place))
    )
