"""Streams whose columns change between starts: more of them are no change, unless a text takes all there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from midstream import api
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.errors import JobError, QueryError
from midstream.interface.cli import app

ALL = "SELECT * FROM s [RANGE 100]"
BEFORE, AFTER = "id BIGINT, v BIGINT, ts BIGINT", "id BIGINT, v BIGINT, ts BIGINT, w STRING"
INDIFFERENT = {
    "counted": "SELECT count(*) AS n FROM s [RANGE 100]",
    "doubled": "SELECT id, v * 2 AS twice FROM s [RANGE 100]",
    "within": "SELECT id FROM (SELECT * FROM s [RANGE 100])",
}
"""Texts with stars that have nothing to do with how many columns a stream has."""


def run(folder: Path, schema: str, texts: dict[str, str], row: dict[str, Any], replace: bool = False) -> None:
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({name: [value] for name, value in row.items()}), folder / "in" / f"{row['ts']}.parquet")
    with CheckpointSession(checkpoint=str(folder / "checkpoint"), on="local") as session:
        session.open_stream("s", "parquet", path=str(folder / "in"), schema=schema)
        for name, text in texts.items():
            session.query(name, text, replace=replace)
        session.start("available")
        session.wait()


def results(folder: Path, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.open(folder / "checkpoint").results(query).to_pylist()
    return found


def test_a_column_that_is_added_changes_no_query_that_does_not_name_it(tmp_path):
    run(tmp_path, BEFORE, INDIFFERENT, {"id": 1, "v": 1, "ts": 1})
    more = {**INDIFFERENT, "named": "SELECT id, w FROM s [RANGE 100]"}
    run(tmp_path, AFTER, more, {"id": 2, "v": 2, "ts": 2, "w": "x"})
    run(tmp_path, AFTER, more, {"id": 3, "v": 3, "ts": 3})
    assert [(row["id"], row["twice"]) for row in results(tmp_path, "doubled")] == [(1, 2), (2, 4)]
    assert [(row["id"], row["w"]) for row in results(tmp_path, "named")] == [(2, "x")]


@pytest.mark.parametrize("text", [ALL, "SELECT count(*) AS n FROM (SELECT DISTINCT * FROM s [RANGE 100])"])
def test_a_text_that_takes_all_columns_is_refused_or_begun_again_when_there_are_more(tmp_path, text):
    run(tmp_path, BEFORE, {"q": text}, {"id": 1, "v": 1, "ts": 1})
    with pytest.raises(JobError, match="query q would have more columns than in the checkpoint") as raised:
        run(tmp_path, AFTER, {"q": text}, {"id": 2, "v": 2, "ts": 2, "w": "x"})
    assert raised.value.detail is not None and "and s.w came since" in raised.value.detail
    run(tmp_path, AFTER, {"q": text}, {"id": 3, "v": 3, "ts": 3, "w": "y"}, replace=True)
    run(tmp_path, AFTER, {"q": text}, {"id": 4, "v": 4, "ts": 4, "w": "z"})
    if text == ALL:
        assert [row["w"] for row in results(tmp_path, "q")] == ["x", "y"]
        assert "w" not in results(tmp_path, "q@1")[0]


def test_columns_that_are_missing_or_of_another_type_are_refused_with_the_queries_that_read_them(tmp_path):
    texts = {"a": "SELECT id FROM s [RANGE 100]", "b": "SELECT v FROM s [RANGE 100]", "c": "SELECT v FROM s [NOW]"}
    run(tmp_path, BEFORE, texts, {"id": 1, "v": 1, "ts": 1})
    with pytest.raises(
        JobError, match="stream s has another type of column v, which b and c read, than the checkpoint"
    ):
        run(tmp_path, "id BIGINT, v DOUBLE, ts BIGINT", texts, {"id": 2, "v": 2, "ts": 2})
    with pytest.raises(QueryError, match="unknown column v"):
        run(tmp_path, "id BIGINT, ts BIGINT", texts, {"id": 3, "ts": 3})


def test_a_job_goes_on_without_columns_that_no_query_reads_once_that_is_accepted(tmp_path):
    def started(schema: str, text: str, *more: str) -> Any:
        (tmp_path / "in").mkdir(exist_ok=True)
        at = len(list((tmp_path / "in").iterdir()))
        (tmp_path / "in" / f"{at}.json").write_text(f'{{"id": 1, "ts": {at}}}')
        (tmp_path / "job.toml").write_text(
            f'[job]\ncheckpoint = "checkpoint"\non = "local"\n[streams.s]\nformat = "json"\npath = "in"\n'
            f'schema = "{schema}"\n[queries.q]\ncql = "{text}"\n'
        )
        return CliRunner().invoke(app, ["run", str(tmp_path / "job.toml"), "--available", *more])

    text = "SELECT id FROM s [RANGE 100]"
    assert started("id BIGINT, v BIGINT, w STRING, ts BIGINT", text).exit_code == 0
    refused = started("id BIGINT, v DOUBLE, ts BIGINT", text)
    assert refused.exit_code == 2 and "run with --accept" in refused.output
    for change in (
        "column v of stream s is double instead of int64; no query reads it",
        "column w of stream s is gone",
    ):
        assert change in " ".join(refused.output.split())
    accepted = started("id BIGINT, v DOUBLE, ts BIGINT", text, "--accept")
    assert accepted.exit_code == 0 and "accepted: column w of stream s is gone" in accepted.output
    assert started("id BIGINT, v DOUBLE, ts BIGINT", text).exit_code == 0
    needed = started("id DOUBLE, v DOUBLE, ts BIGINT", text, "--accept")
    assert needed.exit_code == 2 and "q reads it" in " ".join(needed.output.split())
