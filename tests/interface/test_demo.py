"""What the demonstration says of itself: rows of work and seconds, before and after the plan changed."""

from __future__ import annotations

from typing import Any

from midstream.interface.cli.demo import summary, summary_text
from midstream.interface.demo.check import DemoVerdict
from midstream.interface.demo.streams import Scenario


def batch(number: int, work: int, seconds: float) -> dict[str, Any]:
    query = {"probed": work, "matched": 0, "inserted": 0}
    return {
        "batch_id": number,
        "rows": {"A": 10},
        "queries": {"matches": query},
        "seconds": {"batch": seconds},
        "decisions": {},
    }


def test_the_saving_is_told_in_rows_of_work_and_in_seconds():
    events = [batch(0, 100, 1.0), batch(1, 800, 2.5), batch(2, 500, 2.0), batch(3, 200, 0.5), batch(4, 200, 1.0)]
    change = {"start_batch": 2, "end_batch": 2, "strategy": "genmig", "old_plan": "(A B)", "new_plan": "(B A)"}
    account = summary(DemoVerdict(7, 0, 0, 0), events, [change], Scenario(), 9.0)
    assert (account["work_per_batch_old_plan"], account["work_per_batch_new_plan"]) == (800, 200)
    assert (account["seconds_per_batch_old_plan"], account["seconds_per_batch_new_plan"]) == (2.5, 0.75)
    assert (
        summary_text(account)
        .splitlines()[-1]
        .endswith("800 rows in 2.50 s in the last batch with the old plan, 200 in 0.75 s with the new one")
    )
