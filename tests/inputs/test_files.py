"""A table written is the table read, in every format; a file that is wrong is an error that names it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midstream.errors import InputError
from midstream.inputs import read_schema, read_table, table_of, write_table
from midstream.inputs.files import SUFFIXES

MOMENTS = [dt.datetime(2024, 5, 1, 12, 0, 0, 250_000), dt.datetime(2024, 5, 2)]
TABLE = pa.table(
    {
        "ts": pa.array(MOMENTS, pa.timestamp("us")),
        "k": ['a,b\n"c"', None],
        "n": pa.array([2**62, None], pa.int64()),
        "v": [1.5, -0.25],
        "ok": [True, False],
        "day": pa.array([dt.date(2024, 5, 1), None], pa.date32()),
    }
)
COMPRESSED = [".csv.gz", ".jsonl.zst", ".tsv.bz2"]


@pytest.mark.parametrize("suffix", [*SUFFIXES, *COMPRESSED, ".PARQUET"])
def test_a_table_written_is_the_table_read(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    write_table(TABLE, path)
    assert table_of("A", path).equals(TABLE)
    assert table_of("A", str(path)).equals(TABLE)
    assert read_schema(path).names == TABLE.column_names
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_empty_string_is_not_null_in_csv(tmp_path):
    table = pa.table({"ts": [1, 2, 3], "k": ["", None, "NA"]})
    write_table(table, tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv").equals(table)


def test_unquoted_words_for_nothing_are_null_in_csv(tmp_path):
    (tmp_path / "t.csv").write_text("ts,v,k\n1,NA,NULL\n2,2.5,x\n")
    assert read_table(tmp_path / "t.csv").to_pydict() == {"ts": [1, 2], "v": [None, 2.5], "k": [None, "x"]}


def test_zones_in_json_lines_are_kept(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"ts": "2024-05-01T12:00:00+02:00"}\n{"ts": "2024-05-01T12:00:00.5Z"}\n')
    column = read_table(path).column("ts")
    assert column.type == pa.timestamp("us", "UTC")
    assert [t.hour for t in column.to_pylist()] == [10, 12]


def test_text_that_is_a_date_only_sometimes_stays_text(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"d": "2024-05-01"}\n{"d": "soon"}\n')
    assert read_table(path).column("d").to_pylist() == ["2024-05-01", "soon"]


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    folder = tmp_path / "t.parquet"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for i in range(2):
        pyarrow.parquet.write_table(pa.table({"ts": [i]}), folder / f"part-{i}.parquet")
    assert sorted(read_table(folder).column("ts").to_pylist()) == [0, 1]


def test_feather_and_streams_are_told_apart_by_content(tmp_path):
    with pa.ipc.new_stream(str(tmp_path / "t.arrow"), TABLE.schema) as writer:
        writer.write_table(TABLE)
    pa.feather.write_feather(TABLE, str(tmp_path / "t.feather"))
    assert read_table(tmp_path / "t.arrow").equals(TABLE)
    assert read_table(tmp_path / "t.feather").equals(TABLE)


def test_json_lines_hold_what_json_has(tmp_path):
    table = pa.table({"b": [b"ab"], "x": [float("nan")], "l": [[1, None]], "s": [{"t": MOMENTS[0]}]})
    write_table(table, tmp_path / "t.jsonl")
    row = json.loads((tmp_path / "t.jsonl").read_text())
    assert row == {"b": "YWI=", "x": "NaN", "l": [1, None], "s": {"t": "2024-05-01T12:00:00.250000"}}


@pytest.mark.parametrize("suffix", list(SUFFIXES))
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe garbage \x80", b"[[[[", b"ARROW1\x00\x00", b"PAR1" * 4])
def test_a_file_that_is_not_what_it_says_is_refused_by_name(tmp_path, suffix, content):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    try:
        table = read_table(path)
    except InputError as error:
        assert str(path) in error.message
        assert error.__cause__ is not None
    else:
        # A header alone is a whole CSV file, though a silly one.
        assert SUFFIXES[suffix] in ("csv", "tsv") and table.num_rows == 0


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        ("ragged.csv", "ts,k\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("mixed.jsonl", '{"ts": 1}\n{"ts": "x"}\n', "changed from number to string in row 1"),
        ("array.json", '[{"ts": 1}]', "one object per line is expected"),
    ],
)
def test_a_malformed_file_says_where(tmp_path, name, content, detail):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / name)
    assert detail in str(caught.value.detail)


def test_truncated_files_are_refused(tmp_path):
    for suffix in (".parquet", ".arrow", ".arrows"):
        path = tmp_path / f"t{suffix}"
        write_table(pa.concat_tables([TABLE] * 50), path)
        path.write_bytes(path.read_bytes()[:-40] if suffix != ".arrows" else path.read_bytes()[:900])
        with pytest.raises(InputError, match="cannot read"):
            read_table(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.csv", "there is no file"),
        ("table", "has no suffix"),
        ("table.xlsx", "cannot tell the format of .* by its suffix '.xlsx'"),
        ("table.parquet.gz", "is compressed as a whole"),
        ("folder.csv", "is a folder, not a file"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(tmp_path, path, message):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "t.csv"
    write_table(TABLE, path)
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        write_table(pa.table({"l": [[1]]}), path)
    assert "csv cannot hold l, which is nested" in str(caught.value.hint)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", ["nowhere/t.csv", "folder.csv"])
def test_writing_where_nothing_can_be_written_is_refused(tmp_path, path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_table(TABLE, tmp_path / path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), suffix=st.sampled_from(list(SUFFIXES)))
def test_no_bytes_make_a_library_error_escape(tmp_path: Path, content, suffix):
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(content)
    try:
        read_table(path)
    except InputError as error:
        assert str(path) in error.message
