"""What users bring: tables by stream name, out of frames, rows and files; and how results go back into files."""

from midstream.inputs.declare import (
    Duration,
    Format,
    NamedSource,
    StreamSettings,
    Time,
    catalog_of,
    declare,
    max_ahead_of,
    tables_of,
)
from midstream.inputs.files import read_schema, read_table, write_table
from midstream.inputs.frames import table_of

__all__ = [
    "Duration",
    "Format",
    "NamedSource",
    "StreamSettings",
    "Time",
    "catalog_of",
    "declare",
    "max_ahead_of",
    "read_schema",
    "read_table",
    "table_of",
    "tables_of",
    "write_table",
]
