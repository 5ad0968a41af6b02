"""The rows that a path names: those of a file, of all files of a folder and below, or of all that a pattern matches."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from midstream.errors import InputError
from midstream.inputs import read_table, tables_of
from midstream.interface.jobs.starting import data_files


def read_files(path: str) -> pa.Table:
    """The rows of all files that a path names, in order of their names.

    A file or folder that is there is read by its name, also if the name looks like a pattern.
    """
    matched = _matched(path)
    if not matched:
        raise InputError(f"there is no file or folder {path}")
    files = [file for found in matched for file in (data_files(found) if found.is_dir() else [found])]
    if not files:
        raise InputError(f"{path} has no files with rows", hint="Parquet, CSV and JSON lines are read")
    if len(files) == 1:
        return read_table(files[0])
    try:
        return pa.concat_tables([read_table(file) for file in files], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the files of {path} have columns of different types", detail=str(error)) from error


def stream_tables(paths: Mapping[str, str]) -> dict[str, pa.Table]:
    """The rows of every stream."""
    return tables_of({name: read_files(path) for name, path in paths.items()})


def _matched(path: str) -> list[Path]:
    place = Path(path).expanduser()
    if place.exists():
        return [place]
    return [Path(found) for found in sorted(glob.glob(str(place), recursive=True))]
