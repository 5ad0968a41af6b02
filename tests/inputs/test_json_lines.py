"""JSON lines that begin with `null`, on which Arrow's parser ends the process, are the rows that they stand for."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.inputs.json_lines import json_lines, without_leading_nulls

LEADING = re.compile(rb"(?:\A|[\r\n])[ \t]*(?:\xef\xbb\xbf)?[ \t]*null")

ROWS = (
    "null",
    "{}",
    '{"ts": 1}',
    '{"ts": null}',
    '{"l": [null, 1]}',
    '{"l": [\n null,\n\n\tnull\n]}',
    '{"l":\r\nnull}',
)
BETWEEN = ("\n", "\r\n", "\n\n", "\n \t\n ", " ", "\r")


def values(text: bytes) -> list[object]:
    """The values of a text, one after the other; a row that is null has no fields."""
    found, place, source = [], 0, text.decode("utf-8-sig")
    while place < len(source.rstrip()):
        place += len(source[place:]) - len(source[place:].lstrip())
        value, place = json.JSONDecoder().raw_decode(source, place)
        found.append({} if value is None else value)
    return found


@given(st.booleans(), st.lists(st.tuples(st.sampled_from(BETWEEN), st.sampled_from(ROWS)), max_size=8))
def test_no_line_begins_with_null_and_all_rows_are_the_same(marked, parts):
    text = ("\ufeff" * marked + "".join(between + row for between, row in parts)).encode()
    made = without_leading_nulls(text)
    assert LEADING.search(made) is None
    assert len(made) == len(text) and values(made) == values(text)


@pytest.mark.parametrize("text", [b"", b"\n", b'{"a": null}\n', b'{"a": [1, null]}\n{"null": "null"}', b"nul\n", b"[]"])
def test_a_text_without_such_lines_stays_as_it_is(text):
    assert without_leading_nulls(text) is text


def test_a_line_that_ends_within_quotes_stays_a_fault():
    with pytest.raises(json.JSONDecodeError, match="Invalid control character"):
        json.loads(without_leading_nulls(b'{"a": "b,\nnull"}'))


def test_compressed_files_are_read_as_text(tmp_path):
    (tmp_path / "1.json.gz").write_bytes(gzip.compress(b"null\n"))
    assert json_lines(tmp_path / "1.json.gz") == b"{}  \n"


OBJECT = '{"ts": 1, "k": "a"}\n'
FILES = {
    "only": "null\n",
    "without an end": "null",
    "first": "null\n" + OBJECT,
    "after blanks": " \n\r\n\t null\n" + OBJECT,
    "after a mark": "\ufeffnull\n" + OBJECT,
    "last": OBJECT + "null\n",
    "in a later block": OBJECT + "null\n" * 300_000,
    "inside, in a later block": '{"l": [\n' + "null,\n" * 300_000 + 'null], "ts": 1}\n',
}
READ = """
import sys
from pathlib import Path
from midstream.connectors.files.source import FileSource
from midstream.inputs import NamedSource
from midstream.inputs.files import read_table

for folder in sys.argv[1:]:
    source = FileSource.opened(NamedSource("A", "json", folder, "ts BIGINT, k STRING"))
    rows, _ = source.read(source.present())
    file = Path(folder) / "1.json"
    whole = read_table(file) if file.stat().st_size < 1000 else rows
    print(rows.num_rows, rows.num_rows - rows["ts"].null_count, whole.num_rows)
"""


def test_files_with_such_lines_are_read_in_a_process_that_goes_on(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(text, encoding="utf-8", newline="")
    command = [sys.executable, "-c", READ, *(str(tmp_path / name) for name in FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert dict(zip(FILES, found, strict=True)) == {
        "only": (1, 0, 1),
        "without an end": (1, 0, 1),
        "first": (2, 1, 2),
        "after blanks": (2, 1, 2),
        "after a mark": (2, 1, 2),
        "last": (2, 1, 2),
        "in a later block": (300_001, 1, 300_001),
        "inside, in a later block": (1, 1, 1),
    }
