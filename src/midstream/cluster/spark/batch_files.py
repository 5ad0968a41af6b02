"""Batches as files, one for each batch and stream, so that Spark takes in the very batches that are given."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from midstream.algebra.carriers import carrier
from midstream.algebra.declarations import StreamDeclaration
from midstream.cluster.spark.environment import require_classic, spark_session
from midstream.operators.vectors import of_type


def files_of_batches(
    spark: SparkSession | None,
    folder: Path,
    cut: Sequence[Mapping[str, pa.Table]],
    streams: Mapping[str, StreamDeclaration],
) -> dict[str, DataFrame]:
    """Streams that bring rows in batches as they are given."""
    rows = [
        {name: table.combine_chunks().to_batches()[0] for name, table in part.items() if len(table)} for part in cut
    ]
    write_files(folder, rows, streams)
    found = require_classic(spark if spark is not None else spark_session())
    return {name: read_files(found, folder / name, stream.columns) for name, stream in streams.items()}


def write_files(
    folder: Path, cut: Sequence[Mapping[str, pa.RecordBatch]], streams: Mapping[str, StreamDeclaration]
) -> None:
    """One file per batch and stream, also where a stream has no rows, so that all streams keep step."""
    for name in streams:
        (folder / name).mkdir()
    # Spark reads files in order of their modification.
    first = time.time() - len(cut) - 1
    for i, parts in enumerate(cut):
        for name, stream in streams.items():
            schema = _carried_schema(stream.columns)
            rows = parts.get(name)
            arrays = [] if rows is None else [of_type(rows.column(j), f.type) for j, f in enumerate(schema)]
            table = pa.Table.from_arrays(arrays, schema=schema) if arrays else schema.empty_table()
            path = folder / name / f"{i:09d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (first + i, first + i))


def _carried_schema(columns: pa.Schema) -> pa.Schema:
    """The columns under plain names, in types that both Parquet and Spark know."""
    return pa.schema([pa.field(f"c{i}", _stored(f.type)) for i, f in enumerate(columns)])


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_duration(kind) else carrier(kind)


def read_files(spark: SparkSession, folder: Path, columns: pa.Schema) -> DataFrame:
    """A stream that brings the rows of one file of a folder with each batch, in order."""
    schema = _carried_schema(columns)
    frame = (
        spark.readStream.schema(from_arrow_schema(schema))
        .option("maxFilesPerTrigger", 1)
        .option("maxFileAge", "10000d")
        .parquet(f"file://{folder}")
    )
    return frame.select(*(_own(i, f).alias(f.name) for i, f in enumerate(columns)))


def _own(i: int, field: pa.Field) -> Any:
    if pa.types.is_duration(field.type):
        return F.expr(f"timestamp_micros(c{i}) - timestamp_micros(0)")
    return F.col(f"c{i}")
