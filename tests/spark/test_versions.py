"""The oldest and the newest Spark that jobs run on: the same results, also through a migration and a kill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scripts.spark_versions import VERSIONS, Trial

from midstream.checkpoint.spark_log import log_after
from midstream.checkpoint.store import CheckpointStore
from midstream.cluster.spark.versions import murmur3, numbers_in_partitions

FOLDER = "MIDSTREAM_SPARKS"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_a_job_file_a_migration_and_a_kill(which: str, tmp_path: Path) -> None:
    spark = None if which == "newest" else Path(os.environ.get(FOLDER, tmp_path / "nowhere")) / VERSIONS[0]
    if spark is not None and not spark.exists():
        pytest.skip(
            f"pyspark {VERSIONS[0]} is not there: python -m scripts.spark_versions get FOLDER, and set {FOLDER}=FOLDER"
        )
    trial = Trial(tmp_path, spark)
    assert spark is None or trial.version == VERSIONS[0]
    trial.job_migration_and_kill()


@pytest.mark.parametrize(("entry", "by_order"), [(None, False), ("v1\n{}\n{}", True), ("v2\n{}\nA:{}", False)])
def test_a_log_that_was_begun_without_names_goes_on_without_them(
    entry: str | None, by_order: bool, tmp_path: Path
) -> None:
    if entry is not None:
        (tmp_path / "spark" / "offsets").mkdir(parents=True)
        (tmp_path / "spark" / "offsets" / "0").write_text(entry)
        (tmp_path / "spark" / "offsets" / ".0.crc").write_bytes(b"v1")
    assert log_after(CheckpointStore(str(tmp_path)).files, None).is_by_order() is by_order


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 200])
def test_a_number_stands_for_every_partition_by_hash(partitions: int) -> None:
    numbers = numbers_in_partitions(partitions)
    assert [murmur3(number) % partitions for number in numbers] == list(range(partitions))


@pytest.mark.spark
def test_the_hash_of_numbers_is_sparks(spark) -> None:
    numbers = [0, 1, 7, 11, 12345, 2**31 - 1]
    found = spark.createDataFrame([(number,) for number in numbers], "n INT").selectExpr("hash(n)").collect()
    assert [row[0] for row in found] == [murmur3(number) for number in numbers]
