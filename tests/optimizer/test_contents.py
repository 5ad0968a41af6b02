"""What a node holds is told by a text: queries of one text are one query and share state, so they mean the same."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace

import pyarrow as pa
import pytest
from tests.profiles import always

import midstream as ms
from midstream.algebra.physical import walk_physical
from midstream.algebra.physical.base import PhysicalNode
from midstream.api import plans
from midstream.lab.fuzz.changes import draw_change

STREAMS = {
    "A": pa.table({"ts": [1, 4, 5], "k": pa.array([1, None, 2], pa.int64()), "v": [1, 2, 3]}),
    "B": pa.table({"ts": [2, 3, 9], "k": pa.array([1, None, 7], pa.int64()), "v": [4, 5, 6]}),
}
PAIRS = [
    (
        "SELECT A.v, B.v AS w FROM A ASOF LEFT JOIN B ON A.k = B.k",
        "SELECT A.v, B.v AS w FROM A ASOF JOIN B ON A.k = B.k",
    ),
    *(
        (
            f"SELECT * FROM A [RANGE 9] {kind} JOIN B [RANGE 9] ON A.k = B.k",
            f"SELECT * FROM A [RANGE 9] {kind} JOIN B [RANGE 9] ON A.k IS NOT DISTINCT FROM B.k",
        )
        for kind in ("", "LEFT", "FULL", "ANTI")
    ),
]


def contents(query: str, inputs: dict[str, pa.Table]) -> set[str]:
    return {plan.physical.content for plan in plans(query, inputs)}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_queries_that_mean_different_things_have_different_contents(one: str, other: str) -> None:
    assert not ms.snapshot_equal(ms.reference(one, STREAMS), ms.reference(other, STREAMS))
    assert not contents(one, STREAMS) & contents(other, STREAMS)


@pytest.mark.parametrize("seed", always(2, range(40)))
def test_texts_whose_plans_have_one_content_mean_the_same(seed: int) -> None:
    for change in (draw_change(100_000 + 10 * seed + i) for i in range(10)):
        if contents(change.old, change.inputs) & contents(change.new, change.inputs):
            found = [ms.reference(text, change.inputs) for text in (change.old, change.new)]
            assert found[0].schema != found[1].schema or ms.snapshot_equal(*found), (change.old, change.new)


FROM_ELSEWHERE = {
    "grid": "windows below say when they are answered",
    "routes": "in whatever order inputs are probed",
    "placements": "wherever they are probed",
    "partition_by": "the window says it too",
    "identity": "columns say which rows are told apart",
    "numbers": "columns say which rows have numbers",
}
"""Fields that a content need not tell, and why."""


def test_every_field_of_a_node_is_told_by_its_content() -> None:
    seen = defaultdict[type[PhysicalNode], list[PhysicalNode]](list)
    for change in map(draw_change, range(300_000, 300_020)):
        for text in (change.old, change.new):
            for node in walk_physical(plans(text, change.inputs)[0].physical):
                seen[type(node)].append(node)
    silent = [
        f"{kind.__name__}.{field.name}"
        for kind, nodes in seen.items()
        for field in fields(kind)
        if field.name not in {"schema", *FROM_ELSEWHERE} and not _told(field.name, nodes[:6])
    ]
    assert len(seen) >= 12 and silent == []


def _told(name: str, nodes: list[PhysicalNode]) -> bool:
    """Whether some other value of a field makes another content; there may be none among those seen."""
    values = {repr(value): value for value in (getattr(node, name) for node in nodes)}
    if all(isinstance(value, bool) for value in values.values()):
        values = {"False": False, "True": True}
    if any(isinstance(value, PhysicalNode) for value in values.values()):
        return True  # an input
    pairs = [(n, v) for n in nodes for text, v in values.items() if text != repr(getattr(n, name))]
    pairs = [(n, v) for n, v in pairs if "_key" not in name or len(v) == len(getattr(n, name))]
    return not pairs or any(n.content != replace(n, **{name: v}).content for n, v in pairs)
