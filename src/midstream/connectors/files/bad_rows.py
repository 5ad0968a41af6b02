"""Rows that cannot be read, on their way to the dead letters.

Such a row travels with the others of its stream: all of its columns are null but one that no query sees, which says
where the row is, what is written there and why it cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from midstream.errors import InputError

BAD = "#bad"
"""The column that bad rows have. It is present only where rows are read from text or from sources."""

FIELD = pa.field(BAD, pa.string())


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read: where it is, its text, and why.

    In a file it is at a `file` and the `line` that it begins in; a source names what it has instead of these.
    """

    at: Mapping[str, str | int]
    text: str
    reason: str
    hint: str | None = None

    @property
    def is_whole_file(self) -> bool:
        """Whether it stands for a file none of whose rows could be read."""
        return self.at.get("line") == 0

    @property
    def explained(self) -> str:
        """Why the row is a dead letter."""
        where = ", ".join(f"{word} {place}" for word, place in self.at.items())
        if "file" in self.at:
            where = f"line {self.at['line']} of {self.at['file']}"
        return f"cannot be read: {self.reason} ({where})"

    @property
    def row(self) -> str:
        """What a dead letter has instead of the row's columns, as JSON."""
        return json.dumps({**self.at, "text": self.text}, ensure_ascii=False)

    def to_text(self) -> str:
        """The row as it travels."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def of_text(text: str) -> BadRow:
        """The row that has travelled as a text."""
        return BadRow(**json.loads(text))


def at_line(path: str, line: int) -> Mapping[str, str | int]:
    """Where a row of a file is."""
    return {"file": path, "line": line}


def unreadable_file(columns: pa.Schema, path: str, error: InputError) -> pa.Table:
    """What is read of a file that cannot be read at all."""
    return with_bad_rows(
        columns.empty_table(), [BadRow(at_line(path, 0), error.detail or "", error.message, error.hint)]
    )


def readable(rows: Sequence[BadRow]) -> Sequence[BadRow]:
    """Bad rows; raises if one of them stands for a whole file."""
    for row in rows:
        if row.is_whole_file:
            raise InputError(row.reason, detail=row.text or None, hint=row.hint)
    return rows


def shown(text: bytes) -> str:
    """The bytes of a row as a text, all of them, whatever they are.

    >>> shown(b"a\\xff\\n")
    'a\\\\xff'
    """
    return text.rstrip(b"\r\n").decode("utf-8", "backslashreplace")


def with_bad_rows(rows: pa.Table, bad: Sequence[BadRow]) -> pa.Table:
    """Rows that were read, and those that were not."""
    good = rows.append_column(FIELD, pa.nulls(rows.num_rows, FIELD.type))
    if not bad:
        return good
    texts = pa.array([row.to_text() for row in bad], FIELD.type)
    nulls = [pa.nulls(len(bad), field.type) for field in rows.schema]
    return pa.concat_tables([good, pa.Table.from_arrays([*nulls, texts], schema=good.schema)])
