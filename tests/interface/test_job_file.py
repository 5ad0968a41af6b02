"""Job files: what is wrong is told by its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from midstream.adaptation.policy import Policy, policy_of
from midstream.connectors.registry import SINKS
from midstream.errors import JobError, QueryError
from midstream.interface.jobs.job_file import job_of, read_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def described(**changes):
    job = {
        "job": {"checkpoint": "here"},
        "streams": {"A": {"format": "rate"}},
        "queries": {"q": {"cql": "SELECT * FROM A [NOW]"}},
    }
    for key, value in changes.items():
        table, _, name = key.rpartition("__")
        place: Any = job
        for part in filter(None, table.split("__")):
            place = place[part]
        place[name] = value
    return job


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_jobs(example):
    job = read_job(example)
    assert job.streams and job.queries and Path(job.checkpoint).parent == EXAMPLES


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"job__chekpoint": "x"}, "unknown key job.chekpoint\n  hint: did you mean checkpoint?"),
        ({"job__slots": "two"}, "job.slots cannot be 'two'\n  hint: write a number, or a range such as \"2..8\""),
        (
            {"job__slots": "8..2"},
            "job.slots cannot be '8..2'\n  detail: a range goes from at least one slot to at least as many\n"
            '  hint: write for instance "2..8"',
        ),
        ({"job__slots": 0}, "job.slots must be above zero, not 0"),
        ({"job__slots": True}, "job.slots must be a whole number or a text, not True"),
        ({"job__ticks": "yes"}, "job.ticks must be true or false, not 'yes'"),
        ({"job__scheduling": 3}, "job.scheduling must be a text, not 3"),
        (
            {"job__memory_per_slot": "a lot"},
            "job.memory_per_slot cannot be 'a lot'\n  hint: write for instance '512 MB' or '2 GB'",
        ),
        ({"job__memory_per_slot": "1 MB"}, "job.memory_per_slot must be at least 16 MB, not '1 MB'"),
        ({"job__metrics_retained": 0}, "job.metrics_retained must be above zero, not 0"),
        ({"streams__A__formt": "x"}, "unknown key streams.A.formt\n  hint: did you mean format?"),
        ({"streams__A__format": ""}, "streams.A.format is empty"),
        (
            {"streams__A__source": {"kind": "sqlite"}},
            "streams.A.format and streams.A.source exclude each other",
        ),
        (
            {"streams__B": {"source": {"kind": "sqlte"}}},
            "streams.B.source cannot be 'sqlte': there is no such source\n  hint: did you mean sqlite?",
        ),
        (
            {"streams__B": {"source": {"kind": "sqlite", "path": "x", "table": "t"}}},
            "streams.B.source.schema is missing\n"
            "  hint: the source 'sqlite' needs it: The columns of the stream: its key `schema`.",
        ),
        ({"streams__A__columns": [1]}, "streams.A.columns must be a list of texts, not [1]"),
        (
            {"streams__A__timestamps": "sometimes"},
            "streams.A.timestamps cannot be 'sometimes'\n  hint: use one of external, internal, latent",
        ),
        (
            {"queries__q__sink": "kinesis"},
            "queries.q.sink cannot be 'kinesis': there is no such sink\n"
            f"  hint: use one of table, console, {', '.join(SINKS.kinds)}",
        ),
        (
            {"queries__q__sink": "sqlit"},
            "queries.q.sink cannot be 'sqlit': there is no such sink\n  hint: did you mean sqlite?",
        ),
        ({"queries__q__sink": {"path": "x"}}, 'queries.q.sink has no kind\n  hint: write for instance kind = "sqlite"'),
        (
            {"queries__q__sink": {"kind": "folder"}},
            "queries.q.sink.path is missing\n  hint: the sink 'folder' needs it: The folder.",
        ),
        (
            {"queries__q__sink": {"kind": "folder", "pth": "x"}},
            "unknown option queries.q.sink.pth of the sink 'folder'\n  hint: did you mean path?",
        ),
        ({"queries__q__sink": {"kind": "folder", "path": 1}}, "queries.q.sink.path must be a text, not 1"),
        (
            {"queries__q__sink": {"kind": "sqlite", "path": "x", "table": "t", "form": "upserts"}},
            "queries.q.sink.form cannot be 'upserts'\n  hint: use one of rows, changelog, current",
        ),
        ({"queries__r": {}}, "queries.r.cql is missing"),
        (
            {"queries__q__adaptivity": "on"},
            "queries.q.adaptivity cannot be 'on'\n  hint: use one of off, suggest, auto",
        ),
        (
            {"queries__q__on_error": "ignore"},
            "queries.q.on_error cannot be 'ignore'\n  hint: use one of stop_query, dead_letter, stop_job",
        ),
        (
            {"job__adaptivity": {"per_our": 3}},
            "unknown key job.adaptivity.per_our\n  hint: did you mean per_hour?",
        ),
        (
            {"job__adaptivity": {"per_hour": "3"}},
            "job.adaptivity.per_hour must be a number, not '3'",
        ),
        (
            {"job__adaptivity": 3},
            "job.adaptivity must be a text or a table, not 3\n  hint: use one of off, suggest, auto",
        ),
    ],
)
def test_a_mistake_is_told_by_its_key(changes, told, tmp_path):
    with pytest.raises(JobError) as error:
        job_of(described(**changes), tmp_path)
    assert str(error.value) == told


def test_a_job_needs_streams_but_can_wait_for_queries(tmp_path):
    job = described()
    del job["queries"]
    assert job_of(job, tmp_path).queries == ()
    del job["streams"]
    with pytest.raises(JobError, match="the job has no streams"):
        job_of(job, tmp_path)


def test_a_job_is_known_by_the_name_it_gives_itself_or_by_its_file(tmp_path):
    path = tmp_path / "orders.toml"
    text = '[job]\ncheckpoint = "here"\n[streams.A]\nformat = "rate"\n'
    path.write_text(text)
    assert read_job(path).name == "orders"
    path.write_text(text.replace("[job]", '[job]\nname = "sales"'))
    assert read_job(path).name == "sales"


def test_a_file_that_is_not_toml_is_told_so(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("[job\n")
    with pytest.raises(JobError, match="is not a TOML file"):
        read_job(path)


def test_options_of_a_source_go_to_spark_as_they_are(tmp_path):
    options = {"maxFilesPerTrigger": 1, "maxOffsetsPerTrigger": "500", "startingOffsets": "earliest"}
    (stream, *_) = job_of(described(streams__A__options=options), tmp_path).streams
    assert stream.options == {"maxFilesPerTrigger": "1", "maxOffsetsPerTrigger": "500", "startingOffsets": "earliest"}


def test_adaptivity_is_said_for_the_job_or_for_a_query(tmp_path):
    def policy(**said: object) -> Policy | None:
        (query,) = job_of(described(**said), tmp_path).queries
        return policy_of(query.options.adaptive)

    assert policy() is None
    assert policy(job__adaptivity="auto") == Policy("auto")
    own = {"mode": "suggest", "per_hour": 6, "margin": 2.5}
    assert policy(job__adaptivity="auto", queries__q__adaptivity=own) == Policy("suggest", per_hour=6, margin=2.5)


def test_a_job_says_which_operator_runs_when():
    plain, told = (job_of(described(**changes), Path()) for changes in ({}, {"job__scheduling": "rr"}))
    assert (plain.options.scheduling, told.options.scheduling) == (None, "rr")


def test_a_stream_says_whose_its_times_are_and_how_far_it_may_be_behind(tmp_path):
    job = job_of(
        described(streams__A__skew="2 seconds", streams__B={"format": "rate", "timestamps": "internal"}), tmp_path
    )
    assert [(s.settings.timestamps, s.settings.skew) for s in job.streams] == [
        ("external", "2 seconds"),
        ("internal", None),
    ]


def test_links_are_read_and_refused_by_their_place():
    sited = described(job__sites={"eu": [0], "us": [1]}, links={"eu <-> us": "80 ms, 10 MB/s"})
    assert job_of(sited, Path()).options.links == {"eu <-> us": "80 ms, 10 MB/s"}
    with pytest.raises(QueryError, match="names the site 'asia', which is not declared"):
        job_of({**sited, "links": {"eu -> asia": "80 ms, 10 MB/s"}}, Path())
    with pytest.raises(JobError, match="links must be a table"):
        job_of({**sited, "links": "fast"}, Path())
