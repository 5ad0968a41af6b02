"""Spark's own sources, opened by name.

Spark identifies the sources of a query by their order unless they have names; a session whose sources are all named can
be given another one later. Spark then asks that every source of the query has a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from midstream.errors import InputError, JobError

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def open_source(
    spark: SparkSession,
    name: str,
    format: str,
    path: str | None,
    schema: str | None,
    options: Mapping[str, str],
    columns: Sequence[str],
) -> DataFrame:
    """A streaming DataFrame from one of Spark's sources; named where Spark is told to tell sources by name."""
    reader = spark.readStream.format(format)
    if spark.conf.get(EVOLUTION, "false") == "true":
        if "-" in name:
            raise InputError(
                f"stream {name} cannot be named so", hint="Spark's sources are named by letters, digits and _"
            )
        reader = reader.name(name)
    if schema is not None:
        reader = reader.schema(schema)
    for key, value in options.items():
        reader = reader.option(key, value)
    try:
        frame = reader.load(path) if path is not None else reader.load()
        return frame.selectExpr(*columns) if columns else frame
    except Exception as error:
        raise JobError(
            f"stream {name} cannot be opened",
            detail=str(error).split("\n")[0],
            hint="look at its format, path and schema",
        ) from error
