"""A Delta table has each result once."""

from __future__ import annotations

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
    pytest.importorskip("deltalake", reason=MISSING)
    check_sink(
        lambda place: connect("delta", path=str(tmp_path / place), form=form), lambda place: rows(tmp_path / place)
    )
