"""Text files in this process: what the table of awkward texts says, and the same rows by the fast way and the slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.connectors.awkward_texts import GROUPS, require_expected

import midstream as ms
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.connectors.files import csv_text, json_text
from midstream.connectors.files.bad_rows import BAD, BadRow
from midstream.connectors.files.contents import FileContents
from midstream.connectors.files.csv_text import read_csv
from midstream.connectors.files.json_text import read_json
from midstream.connectors.files.options import CsvOptions
from midstream.connectors.files.text_values import TextRows
from midstream.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::midstream.DeadLetterWarning")

TWO = pa.schema([("a", pa.string()), ("b", pa.int64())])


@pytest.mark.parametrize("group", GROUPS)
def test_awkward_texts_mean_in_a_process_what_the_table_says(group: str, tmp_path: Path) -> None:
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        require_expected(session, tmp_path, group)


def shown(read: TextRows) -> tuple[Any, ...]:
    return read.rows.to_pylist(), list(read.bad)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_bad_line_is_kept_whole(format: str, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("x" * 50_000 + ",no number\n")
    found = FileContents("S", format, TWO, {}).of_path(tmp_path / "rows")
    (bad,) = (BadRow.of_text(text) for text in found[BAD].to_pylist())
    assert bad.text == "x" * 50_000 + ",no number"


PIECES = ['"', ",", "\n", "\r", "a", "1", " ", "1,", "a,1\n", '"a"', "\t", "-"]
OBJECTS = [
    '{"a":"x"}',
    '{"b":1}',
    "\n",
    " ",
    "null",
    '{"a":',
    "}",
    '"y"',
    ",",
    '"b":2',
    "{",
    "1.5",
    "[",
    "]",
    '"b":"1"',
    "\r",
]


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.booleans(), st.sampled_from(["", "a"]))
def test_csv_that_is_read_at_once_has_the_rows_that_it_has_record_by_record(pieces, header, null_word):
    text, options = "".join(pieces).encode(), CsvOptions(header, ",", null_word)
    try:
        slow = read_csv(text, TWO, options, one_by_one=True)
    except ValueError:  # a header that has a name twice
        return
    assert shown(read_csv(text, TWO, options)) == shown(slow)


@given(st.lists(st.sampled_from(OBJECTS), max_size=9))
def test_json_that_is_read_at_once_has_the_rows_that_it_has_record_by_record(pieces):
    text = "".join(pieces).encode()
    assert shown(read_json(text, TWO)) == shown(read_json(text, TWO, one_by_one=True))


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.booleans())
def test_csv_that_is_divided_between_any_records_has_the_same_rows(pieces, header):
    text, options = "".join(pieces).encode(), CsvOptions(header, ",", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_text, "FEW_RECORDS", 1)
        try:
            found = shown(read_csv(text, TWO, options))
        except ValueError:  # a header that has a name twice
            return
    assert found == shown(read_csv(text, TWO, options, one_by_one=True))


@given(st.lists(st.sampled_from([*OBJECTS, "}\n{", '{"b":1}\n', '{"b":"x"}\r\n', "\xff"]), max_size=14))
def test_json_that_is_divided_between_any_lines_has_the_same_rows(pieces):
    text = "".join(pieces).encode("latin-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "FEW_BYTES", 0)
        found = shown(read_json(text, TWO))
    assert found == shown(read_json(text, TWO, one_by_one=True))


@pytest.mark.parametrize("bad", ['"x",oops\n', '"x"\n', '"x",1,2\n', "\xff,1\n"])
def test_of_a_csv_file_only_the_records_around_a_bad_one_are_read_one_by_one(bad: str) -> None:
    lines = [f'"a\nb",{i}\n' for i in range(10_000)]
    with pytest.MonkeyPatch.context() as patch:
        reading = Mock(side_effect=csv_text._one_by_one)
        patch.setattr(csv_text, "_one_by_one", reading)
        found = read_csv("".join([*lines, bad, *lines]).encode("latin-1"), TWO, CsvOptions())
    assert found.rows["b"].to_pylist() == [*range(10_000)] * 2
    assert [record.line for record in found.bad] == [20_001]
    assert sum(len(call.args[1]) for call in reading.call_args_list) <= 2 * csv_text.FEW_RECORDS


@pytest.mark.parametrize("bad", ['{"b":"oops"}\n', '{"b":1\n', "7\n", '{"a":"\xff"}\n'])
def test_of_a_json_file_only_the_rows_around_a_bad_one_are_read_one_by_one(bad: str) -> None:
    lines = [f'{{"a":"x","b":{i}}}\n' for i in range(10_000)]
    with pytest.MonkeyPatch.context() as patch:
        reading = Mock(side_effect=json_text._record_by_record)
        patch.setattr(json_text, "_record_by_record", reading)
        found = read_json("".join([*lines, bad, *lines]).encode("latin-1"), TWO)
    assert found.rows["b"].to_pylist() == [*range(10_000)] * 2
    assert [record.line for record in found.bad] == [10_001]
    assert sum(len(call.args[0]) for call in reading.call_args_list) <= 2 * json_text.FEW_BYTES


@pytest.mark.parametrize("content", [b"PAR1 and so on", b"\0\0\0\0", b"\x1f\x8b\x08"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_file_that_is_no_text_is_named(content: bytes, format: str, tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .*1 as") as caught:
        FileContents("A", format, TWO).of_path(tmp_path / "1")
    assert caught.value.detail == "it is no text"


def test_a_row_whose_column_cannot_be_computed_is_a_dead_letter_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text('1,2024-05-01,"a\nb"\n2,2024-05-02,c\n3,oops,d\n')
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        columns, schema = ["ts", "CAST(d AS DATE) AS d"], "ts BIGINT, d STRING, v STRING"
        session.open_stream("A", "csv", path=str(tmp_path / "in"), schema=schema, columns=columns)
        session.query("q", "SELECT ts, d FROM A [RANGE 5]")
        session.process_available(finish=True)
        rows, letters = session.results("q").to_pylist(), session.dead_letters().to_pylist()
    assert [row["ts"] for row in rows] == [1, 2]
    assert [letter["reason"].endswith(f"(line 4 of {tmp_path}/in/1.csv)") for letter in letters] == [True]


def test_bad_rows_are_counted_and_cost_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [f"{ts},{'oops' if ts % 7 == 0 else ts}" for ts in range(1, 100)]
    (tmp_path / "in" / "1.csv").write_text("\n".join(lines))
    with CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local", slots=3) as session:
        session.open_stream("A", "csv", path=str(tmp_path / "in"), schema="ts BIGINT, k BIGINT")
        session.query("q", "SELECT k FROM A [RANGE 5]")
        session.process_available(finish=True)
        assert session.results("q").num_rows == 85
        letters = session.dead_letters().to_pylist()
    assert [letter["stream"] for letter in letters] == ["A"] * 14
    assert sorted(letter["reason"] for letter in letters)[0] == (
        f"cannot be read: k: 'oops' is no int64 (line 14 of {tmp_path}/in/1.csv)"
    )


@pytest.mark.parametrize(
    "options", [{"header": "yes"}, {"sep": "||"}, {"quote": "'"}, {"multiLine": "true"}, {"mode": "DROPMALFORMED"}]
)
def test_options_that_the_reader_does_not_have_are_refused(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with (
        CheckpointSession(checkpoint=str(tmp_path / "checkpoint"), on="local") as session,
        pytest.raises(ms.InputError),
    ):
        session.open_stream("A", "csv", path=str(tmp_path / "in"), schema="ts BIGINT", options=options)
