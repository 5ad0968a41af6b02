"""Elements: what they know of how long they are valid stays true, whatever is taken of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from midstream.algebra.windows import Range, Unbounded
from midstream.operators.elements import Elements, concatenate
from midstream.operators.stateless import arrived, windowed

ROWS = pa.record_batch({"k": [3, 1, 2, 1], "v": [1, 2, 3, 4]})
TICKS = np.array([5, 7, 7, 9])


@pytest.mark.parametrize("window", [None, Range(0), Range(20)])
def test_what_is_taken_of_elements_is_valid_for_as_long(window):
    elements = arrived(ROWS, TICKS, window, {})
    order = np.array([2, 0, 1, 3])
    for some in (
        elements,
        elements.take(np.array([3, 3, 0])),
        elements.where(elements.valid_from > 5),
        elements.slice(1, 2),
        elements.ordered(order),
        elements.with_columns(ROWS.select(["v"])),
        elements.arranged(ROWS.schema),
        elements.without_hashes(),
        windowed(elements, Range(3)),
    ):
        assert some.lasting is not None and (some.valid_to - some.valid_from == some.lasting).all()


def test_elements_of_other_lengths_do_not_know_them():
    elements = arrived(ROWS, TICKS, Range(20))
    others = arrived(ROWS, TICKS, Range(3))
    for some in (
        elements.clipped(6, 9),
        elements.with_validity(elements.valid_from, elements.valid_to + 1),
        windowed(elements, Unbounded()),
        concatenate([elements, others]),
        Elements(ROWS, TICKS, TICKS + 1),
    ):
        assert some.lasting is None
