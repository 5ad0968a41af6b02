"""Spark's own sources, opened by name.

Spark identifies the sources of a query by their order unless they have names, which it knows since 4.3; a session whose
sources are all named can be given another one later. Spark then asks that every source of the query has a name.

Of folders of text Spark only lists the files: what their bytes mean is the same on every cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader

from midstream.cluster.spark.connected_source import register
from midstream.cluster.spark.environment import ship_package
from midstream.cluster.spark.text_files import CONTENT, FILES, PATH, TextFiles
from midstream.cluster.spark.versions import NAMES_SOURCES
from midstream.connectors.connected import Connected
from midstream.connectors.files.bad_rows import BAD
from midstream.connectors.files.contents import FileContents
from midstream.connectors.files.listing import PATTERN, require_folder
from midstream.connectors.files.options import FILE_FORMATS, FORMATS, OWN, WRITTEN, Portion, require_options
from midstream.connectors.files.source import contents_of
from midstream.connectors.source import Positions
from midstream.errors import InputError, JobError, MidstreamError
from midstream.inputs import NamedSource
from midstream.inputs.folder_paths import is_local, local_folder

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

NAMING = {EVOLUTION: "true"} if NAMES_SOURCES else {}
"""The settings of a session whose sources are to be known by their names, where Spark can."""

LISTING = {"recursiveFileLookup": "true", "maxFileAge": "36500d", "__globPaths__": "false"}
"""What Spark is told about folders of files, so that it reads all of them, once each: also those beside folders that it
would take for partitions, old ones beside new ones, and those whose names it would take for patterns."""


def open_connected(
    stream: Connected, source: NamedSource, spark: SparkSession, starts: Positions, available: bool = False
) -> DataFrame:
    """A streaming DataFrame of a source of ours that goes on from some positions; or only of what is `available`."""
    ship_package(spark)
    with _opening(source):
        return _reader(source, register(stream, starts, spark, available), spark).load()


def open_source(source: NamedSource, spark: SparkSession, read: Sequence[str] = ()) -> DataFrame:
    """A streaming DataFrame; of a folder without files, by their whole paths, that were read already."""
    if source.connected is not None:
        return open_connected(Connected.opened(source), source, spark, {})
    format = source.format.lower()
    if format in FORMATS:
        _require(source, format)
    if format in OWN:
        return _text(source, spark, read)
    reader = _reader(source, source.format, spark)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    for key, value in _options(source, format, spark.sparkContext.defaultParallelism):
        reader = reader.option(key, value)
    with _opening(source):
        frame = reader.load(source.path) if source.path is not None else reader.load()
        if read:
            address = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
            frame = frame.where(~address.isin([_encoded(path) for path in read]))
        return frame.selectExpr(*source.columns) if source.columns else frame


def _reader(source: NamedSource, format: str, spark: SparkSession) -> DataStreamReader:
    reader = spark.readStream.format(format)
    if not NAMES_SOURCES or spark.conf.get(EVOLUTION, "false") != "true":
        return reader
    if "-" in source.name:
        raise InputError(
            f"stream {source.name} cannot be named so", hint="Spark's sources are named by letters, digits and _"
        )
    return reader.name(source.name)


def _options(source: NamedSource, format: str, slots: int) -> Iterator[tuple[str, str]]:
    """The options that Spark gets: those that say how text is written are not for Spark."""
    written = {key.lower() for key in WRITTEN.get(format, ())}
    if format in FILE_FORMATS:
        yield from LISTING.items()
        most = Portion.of(source.name, source.options, slots).bytes
        if most is not None:
            yield "maxBytesPerTrigger", str(most)
        written.add("maxbytespertrigger")
    for key, value in source.options.items():
        if key.lower() not in written:
            yield key, value


def _require(source: NamedSource, format: str) -> None:
    """Refuses folders that Spark would read otherwise than this process."""
    require_options(source.name, format, source.options, on_spark=True)
    if source.path is None or (source.schema is None and format in OWN):
        raise InputError(f"stream {source.name} needs a path and a schema to be read from a folder")
    if PATTERN & set(source.path):
        raise InputError(
            f"the path of stream {source.name} is a pattern for Spark: {source.path}",
            hint="give a folder without any of the signs * ? [ ] { } \\, and the option pathGlobFilter for its files",
        )
    if is_local(source.path):
        require_folder(source.name, local_folder(source.path))


def _text(source: NamedSource, spark: SparkSession, read: Sequence[str]) -> DataFrame:
    """The rows of a folder of text, with a column for those that cannot be read."""
    contents, by_spark = text_contents(source)
    reader = _reader(source, "binaryFile", spark).schema(FILES)
    for key, value in _options(source, source.format.lower(), spark.sparkContext.defaultParallelism):
        reader = reader.option(key, value)
    columns = [PATH] if is_local(source.path or "") else [PATH, CONTENT]
    with _opening(source):
        files = reader.load(source.path).select(*columns)
        rows = files.mapInArrow(TextFiles(contents, frozenset(read)).__call__, from_arrow_schema(contents.travelling))
        return rows.selectExpr(*by_spark, f"`{BAD}`") if by_spark else rows


def text_contents(source: NamedSource) -> tuple[FileContents, tuple[str, ...]]:
    """How the files of a folder of text are read, and which expressions over their columns are left to Spark.

    Expressions are computed as in a process; only where one is not known there, Spark computes all of them.
    """
    source = replace(source, format=source.format.lower())
    try:
        return contents_of(source), ()
    except MidstreamError:
        return contents_of(replace(source, columns=())), source.columns


@contextmanager
def _opening(source: NamedSource) -> Iterator[None]:
    """Says of what Spark refuses which stream it is."""
    try:
        yield
    except Exception as error:
        raise JobError(
            f"stream {source.name} cannot be opened",
            detail=str(error).split("\n")[0],
            hint="look at its format, path and schema",
        ) from error


def _encoded(path: str) -> str:
    """A path as Java writes it in a URI, and Spark in its column of metadata: letters of other scripts as they are.

    >>> _encoded("/a b/ü[1]+.csv")
    '/a%20b/ü%5B1%5D+.csv'
    """
    return "".join(sign if ord(sign) > 127 else quote(sign, safe="/!$&'()*+,;=:@~-._") for sign in path)
