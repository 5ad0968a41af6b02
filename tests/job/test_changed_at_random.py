"""Random edits of random queries, at a random moment of a job with crashes, migrations and moves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.profiles import always

from midstream.job.queries.filling import Pace, FilledPortion
from midstream.lab.fuzz.changed_jobs import wrong_after_change
from midstream.lab.fuzz.changes import draw_change


@pytest.mark.parametrize("seed", always(8, range(80)))
def test_a_changed_query_keeps_what_it_promises(seed):
    change = draw_change(seed)
    wrong = wrong_after_change(change, Random(f"job {seed}"), Counter())
    assert wrong is None, f"{wrong}\n{change}"


def test_windows_are_filled_as_fast_as_batches_permit():
    given = Pace(80_000, usual=1.0).portion(None)
    assert given == FilledPortion(20_000, 1.0)
    little, much = (Pace(80_000, seconds=seconds, usual=9.0).portion(given) for seconds in (1.1, 2.4))
    assert little == FilledPortion(40_000, 1.0) and much == FilledPortion(10_000, 1.0)
    assert Pace(80_000, seconds=60.0).portion(much) == FilledPortion(10_000, 1.0)
    assert Pace(None).portion(given) is None
