"""Every operator passes every check."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.engine import checks
from tests.engine.kinds import KINDS, inputs

from midstream.operators.base import Operator
from midstream.operators.box import Box
from midstream.operators.one_way_join import KeptWindowOperator, OneWayJoinOperator
from midstream.operators.row_window import OrderedRowsOperator
from midstream.operators.slices import KeyedSliceOperator, SliceOperator
from midstream.operators.stateless import RowOperator


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_operator(name: str, check: Callable[..., None]) -> None:
    check(KINDS[name], inputs())


@pytest.mark.parametrize("name", KINDS)
def test_the_plan_holds_the_operator(name: str) -> None:
    _, catalog, plan = checks.bound(KINDS[name], inputs())
    assert KINDS[name].operator in {type(o).__name__ for o in Box(plan.physical, catalog.functions).operators}


@pytest.mark.parametrize("name", KINDS)
def test_nodes_say_of_their_operators_what_is_true(name: str) -> None:
    _, catalog, plan = checks.bound(KINDS[name], inputs())
    box = Box(plan.physical, catalog.functions)
    for node, operator in zip(box.nodes, box.operators, strict=True):
        assert node.stateful == bool(operator.states), node.label
        assert node.waits_for_frontier or not isinstance(operator, SliceOperator), node.label


def test_every_kind_of_operator_is_checked() -> None:
    abstract = {SliceOperator, KeyedSliceOperator, OrderedRowsOperator, RowOperator}
    of_fragments = {
        KeptWindowOperator,
        OneWayJoinOperator,
    }  # parts of routed joins in slots, which tests/job/test_routed_in_slots.py has
    known = {kind.__name__ for kind in _descendants(Operator) if kind not in abstract | of_fragments}
    assert known == {kind.operator for kind in KINDS.values()}


def _descendants(kind: type[Operator]) -> Iterator[type[Operator]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("midstream.operators."):
            yield child
            yield from _descendants(child)
