"""CQL is a dialect like any other of sqlglot's: its trees can be read, walked and asked for places."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp, parser

from midstream.errors import QueryError
from midstream.language.dialect import CQL
from midstream.language.nodes import Duration, FollowedBy, WindowClause, place


def read(query: str) -> exp.Expr:
    return sqlglot.parse_one(query, read=CQL)


def test_sqlglot_reads_windows() -> None:
    tree = read("SELECT k FROM A [HOP 10 SECONDS, 5 SECONDS OFFSET 1 SECOND ZONE 'Europe/Berlin'] AS a")
    window = tree.find(WindowClause)
    assert window is not None
    assert window.this == "HOP"
    assert [str(d.this) for d in window.find_all(Duration)] == ["10", "5", "1"]
    assert window.args["zone"].this == "Europe/Berlin"


def test_sqlglot_reads_sequences() -> None:
    steps = list(read("SELECT 1 FROM a FOLLOWED BY b CHRONICLE WITHIN 5 FOLLOWED BY c").find_all(FollowedBy))
    assert [step.args.get("mode") for step in steps] == ["chronicle", None]


def test_every_node_knows_its_place() -> None:
    query = "SELECT k + 1 AS x FROM A [RANGE 10] WHERE name LIKE 'a%' AND k IN (1, 2)"
    for node in read(query).walk():
        if not isinstance(node, exp.From):
            assert place(node) is not None, node
    for column in read(query).find_all(exp.Identifier):
        start = place(column)
        assert start is not None
        assert query[start:].startswith(column.name)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("-a * b", "((- a) * b)"),
        ("a || b + c", "(a || (b + c))"),
        ("a = b + 1 AND c OR d", "(((a = (b + 1)) AND c) OR d)"),
        ("NOT a = b AND c", "((NOT (a = b)) AND c)"),
        ("a BETWEEN b AND c AND d", "((a BETWEEN b AND c) AND d)"),
        ("a IS NULL = b", "((a IS NULL) = b)"),
        ("a < b = c", "((a < b) = c)"),
    ],
)
def test_operators_bind_as_in_sql(text: str, shape: str) -> None:
    assert show(read(f"SELECT {text} FROM s").expressions[0]) == shape


def show(node: exp.Expr) -> str:
    """A value with all its parentheses."""
    signs = {"Add": "+", "Sub": "-", "Mul": "*", "DPipe": "||", "EQ": "=", "LT": "<", "And": "AND", "Or": "OR"}
    match node:
        case exp.Column() | exp.Literal():
            return str(node.name)
        case exp.Not():
            return f"(NOT {show(node.this)})"
        case exp.Neg():
            return f"(- {show(node.this)})"
        case exp.Is():
            return f"({show(node.this)} IS NULL)"
        case exp.Between():
            return f"({show(node.this)} BETWEEN {show(node.args['low'])} AND {show(node.args['high'])})"
    return f"({show(node.this)} {signs[type(node).__name__]} {show(node.args['expression'])})"


def test_words_of_windows_are_names_elsewhere() -> None:
    tree = read("SELECT range.rows, hop, now, zone, within, asof FROM range [RANGE 10] AS range")
    assert [item.name for item in tree.expressions] == ["rows", "hop", "now", "zone", "within", "asof"]


def test_a_word_that_opens_a_script_is_no_query() -> None:
    for word in ("ELSE", "BEGIN", "END", "DECLARE"):
        with pytest.raises(QueryError, match="expected SELECT"):
            read(f"{word} SELECT k FROM A")


def test_no_class_is_derived_from_what_sqlglot_compiles() -> None:
    """`sqlglot[c]`, which people may have installed, has its parser and its nodes compiled: they cannot be extended."""
    known, waiting = set[type](), [exp.Expr, parser.Parser]
    while waiting:
        known.add(found := waiting.pop())
        waiting += found.__subclasses__()
    assert len(known) > 900
    assert not [found for found in known if found.__module__.startswith("midstream")]
