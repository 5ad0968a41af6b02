"""Spark's own sources, opened by name.

Spark identifies the sources of a query by their order unless they have names; a session whose sources are all named can
be given another one later. Spark then asks that every source of the query has a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from midstream.errors import InputError, JobError
from midstream.inputs import NamedSource
from midstream.inputs.folder_paths import local_folder

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def open_source(source: NamedSource, spark: SparkSession, read: Sequence[str] = ()) -> DataFrame:
    """A streaming DataFrame; of a folder without the files, relative to it, that were read already."""
    reader = spark.readStream.format(source.format)
    if spark.conf.get(EVOLUTION, "false") == "true":
        if "-" in source.name:
            raise InputError(
                f"stream {source.name} cannot be named so", hint="Spark's sources are named by letters, digits and _"
            )
        reader = reader.name(source.name)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    for key, value in source.options.items():
        reader = reader.option(key, value)
    try:
        frame = reader.load(source.path) if source.path is not None else reader.load()
        if read:
            address = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
            frame = frame.where(~address.isin(addresses(source, read)))
        return frame.selectExpr(*source.columns) if source.columns else frame
    except Exception as error:
        raise JobError(
            f"stream {source.name} cannot be opened",
            detail=str(error).split("\n")[0],
            hint="look at its format, path and schema",
        ) from error


def addresses(source: NamedSource, read: Sequence[str]) -> list[str]:
    """Files of the folder as Spark's metadata column has them: Java leaves letters of other scripts as they are."""
    folder = local_folder(source.path or "")
    return [_encoded(str(folder / path)) for path in read]


def _encoded(path: str) -> str:
    """A path as Java writes it in a URI.

    >>> _encoded("/a b/ü[1]+.csv")
    '/a%20b/ü%5B1%5D+.csv'
    """
    return "".join(sign if ord(sign) > 127 else quote(sign, safe="/!$&'()*+,;=:@~-._") for sign in path)
