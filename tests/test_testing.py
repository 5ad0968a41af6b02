"""What ships for users' tests finds what is wrong and lets pass what is right."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import midstream as ms
from midstream import api
from midstream.checkpoint.spark_log import LOCAL
from midstream.testing import (
    FakeClock,
    assert_every_plan_agrees,
    assert_snapshot_equal,
    assert_survives_crashes,
    stream,
)

JOIN = "SELECT A.k, B.v FROM A [RANGE 9], B [RANGE 9], C [RANGE 9] WHERE A.k = B.k AND B.k = C.k"
STAMPED = pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64())])


def three() -> dict[str, pa.Table]:
    rows = [(t, t % 3, t) for t in range(24)]
    return {name: stream("ts k v", *rows[place::2]) for place, name in enumerate("ABC")}


def test_literals_have_the_types_of_their_values():
    table = stream("""
        ts               | whole | part | yes   | name   | gone
        -----------------|-------|------|-------|--------|-----
        2024-05-01 12:00 | 1     | 1.5  | true  | a      |
        2024-05-01 12:01 | -2_0  | .5   | false | ' b '  | NULL
        2024-05-01 12:02 |       | 3    |       | 17     |
    """)
    assert [str(f.type) for f in table.schema][1:5] == ["int64", "double", "bool", "string"]
    assert pa.types.is_timestamp(table.schema.field("ts").type)
    assert table.column("whole").to_pylist() == [1, -20, None]
    assert table.column("name").to_pylist() == ["a", " b ", "17"]
    assert stream("a | b\n1 | 2").to_pylist() == [{"a": 1, "b": 2}]
    assert stream(["a", "b"], (1, None), schema="a INT, b DOUBLE").schema.field("a").type == pa.int32()
    with pytest.raises(ms.InputError, match="2 columns, but 1 values"):
        stream("a b", (1,))


def test_equal_snapshots_pass_and_different_ones_show_both_sides():
    found = ms.run("SELECT k FROM A [RANGE 4]", {"A": stream("ts k", (0, 1), (3, 1))})
    same = "k | valid_from | valid_to\n1 | 0 | 3\n1 | 3 | 8\n1 | 3 | 5"
    assert_snapshot_equal(found, same)
    assert_snapshot_equal(found.to_pandas(), found)
    with pytest.raises(AssertionError) as failed:
        assert_snapshot_equal(found, "k | valid_from | valid_to\n1 | 0 | 5")
    told = str(failed.value)
    assert "differ first at 3" in told and "only in actual: {'k': 1}" in told and "expected\nk | valid_from" in told


def test_every_plan_and_migration_is_run_and_a_wrong_one_is_found(monkeypatch):
    assert_every_plan_agrees(JOIN, three())
    real, calls = api.run, []

    def wrong(query, inputs, **options):
        calls.append(options)
        table = real(query, inputs, **options)
        return table.slice(1) if options.get("migrations") else table

    monkeypatch.setattr(api, "run", wrong)
    with pytest.raises(AssertionError, match="a migration from"):
        assert_every_plan_agrees(JOIN, three(), batch_rows=[5])
    assert len(calls) > 3


def test_a_clock_stands_still_until_it_is_moved(tmp_path):
    clock = FakeClock(dt.datetime(2024, 5, 1))
    with clock, ms.Session(checkpoint=tmp_path, on="local") as session:
        session.stream("A", STAMPED, timestamps="internal")
        query = session.query("q", "SELECT v FROM A [NOW]")
        session.start()
        session.push("A", [{"ts": None, "v": 1}])
        clock.advance("1 hour")
        session.push("A", [{"ts": None, "v": 2}])
        clock.advance(dt.timedelta(seconds=1))
        session.push("A", [{"ts": None, "v": 3}])
        found = [(row["v"], row["valid_from"]) for row in query.table().to_pylist()]
    times = [dt.datetime(2024, 5, 1, hour, tzinfo=dt.UTC) for hour in (0, 1)]
    assert found[:2] == [(1, times[0]), (2, times[1])]
    with clock, ms.Session() as memory:
        memory.stream("A", STAMPED, timestamps="internal")
        query = memory.query("q", "SELECT v FROM A [NOW]")
        clock.advance(0.5)
        memory.push("A", [{"ts": None, "v": 1}])
    assert query.results().column("valid_from")[0].as_py() == clock.time.replace(tzinfo=None)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    for number in range(2):
        rows = [{"ts": 10 * number + t} for t in range(10)]
        (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_job_survives_crashes_and_one_that_forgets_is_found(tmp_path, orders):
    def job(checkpoint: Path) -> None:
        with ms.Session(checkpoint=checkpoint, on="local") as session:
            session.open_stream("orders", "json", path=str(orders), schema="ts BIGINT")
            session.query("q", "SELECT count(*) AS n FROM orders [RANGE 4]")
            session.process_available(finish=True)

    points = ["results.within_write", "manifest.after_rename", "merge.before_write:9"]
    assert assert_survives_crashes(job, tmp_path / "a", points=points) == points[:2]

    def forgetful(checkpoint: Path) -> None:
        if checkpoint.exists():  # a second start sees other rows
            (orders / "1.json").write_text('{"ts": 13}')
        job(checkpoint)

    with pytest.raises(AssertionError, match="killed at pack.before_write, query q ends with other results"):
        assert_survives_crashes(forgetful, tmp_path / "b", points=["pack.before_write"])


def test_a_job_that_fails_by_itself_is_told_apart(tmp_path):
    def broken(checkpoint: Path) -> None:
        raise ValueError(LOCAL)

    with pytest.raises(AssertionError, match="fails without any crash"):
        assert_survives_crashes(broken, tmp_path)


def test_the_fixtures_are_there_and_cost_nothing_unless_they_are_used(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_nothing_is_imported():\n"
        "    assert 'pyarrow' not in sys.modules and 'midstream.api' not in sys.modules\n"
        "def test_sessions(midstream_session, midstream_job, midstream_clock):\n"
        "    import midstream as ms\n"
        "    assert isinstance(midstream_session, ms.Session) and isinstance(midstream_job, ms.Session)\n"
        "    assert midstream_clock.time.year == 2024\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "midstream.pytest_plugin", "-p", "no:cacheprovider", "."]
    # Where the package is installed the plug-in would be loaded a second time, by its entry point.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
