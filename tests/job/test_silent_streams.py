"""When a stream with a skew counts as silent: if it has nothing although the others were further already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import midstream as ms
from midstream.algebra.declarations import StreamDeclaration
from midstream.checkpoint.records import StreamWait
from midstream.job.outputs.progress import unexpected, wait_text

COUNT = "SELECT count(*) AS n FROM (SELECT k FROM A [TUMBLE 60] UNION ALL SELECT k FROM B [TUMBLE 60]) AS u"


def minute(number: int) -> list[dict[str, int]]:
    return [{"ts": 60 * number + second, "k": second} for second in range(0, 60, 5)]


def write(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{row['ts']},{row['k']}\n" for row in minute(number)]
    (folder / f"{number}.csv").write_text("".join(lines))


def from_folders(root: Path) -> Any:
    session = ms.Session(checkpoint=str(root / "checkpoint"), on="local")
    for name in "AB":
        (root / name).mkdir(exist_ok=True)
        session.open_stream(name, "csv", path=str(root / name), schema="ts BIGINT, k BIGINT", skew=2, max_ahead="any")
    session.query("q", COUNT)
    return session


def test_two_files_of_one_minute_that_land_in_two_batches_lose_no_row(tmp_path: Path) -> None:
    for number in range(3):
        for name in "AB":
            write(tmp_path / name, number)
            with from_folders(tmp_path) as session:
                session.process_available()
    with from_folders(tmp_path) as session:
        session.process_available(finish=True)
        assert session.dead_letters().num_rows == 0
        assert session.results("q")["n"].to_pylist() == [24, 24, 24]


@pytest.mark.parametrize("durable", [True, False])
def test_pushes_of_one_minute_one_after_the_other_lose_no_row(durable: bool, tmp_path: Path) -> None:
    session: Any = ms.Session(checkpoint=str(tmp_path), on="local") if durable else ms.Session()
    columns = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    for name in "AB":
        session.stream(name, columns, skew=2, max_ahead="any")
    session.query("q", COUNT)
    session.start()
    for number in range(3):
        for name in "AB":
            session.push(name, minute(number))
    assert len(session.dead_letters() if durable else session.dead_letters) == 0
    session.stop()


def test_a_stream_that_stays_silent_follows_what_the_others_were_before(tmp_path: Path) -> None:
    with ms.Session(checkpoint=str(tmp_path), on="local") as opened:
        session: Any = opened
        for name in "AB":
            session.stream(name, pa.schema([("ts", pa.int64()), ("k", pa.int64())]), skew=2, max_ahead="any")
        session.query("q", COUNT)
        session.start()
        promised = []
        for number in range(3):
            session.push("A", minute(number))
            promised.append(session._job.manifest.streams.registers.get("B"))
        assert promised == [None, 55 - 2, 115 - 2]


def test_a_skew_is_advised_only_where_a_silent_stream_has_none() -> None:
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    plain = StreamDeclaration("B", schema, "ts")
    silent, only_behind = StreamWait("B", 40, 3), StreamWait("B", 40, 0)
    assert "declare a skew" in wait_text("q", silent, plain)
    assert "declare a skew" not in wait_text("q", only_behind, plain)
    assert "declare a skew" not in wait_text("q", silent, replace(plain, skew=2, on_demand=True))
    assert unexpected({"q": silent}, [plain]) == {"q": silent}
    assert unexpected({"q": silent, "p": only_behind}, [replace(plain, skew=2, on_demand=True)]) == {}
