"""The text of a file of JSON lines, such that Arrow reads all of it.

Arrow's parser ends the process with a segmentation fault where the first value of a block is `null`, and blocks begin
with lines. So no line of the text given here begins with `null`: one that stands for a row is an object without fields,
which is the same row, and one inside of a row follows on the line before.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

_NULL = rb"[ \t\xef\xbb\xbf]*(null)"
"""What may not be where a block begins; the parser skips a byte order mark there."""

_AT_THE_START = re.compile(_NULL)
_AFTER_A_LINE = {end: re.compile(end + _NULL) for end in (b"\n", b"\r")}
"""Two patterns, because one that begins with either character is searched for ten times as slowly."""

_EACH = re.compile(rb"(?:\A|[\r\n])" + _NULL)
_BLANKS = b" \t\r\n"
_INSIDE = b",:["
"""What a value inside of a row comes after."""


def json_lines(path: Path) -> bytes:
    """The text of a file, uncompressed, no line of which begins with `null`."""
    with pa.input_stream(str(path), compression="detect") as stream:
        return without_leading_nulls(stream.read())


def without_leading_nulls(text: bytes) -> bytes:
    r"""The same values in as many bytes, without lines that begin with `null`.

    >>> without_leading_nulls(b'null\n{"a": [1,\nnull]}\n')
    b'{}  \n{"a": [1,\tnull]}\n'
    """
    if not (_AT_THE_START.match(text) or any(end in text and null.search(text) for end, null in _AFTER_A_LINE.items())):
        return text
    made = bytearray(text)
    for found in _EACH.finditer(text):
        null = before = found.start(1)
        while before and text[before - 1] in _BLANKS:
            before -= 1
        if before and text[before - 1] in _INSIDE:
            # Tabs, not spaces: a line that ends within quotes is a fault and has to stay one.
            made[before:null] = b"\t" * (null - before)
        else:
            made[null : null + 4] = b"{}  "
    return bytes(made)
