"""Tables that streams of changes describe. A table is a relation: queries read it by its name, without a window.

A row is valid from the time of the change that brought it to that of the one that replaced or removed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from midstream.errors import InputError

CHANGES = ("rows", "upserts", "debezium")
"""What comes: rows that stay, rows that replace those of their key, or changes that say what they are."""

DELETED = ("d", "delete", "deleted", "-d", "remove", "tombstone")
BEFORE = ("-u", "update_before", "update_preimage")
"""What changes are called that delete a row, and those that repeat a row as it was before another replaced it."""

KIND, TIME = "change", "changed_at"
"""The columns that say of a change what it is and when it was made, as sources and formats of changes have them."""


def table_view(stream: str, key: Sequence[str], changes: str, op: str | None = None) -> str:
    """The query that is the table of a stream; `op` is the column that says what each change is.

    >>> table_view("rates", ["currency"], "upserts")
    'SELECT * FROM "rates" [PARTITION BY "currency" ROWS 1]'
    """
    if changes not in CHANGES:
        raise InputError(
            f"the changes of table {stream} cannot be {changes!r}", hint=f"use one of {', '.join(CHANGES)}"
        )
    if changes == "rows":
        if op is not None:
            raise InputError(f"table {stream} has a column {op} of changes, and its rows are none")
        return f'SELECT * FROM "{stream}" [UNBOUNDED]'
    if not key:
        raise InputError(
            f"table {stream} needs a key", hint='the columns that tell its rows apart, such as key = ["id"]'
        )
    by = ", ".join(f'"{name}"' for name in key)
    op = op or (KIND if changes == "debezium" else None)
    if op is None:
        return f'SELECT * FROM "{stream}" [PARTITION BY {by} ROWS 1]'
    before, gone = (", ".join(f"'{word}'" for word in words) for words in (BEFORE, DELETED))
    kind = f"lower(coalesce(\"{op}\", ''))"
    newest = f'(SELECT * FROM "{stream}" WHERE {kind} NOT IN ({before})) [PARTITION BY {by} ROWS 1]'
    return f'SELECT * EXCLUDE ("{op}") FROM {newest} AS newest WHERE {kind} NOT IN ({gone})'
