"""Plans, schemas, sizes, durations and files of streams, damaged in any way: only our own errors come out.

`pytest -m slow --seeds N` damages N times instead of 20,000 times.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from tests.checkpoint.test_damaged_files import damaged, only_our_errors

import midstream as ms
from midstream.algebra.time import TIMESTAMP_TIME, ticks
from midstream.api import ask
from midstream.checkpoint.retention import RetentionLimit
from midstream.errors import MidstreamError
from midstream.inputs.ddl import SchemaError, schema_of_ddl
from midstream.inputs.files import SUFFIXES, read_schema, read_table, write_table
from midstream.job.task.memory import Memory

CASES = 150
MANY_CASES = 20_000

PLANS = ("((A B) C)", "(A (B C))", "A: B C, B: A C, C: B A", "A -> B <- C, B -> A -> C, C -> B -> A", "(A B@eu) C")
SCHEMAS = (
    "k BIGINT, v DOUBLE, ts TIMESTAMP",
    "`a b` STRING NOT NULL, l ARRAY<INT>, s STRUCT<x: INT, y: STRING>, d DECIMAL(10, 2)",
)
TABLE = pa.table({"ts": [1, 2, 3], "k": ["a", None, "ä"], "v": [0.5, None, 1e300], "b": [True, False, None]})
QUERY = "SELECT A.v FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.k = B.k AND B.k = C.k"


def text(written: str, chance: random.Random) -> str:
    return damaged(written.encode(), chance).decode("utf-8", "replace")


def damage_a_plan(seed: int) -> None:
    chance = random.Random(seed)
    rows = pa.table({"k": [1], "v": [1], "ts": [1]})
    plan = text(chance.choice(PLANS), chance)
    only_our_errors(lambda: ms.run(QUERY, {"A": rows, "B": rows, "C": rows}, plan=plan))


def damage_a_schema(seed: int) -> None:
    chance = random.Random(seed)
    only_our_errors(lambda: schema_of_ddl(text(chance.choice(SCHEMAS), chance)))


def damage_a_setting(seed: int) -> None:
    chance = random.Random(seed)
    size, age = text("1.5 GB", chance), text("30 days", chance)
    only_our_errors(lambda: Memory.of(size))
    only_our_errors(lambda: RetentionLimit.of(age, "retention"))
    only_our_errors(lambda: ask("SELECT k FROM A [NOW]", {"A": TABLE}, lateness=age))


def damage_a_stream_file(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    suffix = chance.choice(list(SUFFIXES))
    whole, path = folder / f"whole{suffix}", folder / f"damaged{suffix}"
    if not whole.exists():
        write_table(TABLE, whole)
    path.write_bytes(damaged(whole.read_bytes(), chance))
    only_our_errors(lambda: read_schema(path))
    only_our_errors(lambda: ms.run("SELECT k FROM A [NOW]", {"A": read_table(path)}))


def test_damaged_plans_give_our_own_errors():
    for seed in range(CASES):
        damage_a_plan(seed)


def test_damaged_schemas_and_settings_give_our_own_errors():
    for seed in range(CASES):
        damage_a_schema(seed)
        damage_a_setting(seed)


@pytest.mark.parametrize("digits", ["0", "39", "X, 2", "5, 6", "10, 2, 1", "9999999999"])
def test_decimals_that_there_are_not_are_refused_by_name(digits):
    with pytest.raises(SchemaError, match="the schema cannot be read") as caught:
        schema_of_ddl(f"k BIGINT, d DECIMAL({digits})")
    assert f"there is no type DECIMAL({digits})" in str(caught.value.detail)


def test_a_decimal_has_ten_digits_unless_it_says_otherwise():
    kinds = schema_of_ddl("a DECIMAL, b DECIMAL(5), c DECIMAL(38, 38)").types
    assert kinds == [pa.decimal128(10, 0), pa.decimal128(5, 0), pa.decimal128(38, 38)]


@pytest.mark.parametrize("long", ["1" * 100 + "!", "9" * 400, "9" * 5000, "1e"])
@pytest.mark.parametrize("unit", ["", " days", " GB", " batches"])
def test_long_numbers_are_refused_at_once(long, unit):
    written = long + unit
    for action in (
        Memory.of,
        lambda text: RetentionLimit.of(text, "retention"),
        lambda text: ticks(text, TIMESTAMP_TIME),
    ):
        with pytest.raises(MidstreamError):
            action(written)


@pytest.mark.filterwarnings("ignore::midstream.errors.DeadLetterWarning")
def test_damaged_files_of_streams_give_our_own_errors(tmp_path):
    for seed in range(CASES):
        damage_a_stream_file(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::midstream.errors.DeadLetterWarning")
def test_much_damage_gives_our_own_errors(tmp_path, request):
    for seed in range(CASES, CASES + (request.config.getoption("--seeds") or MANY_CASES)):
        damage_a_plan(seed)
        damage_a_schema(seed)
        damage_a_setting(seed)
        damage_a_stream_file(tmp_path, seed)
