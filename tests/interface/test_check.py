"""`midstream check`: every mistake at once, at its place in the file, before anything starts."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midstream.interface.cli import app
from midstream.interface.jobs.checking import mistakes_of
from midstream.interface.jobs.job_file import job_of, read_job
from midstream.interface.jobs.keys import JOB_KEYS, QUERY_KEYS, STREAM_KEYS

EXAMPLES = Path(__file__).parents[2] / "examples"

WRONG = '''[job]
checkpoint = "here"
trigger = "often"
scheduling = "randomly"

[streams.a]
format = "jsno"
path = "a"
schema = "id BIGINT, ts TIMESTAMP"
lateness = "soon"

[streams.b]
format = "json"
path = "nowhere"
schema = "id BIGNT, ts TIMESTAMP"

[streams.c]
format = "json"
path = "a"
schema = "id BIGINT, ts TIMESTAMP"

[queries.q]
cql = "SELCT id FORM a"

[queries.r]
cql = """
SELECT a.id
FROM a [RANGE 1 HOUR], c [RANGE 1 HOUR]
WHERE a.idd = c.id
"""

[queries.s]
cql = "SELECT a.id FROM a [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE a.id = c.id"
plan = "(a d)"
emit_every = "now and then"
sink = { kind = "folder", path = "a" }
'''


@pytest.mark.parametrize(
    ("taken_out", "said"),
    [
        ('[job]\ncheckpoint = "here"', "the table [job] is missing"),
        ('checkpoint = "here"', "job.checkpoint is missing"),
    ],
)
def test_what_follows_from_a_missing_table_is_no_mistake_of_its_own(tmp_path, taken_out, said):
    (tmp_path / "in").mkdir()
    stream = 'format = "json"\npath = "in"\nschema = "id BIGINT, ts TIMESTAMP"'
    job = f'[job]\ncheckpoint = "here"\n[streams.a]\n{stream}\n[queries.q]\ncql = "SELECT id FROM a [NOW]"\n'
    (tmp_path / "job.toml").write_text(job.replace(taken_out, ""))
    lines = check(tmp_path / "job.toml").output.splitlines()
    assert lines[0].endswith(said) and lines[1:] == ["1 mistake"]


def test_a_mistake_names_its_place_once(tmp_path):
    (tmp_path / "job.toml").write_text(WRONG.replace('kind = "folder"', 'kind = "fodler"'))
    shown = [line for line in check(tmp_path / "job.toml").output.splitlines() if "sink" in line]
    assert shown and all(line.count("queries.s.sink") == 1 for line in shown if "queries.s.sink" in line)
    assert any("queries.s.sink cannot be 'fodler'" in line for line in shown)


def check(path: Path, *arguments: str):
    return CliRunner().invoke(app, ["check", str(path), *arguments])


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "job.toml").write_text(WRONG)
    return tmp_path / "job.toml"


def places(shown: str) -> dict[str, dict]:
    return {mistake["place"]: mistake for mistake in json.loads(shown)["mistakes"]}


def test_all_mistakes_are_found_at_once_with_their_lines(wrong: Path):
    done = check(wrong, "--json")
    assert done.exit_code == 2
    found = {place: (m["line"], m["column"]) for place, m in places(done.stdout).items()}
    assert found == {
        "job.trigger": (3, 12),
        "job.scheduling": (4, 15),
        "streams.a.format": (7, 11),
        "streams.a.lateness": (10, 13),
        "streams.b.path": (14, None),
        "streams.b.schema": (15, 14),
        "queries.q.cql": (23, 8),
        "queries.r.cql": (29, 9),
        "queries.s.sink": (36, None),
        "queries.s.emit_every": (35, 15),
        "queries.s.plan": (34, 9),
    }


def test_a_mistake_is_shown_with_file_place_and_caret(wrong: Path):
    shown = check(wrong).output
    assert (
        f"""{wrong}:23: queries.q.cql: expected SELECT, found 'SELCT'
  cql = "SELCT id FORM a"
         ^
  hint: a query starts with SELECT or WITH
