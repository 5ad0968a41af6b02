"""Functions of one's own from a job file are those that Python gives with `functions=`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import midstream as ms
from midstream.errors import MidstreamError
from midstream.interface.cli import app
from midstream.interface.jobs.job_file import read_job

CODE = """
import pyarrow as pa
import pyarrow.compute as pc
import midstream as ms

def doubled(values):
    return pc.multiply(values, 2.0)

class Longest:
    def initialize(self):
        return ""
    def iterate(self, state, names):
        return max([state, *names.to_pylist()], key=len)
    def terminate(self, state):
        return state

declared = ms.ScalarFunction("anything", lambda values: pc.add(values, 1.0), pa.float64())
"""

JOB = """
[job]
checkpoint = "state"
on = "local"

[streams.sales]
format = "parquet"
path = "sales"
schema = "ts BIGINT, name STRING, price DOUBLE, tax DOUBLE"

[functions.doubled]
python = "code_of_{name}:doubled"
returns = "DOUBLE"

[functions.longest]
python = "code_of_{name}:Longest"
returns = "STRING"
aggregate = true

[functions.more]
python = "code_of_{name}:declared"

[functions.net]
sql = "price * (1 - tax)"
parameters = ["price", "tax"]

[queries.answer]
cql = "SELECT name, more(doubled(net(price, tax))) AS total FROM sales"

[queries.names]
cql = "SELECT longest(name) AS name FROM sales [RANGE 5]"
"""


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    name = f"test_{abs(hash(request.node.name))}"
    (tmp_path / f"code_of_{name}.py").write_text(CODE)
    (tmp_path / "sales").mkdir()
    rows = {"ts": [1, 2, 9], "name": ["tea", "coffee", ""], "price": [10.0, 20.0, 0.0], "tax": [0.5, 0.25, 0.0]}
    pq.write_table(pa.table(rows), tmp_path / "sales" / "1.parquet")
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("{name}", name))
    return path


def test_a_job_calls_functions_of_python_and_of_sql(job: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(job), "--available"])
    assert done.exit_code == 0, done.output
    rows = ms.read_results(job.parent / "state", "answer").to_pylist()
    assert {row["name"]: row["total"] for row in rows} == {"tea": 11.0, "coffee": 31.0}


def test_check_knows_the_functions_of_a_job(job: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(job)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('sql = "price * (1 - tax)"', "", "needs either python or sql"),
        (":doubled", "", "cannot be"),
        (":doubled", ":nothing", "cannot be imported"),
        ('returns = "DOUBLE"\n', "", "returns is missing"),
        ('returns = "DOUBLE"', 'returns = "DOUBLES"', "unknown type DOUBLES"),
        ('parameters = ["price", "tax"]', 'parameters = ["1"]', "names for its parameters"),
    ],
)
def test_a_mistake_in_a_function_is_named(job: Path, old: str, new: str, message: str) -> None:
    job.write_text(job.read_text().replace(old, new, 1))
    with pytest.raises(MidstreamError) as raised:
        read_job(job)
    assert message in str(raised.value)


def test_sql_in_place_of_calls_means_the_same_to_the_engine_and_the_oracle() -> None:
    functions = [
        ms.SqlFunction("net", ("price", "tax"), "price * (1 - tax)"),
        ms.SqlFunction("share", ("part",), "sum(net(part, 0.5)) / sum(part)"),
    ]
    rows = {"S": pa.table({"ts": [1, 2, 3], "k": [1, 1, 2], "v": [2.0, 4.0, 8.0]})}
    query = "SELECT k, share(v + 1) AS s FROM S [RANGE 5] GROUP BY k"
    found = ms.run(query, rows, functions=functions)
    assert ms.snapshot_equal(found, ms.reference(query, rows, functions=functions))
    assert set(found["s"].to_pylist()) == {0.5}


def test_a_column_that_has_a_parameters_name_does_not_change_what_sql_means() -> None:
    function = ms.SqlFunction("less", ("v", "k"), "v - k")
    rows = {"S": pa.table({"ts": [1], "k": [10], "v": [3]})}
    assert ms.run("SELECT less(k, v) AS x FROM S", rows, functions=[function])["x"].to_pylist() == [7]


@pytest.mark.parametrize(
    ("sql", "query", "message"),
    [
        ("v +", "SELECT f(v) AS x FROM S", "function f cannot be read"),
        ("v + 1 AS y", "SELECT f(v) AS x FROM S", "function f cannot be read"),
        ("v + missing", "SELECT f(v) AS x FROM S", "unknown column missing"),
        ("f(v)", "SELECT f(v) AS x FROM S", "nests deeper"),
        ("v + 1", "SELECT f(v, 1) AS x FROM S", "takes 1 argument, not 2"),
    ],
)
def test_sql_that_cannot_be_put_in_place_is_refused(sql: str, query: str, message: str) -> None:
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    with pytest.raises(ms.QueryError) as raised:
        ms.run(query, {"S": schema.empty_table()}, functions=[ms.SqlFunction("f", ("v",), sql)])
    assert message in str(raised.value)


def test_other_sql_is_a_changed_function(job: Path) -> None:
    assert CliRunner().invoke(app, ["run", str(job), "--available"]).exit_code == 0
    job.write_text(job.read_text().replace("(1 - tax)", "(1 + tax)"))
    done = CliRunner().invoke(app, ["run", str(job), "--available"])
    assert done.exit_code != 0
    assert "net" in done.output
    assert "has changed" in done.output


def test_the_schema_for_editors_knows_functions() -> None:
    schema = json.loads(CliRunner().invoke(app, ["check", "--schema"]).stdout)
    assert "python" in schema["properties"]["functions"]["additionalProperties"]["properties"]
