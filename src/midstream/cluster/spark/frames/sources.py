"""Spark's own sources, opened by name.

Spark identifies the sources of a query by their order unless they have names; a session whose sources are all named can
be given another one later. Spark then asks that every source of the query has a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from midstream.errors import InputError, JobError
from midstream.inputs.folder_paths import local_folder

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


@dataclass(frozen=True, slots=True)
class NamedSource:
    """One of Spark's sources; `columns` are SQL expressions over what it has, all of it if there are none."""

    name: str
    format: str
    path: str | None
    schema: str | None
    options: Mapping[str, str]
    columns: tuple[str, ...] = ()

    def open(self, spark: SparkSession, read: Sequence[str] = ()) -> DataFrame:
        """A streaming DataFrame; of a folder without the files, relative to it, that were read already."""
        reader = spark.readStream.format(self.format)
        if spark.conf.get(EVOLUTION, "false") == "true":
            if "-" in self.name:
                raise InputError(
                    f"stream {self.name} cannot be named so", hint="Spark's sources are named by letters, digits and _"
                )
            reader = reader.name(self.name)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        for key, value in self.options.items():
            reader = reader.option(key, value)
        try:
            frame = reader.load(self.path) if self.path is not None else reader.load()
            if read:
                address = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
                frame = frame.where(~address.isin(self._addresses(read)))
            return frame.selectExpr(*self.columns) if self.columns else frame
        except Exception as error:
            raise JobError(
                f"stream {self.name} cannot be opened",
                detail=str(error).split("\n")[0],
                hint="look at its format, path and schema",
            ) from error

    def _addresses(self, read: Sequence[str]) -> list[str]:
        """Files of the folder as Spark's metadata column has them: Java leaves letters of other scripts as they are."""
        folder = local_folder(self.path or "")
        return [_encoded(str(folder / path)) for path in read]


def _encoded(path: str) -> str:
    """A path as Java writes it in a URI.

    >>> _encoded("/a b/ü[1]+.csv")
    '/a%20b/ü%5B1%5D+.csv'
    """
    return "".join(sign if ord(sign) > 127 else quote(sign, safe="/!$&'()*+,;=:@~-._") for sign in path)
