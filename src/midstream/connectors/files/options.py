"""The options of a folder of files: which files a batch takes, and how text is written.

Names are Spark's, in any case. An option that says how text is read and is not among these is refused: Spark's reader
would take it, but Spark's reader does not read the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.errors import InputError

FORMATS = ("parquet", "csv", "json")
TEXT = ("csv", "json")
FILE_FORMATS = (*FORMATS, "orc", "text", "avro", "xml", "binaryfile")
"""Formats of files that Spark reads as streams."""

CHOOSING = ("maxFilesPerTrigger", "maxBytesPerTrigger", "pathGlobFilter")
"""Options that say which files are read, and how many at a time."""

WRITTEN = {"parquet": (), "csv": ("header", "sep", "delimiter", "nullValue"), "json": ()}
"""Options that say how the files of a format are written."""

CHOOSING_ON_SPARK = (
    "maxFileAge",
    "latestFirst",
    "cleanSource",
    "sourceArchiveDir",
    "maxCachedFiles",
    "discardCachedInputRatio",
    "ignoreMissingFiles",
)
"""Options by which Spark chooses files, and that mean nothing in this process."""


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How CSV is written."""

    header: bool = False
    separator: str = ","
    null_word: str = ""

    @staticmethod
    def of(name: str, options: Mapping[str, str]) -> CsvOptions:
        """The options of a stream."""
        given = {key.lower(): value for key, value in options.items()}
        header = given.get("header", "false").lower()
        if header not in ("true", "false"):
            raise InputError(f"the option header of stream {name} is true or false, not {given['header']!r}")
        separator = given.get("sep", given.get("delimiter", ","))
        separator = "\t" if separator == "\\t" else separator
        if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
            raise InputError(
                f"the option sep of stream {name} cannot be {separator!r}", hint='it is one character, such as ";"'
            )
        return CsvOptions(header == "true", separator, given.get("nullvalue", ""))


def require_options(name: str, format: str, options: Mapping[str, str], on_spark: bool = False) -> None:
    """Refuses options that a folder of files of a format does not have."""
    if on_spark and format not in TEXT:
        return
    known = (*CHOOSING, *WRITTEN.get(format, ()), *(CHOOSING_ON_SPARK if on_spark else ()))
    unknown = sorted(set(map(str.lower, options)) - set(map(str.lower, known)))
    if unknown:
        spelled = [key for key in options if key.lower() in unknown]
        raise InputError(
            f"stream {name} has options that mean nothing for {format} files: {', '.join(spelled)}",
            hint=f"known options: {', '.join(sorted(known))}",
        )
    if format == "csv":
        CsvOptions.of(name, options)


def option_of(options: Mapping[str, str], name: str) -> str | None:
    """An option by its name, in any case."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def whole_number(name: str, options: Mapping[str, str], option: str) -> int | None:
    """An option that is a whole number above zero."""
    most = option_of(options, option)
    if most is None:
        return None
    if not most.isdecimal() or int(most) < 1:
        raise InputError(f"{option} of stream {name} must be a whole number above zero, not {most!r}")
    return int(most)
