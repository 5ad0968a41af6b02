"""Texts that readers disagree about: what each of them means here, on every cluster.

A case is the text of a file, the rows that it holds, and the lines that are bad, each with a part of the reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from midstream.cluster.checkpoint_session import CheckpointSession


@dataclass(frozen=True)
class Case:
    """A file, its rows as (ts, k, v, at), and its bad lines."""

    text: str | bytes
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)


SCHEMA = "ts BIGINT, k BIGINT, v STRING, at TIMESTAMP"
HEADER = "ts,k,v,at\n"

WITH_HEADER = {
    "header in another order": Case("v,k,ts,at\na,20,30,\n", [(30, 20, "a", None)]),
    "header with one column more": Case("id,ts,k,v,at\n7,10,20,30,\n", [(10, 20, "30", None)]),
    "header lacks columns": Case("ts,v\n10,20\n", [(10, None, "20", None)]),
    "header in other case": Case("ts,K,V,At\n10,20,30,\n", [(10, 20, "30", None)]),
    "header in quotes": Case('"ts","k","v","at"\n10,20,30,\n', [(10, 20, "30", None)]),
    "header alone": Case("ts,k,v,at\n"),
    "no bytes": Case(""),
    "byte order mark": Case(b"\xef\xbb\xbfts,k,v,at\n10,20,30,\n", [(10, 20, "30", None)]),
    "doubled quotes": Case(HEADER + '1,1,"x""y",\n', [(1, 1, 'x"y', None)]),
    "quotes within": Case(HEADER + '1,1,5" pipe,\n', [(1, 1, '5" pipe', None)]),
    "text after quotes": Case(HEADER + '1,1,"a"b"c,\n', [(1, 1, 'ab"c', None)]),
    "blank before quotes": Case(HEADER + '1,1, "a",\n', [(1, 1, ' "a"', None)]),
    "break in quotes": Case(HEADER + '1,1,"a\nb",\n2,x,c,\n', [(1, 1, "a\nb", None)], {4: "k: 'x' is no int64"}),
    "separator in quotes": Case(HEADER + '1,1,"a,b",\n', [(1, 1, "a,b", None)]),
    "carriage returns": Case("ts,k,v,at\r\n1,1,a,\r\n\r\n2,2,b,\r\n", [(1, 1, "a", None), (2, 2, "b", None)]),
    "no break at the end": Case(HEADER + "1,1,a,", [(1, 1, "a", None)]),
    "padded numbers": Case(HEADER + "1, 5\t,x,\n", [(1, 5, "x", None)]),
    "padded text": Case(HEADER + "1,5, x ,\n", [(1, 5, " x ", None)]),
    "quoted numbers": Case(HEADER + '"1","5","x",""\n', [(1, 5, "x", None)]),
    "nothing, and nothing in quotes": Case(HEADER + '1,,,\n2,"","",\n', [(1, None, None, None), (2, None, "", None)]),
    "words": Case(HEADER + "1,5,NULL,\n2,5,nan,\n", [(1, 5, "NULL", None), (2, 5, "nan", None)]),
    "no number": Case(HEADER + "1,5,a,\n2,oops,b,\n3,5,c,\n", [(1, 5, "a", None), (3, 5, "c", None)], {3: "'oops'"}),
    "fraction": Case(HEADER + "1,5.0,a,\n", [], {2: "k: '5.0' is no int64"}),
    "large number": Case(HEADER + "1,9223372036854775808,a,\n", [], {2: "is no int64"}),
    "no time": Case(HEADER + "1,5,a,yesterday\n", [], {2: "at: 'yesterday' is no timestamp"}),
    "times": Case(
        HEADER + "1,1,a,2024-05-01T02:00:00+02:00\n2,1,a,2024-05-01 00:00:00\n3,1,a,2024-05-01\n",
        [(ts, 1, "a", "2024-05-01T00:00:00") for ts in (1, 2, 3)],
    ),
    "short and long rows": Case(
        HEADER + "1,5\n2,5,b,\n3,5,c,,9\n", [(2, 5, "b", None)], {2: "2 values, not 4", 4: "5 values, not 4"}
    ),
    "an open quote": Case(HEADER + '1,5,"a,\n2,5,b,\n', [(2, 5, "b", None)], {2: "a quote is not closed"}),
    "an open quote at the end": Case(HEADER + '1,5,a,\n2,5,b,"', [(1, 5, "a", None)], {3: "a quote is not closed"}),
    "other letters": Case(HEADER + "1,5,äöü€😀,\n", [(1, 5, "äöü€😀", None)]),
    "Latin 1": Case(HEADER.encode() + b"1,5,\xe4,\n2,5,b,\n", [(2, 5, "b", None)], {2: "it is not UTF-8"}),
}
BY_PLACE = {
    "columns in order": Case("1,5,a,\n", [(1, 5, "a", None)]),
    "a header that nobody expects": Case(HEADER + "1,5,a,\n", [(1, 5, "a", None)], {1: "ts: 'ts' is no int64"}),
    "empty lines": Case("\n\n1,5,a,\n\n2,x,a,\n", [(1, 5, "a", None)], {5: "'x'"}),
}
NULL_WORD = {
    "null word": Case('1;5;NA;\n3;NA;;\n4;;"NA";\n', [(1, 5, None, None), (3, None, "", None), (4, None, "NA", None)]),
}
NONE = (None,) * 3
JSON = {
    "an object a line": Case('{"ts":1,"k":5,"v":"a"}\n{"ts":2}\n', [(1, 5, "a", None), (2, None, None, None)]),
    "two on a line": Case('{"ts":1,"k":5}{"ts":2,"k":6}\n', [(1, 5, None, None), (2, 6, None, None)]),
    "one on two lines": Case('{"ts":1,\n"k":5}\n{"ts":2,"k":"x"}', [(1, 5, None, None)], {3: "k: 'x' is no int64"}),
    "text for a number": Case('{"ts":1,"k":"5"}\n{"ts":2,"k":5}\n', [(2, 5, None, None)], {1: "k: '5' is no int64"}),
    "number for a text": Case('{"ts":1,"v":5}\n', [], {1: "v: 5 is no string"}),
    "other values": Case('{"ts":1,"v":{}}\n{"ts":2,"k":true}\n', [], {1: "v: an object", 2: "k: true is no int64"}),
    "fraction": Case('{"ts":1,"k":5.5}\n', [], {1: "k: '5.5' is no int64"}),
    "truncated": Case('{"ts":1,"k":5}\n{"ts":2,"v":"b', [(1, 5, None, None)], {2: "it is no JSON"}),
    "rubbish in the middle": Case('{"ts":1}\noops\n{"ts":3}\n', [(1, *NONE), (3, *NONE)], {2: "no JSON"}),
    "no object": Case('[1]\n{"ts":2}\n5\n', [(2, None, None, None)], {1: "a list, not an object", 3: "a number"}),
    "a key twice": Case('{"ts":1,"k":5,"k":6}\n', [(1, 6, None, None)]),
    "an escape that is half a letter": Case('{"ts":1,"v":"\\ud800"}\n', [], {1: "is no string"}),
    "Latin 1": Case(b'{"ts":1,"v":"\xe4"}\n{"ts":2}\n', [(2, None, None, None)], {1: "it is not UTF-8"}),
    "time": Case('{"ts":1,"at":"2024-05-01T00:00:00Z"}\n', [(1, None, None, "2024-05-01T00:00:00")]),
    "no time": Case('{"ts":1,"at":5}\n', [], {1: "at: 5 is no timestamp"}),
    "more keys": Case('{"ts":1,"x":{"y":[1,"2"]}}\n', [(1, None, None, None)]),
    "byte order mark": Case(b'\xef\xbb\xbf{"ts":1}\n', [(1, None, None, None)]),
    "blank lines": Case('\n \n{"ts":1}\n\n', [(1, None, None, None)]),
    "no bytes": Case(""),
}
GROUPS: dict[str, tuple[str, dict[str, str], dict[str, Case]]] = {
    "csv with header": ("csv", {"header": "true"}, WITH_HEADER),
    "csv by place": ("csv", {}, BY_PLACE),
    "csv with a null word": ("csv", {"sep": ";", "nullValue": "NA"}, NULL_WORD),
    "json": ("json", {}, JSON),
}


def read_on(session: CheckpointSession, base: Path, group: str) -> tuple[list[Any], dict[tuple[str, int], str]]:
    """What a session makes of the files of a group: rows, and the reasons of bad lines by file and line."""
    format, options, cases = GROUPS[group]
    folder = base / "in"
    folder.mkdir()
    for name, case in cases.items():
        text = case.text if isinstance(case.text, bytes) else case.text.encode()
        (folder / f"{name}.{format}").write_bytes(text)
    session.open_stream("A", format, path=str(folder), schema=SCHEMA, options=options, max_ahead="any", lateness=1000)
    session.query("q", "SELECT ts, k, v, at FROM A [RANGE 5]")
    session.process_available(finish=True)
    found, dead = table(session.results("q")), table(session.dead_letters())
    rows = [(row["ts"], row["k"], row["v"], row["at"] and row["at"].strftime("%FT%T")) for row in found.to_pylist()]
    bad: dict[tuple[str, int], str] = {}
    for letter in dead.to_pylist():
        where = json.loads(letter["row"])
        assert f"line {where['line']} of {where['file']}" in letter["reason"]
        bad[Path(where["file"]).stem, where["line"]] = letter["reason"]
    return sorted(rows, key=repr), bad


def expected(group: str) -> tuple[list[Any], dict[tuple[str, int], str]]:
    """What the table says."""
    cases = GROUPS[group][2]
    rows = [row for case in cases.values() for row in case.rows]
    return sorted(rows, key=repr), {(name, line): why for name, case in cases.items() for line, why in case.bad.items()}


def require_expected(session: CheckpointSession, base: Path, group: str) -> None:
    """Fails unless all files of a group mean what the table says."""
    rows, bad = read_on(session, base, group)
    wanted, reasons = expected(group)
    assert rows == wanted
    assert bad.keys() == reasons.keys()
    assert [(where, bad[where]) for where, why in reasons.items() if why not in bad[where]] == []


def table(found: Any) -> pa.Table:
    """A result of either cluster."""
    return found if isinstance(found, pa.Table) else found.toArrow()
