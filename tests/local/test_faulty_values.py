"""Sessions in this process, on a checkpoint, in which a value stops a query: what is told, and what can be done."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.commands import DropQuery, ResumeQuery
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.records import Fault
from midstream.checkpoint.status import job_at, status_record
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.listener import Listener, status
from midstream.interface.asking import asked
from midstream.interface.cli.app import app

SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.string())])
PLAIN = "SELECT v FROM A [RANGE 5]"
CAST = "SELECT CAST(v AS BIGINT) AS n FROM A [RANGE 5]"


def faults(manifest: Manifest | None) -> dict[str, Fault]:
    """The queries in quarantine."""
    known = {} if manifest is None else manifest.accounts
    return {name: account.fault for name, account in known.items() if account.fault is not None}


def session(folder: Path, cast: str = CAST, **options: Any) -> Any:
    made = ms.Session(checkpoint=str(folder), on="local", slots=2)
    made.stream("A", SCHEMA)
    made.query("plain", PLAIN)
    made.query("cast", cast, **options)
    return made.start()


def push(made: Any, *rows: tuple[int, str]) -> None:
    made.push("A", [{"ts": ts, "v": v} for ts, v in rows])


def stopped(folder: Path, **options: Any) -> Any:
    made = session(folder, **options)
    push(made, (1, "1"))
    push(made, (2, "two"), (3, "3"))
    return made


def values(made: Any, query: str, column: str) -> list[Any]:
    return sorted(made.queries[query].table()[column].to_pylist())


def test_status_says_why_a_query_takes_in_nothing_and_since_when(tmp_path):
    with stopped(tmp_path) as made:
        assert made.queries["cast"].quarantine["batch"] == 1
        told = status(made)["queries"]
        assert told["plain"]["status"] == "running" and told["plain"]["quarantine"] is None
        assert told["cast"]["status"] == "quarantined"
        assert told["cast"]["quarantine"]["reason"] == "cannot cast 'two' to int64"
    stored = status_record(job_at(str(tmp_path)))["queries"]["cast"]
    assert stored["status"] == "quarantined" and stored["quarantine"]["batch"] == 1
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output
    assert re.search(r"query cast: \d results?.*, plan A, quarantined", shown)
    assert "stopped since batch 1: cannot cast 'two' to int64" in shown


def test_a_restart_leaves_it_in_quarantine_and_a_request_resumes_it(tmp_path):
    stopped(tmp_path).stop()
    with session(tmp_path) as made:
        push(made, (4, "4"))
        assert made.queries["cast"].quarantine is not None
        told = Listener(made).answer({"command": "resume", "query": "cast"})
        assert told["batch"] == 1
        push(made, (5, "5"))
        made.finish()
        assert values(made, "cast", "n") == [1, 5]
        assert values(made, "plain", "v") == ["1", "3", "4", "5", "two"]
        with pytest.raises(ms.JobError, match="is not in quarantine"):
            made.resume("cast")


def test_a_query_of_a_job_that_is_down_is_resumed_in_its_checkpoint(tmp_path):
    stopped(tmp_path).stop()
    assert asked(str(tmp_path), ResumeQuery("cast"), 5.0) == {"query": "cast", "batch": 2}
    with pytest.raises(ms.JobError, match="is not in quarantine"):
        asked(str(tmp_path), ResumeQuery("plain"), 5.0)
    with session(tmp_path) as made:
        push(made, (5, "5"))
        made.finish()
        assert values(made, "cast", "n") == [1, 5]
        assert [e.status for e in made.queries["cast"].history] == ["quarantined", "resumed"]


def test_a_query_of_a_job_that_is_down_is_dropped_out_of_quarantine(tmp_path):
    stopped(tmp_path).stop()
    asked(str(tmp_path), DropQuery("cast"), 5.0)
    told = status_record(job_at(str(tmp_path)))
    assert told["queries"].keys() == {"plain"}
    assert faults(CheckpointStore(str(tmp_path)).latest()) == {}


def test_a_query_that_takes_its_place_is_at_work_and_the_old_results_stay(tmp_path):
    stopped(tmp_path).stop()
    tried = "SELECT TRY_CAST(v AS BIGINT) AS n FROM A [RANGE 5]"
    with session(tmp_path, tried, replace=True) as made:
        push(made, (4, "four"), (5, "5"))
        push(made, (6, "6"))
        assert made.queries["cast"].quarantine is None
        assert faults(made._job.manifest) == {}
        made.finish()
        assert {5, 6} <= set(made.queries["cast"].table()["n"].to_pylist())
        old = made._job.manifest.queries["cast@2"]
        assert old.status == "replaced"


def test_a_query_that_nobody_declares_stays_in_quarantine(tmp_path):
    stopped(tmp_path).stop()
    made: Any = ms.Session(checkpoint=str(tmp_path), on="local", slots=2)
    with made:
        made.stream("A", SCHEMA)
        made.query("plain", PLAIN)
        made.start()
        push(made, (4, "4"))
        assert made.queries["cast"].quarantine["batch"] == 1
        made.drop("cast")
        push(made, (5, "5"))
        assert "cast" not in made._job.manifest.queries


def test_rows_at_fault_are_dead_letters_if_the_query_says_so_and_a_restart_remembers_that(tmp_path):
    stopped(tmp_path, on_error="dead_letter").stop()
    with session(tmp_path) as made:
        push(made, (4, "four"), (5, "5"))
        letters = made.dead_letters()
        assert sorted(letters["reason"].to_pylist()) == [
            "query cast: cannot cast 'four' to int64",
            "query cast: cannot cast 'two' to int64",
        ]
        assert status(made)["queries"]["cast"]["set_aside"] == 2
        made.finish()
        assert values(made, "cast", "n") == [1, 3, 5]


def test_rows_that_are_set_aside_have_the_columns_that_no_query_reads(tmp_path):
    more = pa.schema([("who", pa.string()), *SCHEMA, ("note", pa.int64())])
    with ms.Session(checkpoint=str(tmp_path), on="local", slots=2) as made:
        made.stream("A", more)
        made.query("newest", "SELECT v FROM A [ROWS 1]")
        made.query("cast", CAST, on_error="dead_letter")
        made.start()
        rows = [(3, "a", "b"), (1, "x", "one"), (1, "y", "1"), (2, "z", "two")]
        made.push("A", [{"who": who, "ts": ts, "v": v, "note": None} for ts, who, v in rows])
        found = [json.loads(row) for row in made.dead_letters()["row"].to_pylist()]
    assert sorted(found, key=lambda row: row["ts"]) == [
        {"who": who, "ts": ts, "v": v, "note": None} for ts, who, v in sorted(rows) if v != "1"
    ]


def test_a_job_ends_if_a_query_says_so(tmp_path):
    made = session(tmp_path, on_error="stop_job")
    push(made, (1, "1"))
    with pytest.raises(ms.InputError, match="query cast: cannot cast 'two'"):
        push(made, (2, "two"))
    made.stop()


def test_a_way_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ms.QueryError, match="on_error cannot be 'ignore'"):
        session(tmp_path, on_error="ignore")
