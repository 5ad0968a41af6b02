"""The options of a folder of files: which files a batch takes, and how text is written.

Names are Spark's, in any case. An option that says how text is read and is not among these is refused: Spark's reader
would take it, but Spark's reader does not read the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midstream.errors import InputError

USUAL = 16 * 2**20
"""How many bytes of a stream's files a batch takes for each slot, unless its options say otherwise."""

TEXT = ("csv", "json")
OWN = (*TEXT, "avro", "arrow")
"""Formats that are read here on every cluster: Spark lists the files and does not read them."""

FORMATS = ("parquet", *OWN)
FILE_FORMATS = (*FORMATS, "orc", "text", "xml", "binaryfile")
"""Formats of files that Spark reads as streams."""

CHOOSING = ("maxFilesPerTrigger", "maxBytesPerTrigger", "pathGlobFilter")
"""Options that say which files are read, and how many at a time."""

WRITTEN: Mapping[str, tuple[str, ...]] = {"csv": ("header", "sep", "delimiter", "nullValue")}
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
    if on_spark and format not in OWN:
        return
    known = (*CHOOSING, *WRITTEN.get(format, ()), *(CHOOSING_ON_SPARK if on_spark else ()))
    unknown = sorted(set(map(str.lower, options)) - set(map(str.lower, known)))
    if unknown:
        spelled = [key for key in options if key.lower() in unknown]
        raise InputError(
            f"stream {name} has options that mean nothing for {format} files: {', '.join(spelled)}",
            hint=f"known options: {', '.join(sorted(known))}",
        )
    Portion.of(name, options)
    if format == "csv":
        CsvOptions.of(name, options)


@dataclass(frozen=True, slots=True)
class Portion:
    """How much a batch takes of a stream's files at most: so many files, or so many bytes, but at least one file."""

    files: int | None = None
    bytes: int | None = None

    @staticmethod
    def of(name: str, options: Mapping[str, str], slots: int = 1) -> Portion:
        """What the options of a stream say; unless they say anything, what some slots can work with."""
        files, size = whole_number(name, options, "maxFilesPerTrigger"), option_of(options, "maxBytesPerTrigger")
        if files is not None and size is not None:
            raise InputError(
                f"stream {name} has both of the options maxFilesPerTrigger and maxBytesPerTrigger",
                hint="give the one that batches are to be cut by",
            )
        if size is None:
            return Portion(files) if files is not None else Portion(bytes=slots * USUAL)
        return Portion() if size.lower() == "any" else Portion(bytes=_bytes(name, size))

    def first(self, sizes: Sequence[int]) -> int:
        """How many files a batch takes, of files of these sizes.

        >>> Portion(bytes=100).first([60, 30, 20]), Portion(bytes=100).first([200, 1]), Portion(files=2).first([1] * 9)
        (2, 1, 2)
        """
        if self.bytes is None:
            return len(sizes) if self.files is None else self.files
        total = 0
        for count, size in enumerate(sizes):
            total += size
            if total > self.bytes and count:
                return count
        return len(sizes)


def _bytes(name: str, size: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([kmg]?)i?b?\s*", size.lower())
    if found is None or int(found[1]) < 1:
        raise InputError(
            f"maxBytesPerTrigger of stream {name} cannot be {size!r}", hint='write for instance "64 MB", or "any"'
        )
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


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