"""
        in shown
    )
    assert 'schema = "id BIGNT, ts TIMESTAMP"\n               ^\n' in shown
    assert "hint: did you mean json?" in shown and "11 mistakes" in shown


@pytest.mark.parametrize("command", [("run", "--check"), ("run",), ("run", "--on", "local", "--available")])
def test_a_run_refuses_the_same_mistakes_before_it_starts(command, wrong: Path, monkeypatch):
    monkeypatch.setattr("midstream.interface.cli.run.open_session", lambda *_: pytest.fail("the job was started"))
    done = CliRunner().invoke(app, [command[0], str(wrong), *command[1:]])
    assert done.exit_code == 2 and "BIGNT" in done.output and "SELCT" in done.output
    assert not (wrong.parent / "here").exists()


def test_wrong_keys_do_not_hide_each_other_nor_what_else_is_wrong(tmp_path: Path):
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\nslots = "two"\non = "moon"\n'
        '[streams.A]\nformat = "rate"\ntime = "timestamp"\nskew = "soon"\nformt = 1\n'
        '[queries.q]\ncql = "SELECT x FROM A [NOW]"\nsink = "kafka"\n'
    )
    assert set(places(check(path, "--json").stdout)) == {
        "job.checkpoint",
        "job.slots",
        "job.on",
        "streams.A.formt",
        "streams.A.skew",
        "queries.q.sink",
        "queries.q.cql",
    }


def test_durations_must_suit_the_time_column(tmp_path: Path):
    (tmp_path / "a").mkdir()
    path = tmp_path / "job.toml"
    path.write_text(
        '[job]\ncheckpoint = "here"\n[streams.a]\nformat = "csv"\npath = "a"\nschema = "ts BIGINT"\n'
        'lateness = "5 seconds"\nmax_ahead = 0\n'
    )
    assert set(places(check(path, "--json").stdout)) == {"streams.a.lateness"}


def test_streams_without_known_columns_are_checked_for_syntax_only(tmp_path: Path):
    path = tmp_path / "job.toml"
    job = '[job]\ncheckpoint = "here"\n[streams.a]\nformat = "some.Source"\n[queries.q]\ncql = "{}"\n'
    path.write_text(job.format("SELECT whatever FROM a [NOW]"))
    assert check(path).exit_code == 0
    path.write_text(job.format("SELECT whatever FROM b [NOW]"))
    assert "unknown stream b" in check(path).output
    path.write_text(job.format("SELECT whatever FORM a [NOW]"))
    assert check(path).exit_code == 2


@pytest.mark.parametrize(
    ("stream", "options", "wrong"),
    [
        ("a", {"format": "Kafka"}, "streams.a.options"),
        ("a", {"format": "kafka", "options": {"kafka.bootstrap.servers": "b:1"}}, "streams.a.options"),
        ("a", {"format": "kafka", "options": {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}}, None),
        ("a", {"format": "RATE"}, None),
        ("a", {"format": "kafka-share"}, None),
        ("a-b", {"format": "rate"}, "streams.a-b"),
    ],
)
def test_what_spark_would_refuse_is_found_before(stream, options, wrong, tmp_path: Path):
    entry = {"time": "timestamp", **options}
    job = job_of({"job": {"checkpoint": "here"}, "streams": {stream: entry}}, tmp_path)
    assert [mistake.place for mistake in mistakes_of(job)] == ([] if wrong is None else [wrong])


@pytest.mark.parametrize("name", ["orders", "clicks"])
def test_the_examples_are_sound(name: str):
    done = check(EXAMPLES / f"{name}.toml")
    assert done.exit_code == 0, done.output


def test_the_schema_for_editors_has_exactly_the_keys_that_are_read():
    schema = json.loads(CliRunner().invoke(app, ["check", "--schema"]).stdout)
    tables = schema["properties"]
    assert set(tables) == {"job", "streams", "tables", "queries", "functions", "spark", "links"}
    assert set(tables["job"]["properties"]) == set(JOB_KEYS)
    assert set(tables["streams"]["additionalProperties"]["properties"]) == set(STREAM_KEYS)
    assert set(tables["queries"]["additionalProperties"]["properties"]) == set(QUERY_KEYS)
    assert schema["properties"]["job"]["properties"]["on"]["enum"] == ["spark", "local"]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_schema_allows_the_keys_of_the_examples(example: Path):
    read_job(example)
    content = tomllib.loads(example.read_text())
    for table, keys in (("streams", STREAM_KEYS), ("queries", QUERY_KEYS)):
        for entry in content[table].values():
            assert set(entry) <= set(keys)


@pytest.mark.parametrize(
    ("stream", "query", "said"),
    [
        ('retain = "100 MB"', "", "streams.a.retain: unknown unit of time 'mb'"),
        ('retain = "1 minute"\nkeep = ["nope"]', "", "streams.a.retain: unknown column nope"),
        ("", 'since = "soon"', "queries.q.since: 'soon' is no instant of this job"),
    ],
)
def test_what_is_kept_and_asked_of_the_past_is_checked_where_it_stands(stream, query, said, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "job.toml").write_text(
        '[job]\ncheckpoint = "c"\non = "local"\n[streams.a]\nformat = "json"\npath = "a"\n'
        f'schema = "id BIGINT, ts TIMESTAMP"\n{stream}\n[queries.q]\ncql = "SELECT id FROM a [NOW]"\n{query}\n'
    )
    answer = CliRunner().invoke(app, ["check", str(tmp_path / "job.toml")])
    assert answer.exit_code == 2 and said in answer.output and "1 mistake" in answer.output
