"""The code's shape: files that can be read at once, and classes whose fields can be kept in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src/midstream"
MOST_LINES = 400
MOST_FIELDS = 15
WIDER = {
    "cluster/options.py SessionOptions",  # has a field for each parameter of `Session`
    "checkpoint/records.py Streams",  # has a field for each thing that a manifest says of streams
}


def test_no_file_is_longer_than_can_be_read_at_once():
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


@cache
def classes() -> list[tuple[str, ast.ClassDef]]:
    """All classes, each with the file that it is in."""
    return [
        (str(path.relative_to(ROOT)), node)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]


def test_no_class_has_more_fields_than_can_be_kept_in_mind():
    counts = {f"{room} {node.name}": len(fields(node)) for room, node in classes()}
    assert {name: count for name, count in counts.items() if count > MOST_FIELDS and name not in WIDER} == {}


def test_every_class_has_a_name_of_its_own():
    places: dict[str, list[str]] = {}
    for room, node in classes():
        if not room.startswith("lab/"):
            places.setdefault(node.name, []).append(room)
    assert {name: rooms for name, rooms in places.items() if len(rooms) > 1} == {}


def test_fields_are_those_that_are_declared_and_those_that_methods_set():
    body = "    x: int\n    K: ClassVar = 1\n    def f(self):\n        self.y, self.z = 1, 2\n        self.x += 1"
    text = f"class A:\n{body}"
    assert fields(next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef))) == {"x", "y", "z"}


def fields(node: ast.ClassDef) -> set[str]:
    """The fields that a class declares, and the attributes that its methods give to their object."""
    declared = {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign)
        and isinstance(part.target, ast.Name)
        and "ClassVar" not in ast.unparse(part.annotation)
    }
    return declared | {
        target.attr
        for part in ast.walk(node)
        for target in _targets(part)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    found = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        found = [node.target]
    for target in found:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]
