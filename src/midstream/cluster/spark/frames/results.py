"""The results table: the result files that the manifest names, as far as they are released."""

from __future__ import annotations

import re
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from midstream.algebra.time import BEGINNING, INFINITY
from midstream.checkpoint.file_entries import ResultFile
from midstream.checkpoint.files import Files
from midstream.checkpoint.lists import dead_letters_of
from midstream.checkpoint.manifest import Manifest
from midstream.checkpoint.outputs import DEAD_LETTER_COLUMNS, QUERY, require_present
from midstream.checkpoint.records import grouped
from midstream.checkpoint.retention import kept_from, warn_of_removed, warn_of_removed_dead_letters
from midstream.checkpoint.stored_results import released_files
from midstream.job.outputs.results import start_column
from midstream.job.task.results import result_table
from midstream.optimizer.plans import Plan

_SIGNS = re.compile(r"[][{}*?\\]")


def results_frame(spark: SparkSession, files: Files, manifest: Manifest | None, query: str, plan: Plan) -> DataFrame:
    """All released results of a query as a DataFrame."""
    empty = result_table(plan, None)
    schema = from_arrow_schema(empty.schema)
    if manifest is None:
        return spark.createDataFrame([], schema)
    warn_of_removed(manifest, query, BEGINNING)
    since = kept_from(manifest, query)
    named = released_files(files, manifest, query, since)
    require_present(files, named)
    frame = _frame(spark, files, named, plan, manifest.released.get(query, BEGINNING))
    return frame if since == BEGINNING else frame.where(F.col(start_column(plan)) >= _literal(plan, since))


def dead_letters_frame(spark: SparkSession, files: Files, manifest: Manifest | None) -> DataFrame:
    """All rows that could not be used, with the reasons."""
    named = [] if manifest is None else list(dead_letters_of(files, manifest))
    schema = from_arrow_schema(DEAD_LETTER_COLUMNS)
    if manifest is not None:
        warn_of_removed_dead_letters(manifest)
    if not named:
        return spark.createDataFrame([], schema)
    require_present(files, named)
    return _parquet(spark, files, schema, [f.path for f in named])


def batch_frame(spark: SparkSession, files: Files, manifest: Manifest, query: str, plan: Plan, since: int) -> DataFrame:
    """The results that a batch released, in order of their start."""
    until = manifest.released.get(query, BEGINNING)
    frame = _frame(spark, files, released_files(files, manifest, query, since), plan, until)
    start = start_column(plan)
    if since > BEGINNING:
        frame = frame.where(F.col(start) >= _literal(plan, since))
    return frame.coalesce(1).sortWithinPartitions(start)


def _frame(spark: SparkSession, files: Files, named: list[ResultFile], plan: Plan, until: int) -> DataFrame:
    schema = from_arrow_schema(result_table(plan, None).schema)
    if not named:
        return spark.createDataFrame([], schema)
    frame = _rows(spark, files, named, schema)
    if until == INFINITY:
        return frame
    return frame.where(F.col(start_column(plan)) < _literal(plan, until))


def _rows(spark: SparkSession, files: Files, named: list[ResultFile], schema: StructType) -> DataFrame:
    """What files hold of one query, also those that it shares."""
    frames = []
    for part, paths in grouped((file.part, file.path) for file in named).items():
        if not part:
            frames.append(_parquet(spark, files, schema, paths))
            continue
        shared = _parquet(spark, files, StructType([*schema.fields, StructField(QUERY, StringType())]), paths)
        frames.append(shared.where(F.col(f"`{QUERY}`") == part).drop(QUERY))
    return reduce(DataFrame.unionAll, frames)


def _parquet(spark: SparkSession, files: Files, schema: StructType, paths: list[str]) -> DataFrame:
    """Files of the checkpoint."""
    return spark.read.schema(schema).parquet(*(_literally(spark_path(files.full(path))) for path in paths))


def _literally(path: str) -> str:
    """A path as a pattern that only it matches.

    Spark can also be told that paths are no patterns, but then reads all of them once for each that looks like one.

    >>> _literally("file:///data/run[1]")
    'file:///data/run\\\\[1\\\\]'
    """
    return _SIGNS.sub(r"\\\g<0>", path)


def _literal(plan: Plan, ticks: int) -> Column:
    kind = plan.domain.output_type
    if pa.types.is_integer(kind):
        return F.lit(ticks)
    moment = F.timestamp_micros(F.lit(ticks))
    return moment if kind.tz is not None else F.expr(f"TIMESTAMP_NTZ '1970-01-01' + INTERVAL '{ticks}' MICROSECOND")


def spark_path(path: str) -> str:
    """A path as Spark takes it, whatever its default file system is; its own name for S3 is s3a.

    >>> spark_path("/data/x"), spark_path("s3://bucket/x"), spark_path("hdfs://host/x")
    ('file:///data/x', 's3a://bucket/x', 'hdfs://host/x')
    """
    if path.startswith("/"):
        return f"file://{path}"
    return "s3a://" + path.removeprefix("s3://") if path.startswith("s3://") else path
