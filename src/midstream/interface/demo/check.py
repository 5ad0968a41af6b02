"""An independent answer to the demonstration's query: a plain batch join, second by second, without the engine.

Four rows of equal key make a result if their times span no more than the window; it is valid from the latest of them
until the earliest leaves its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from midstream.interface.demo.streams import SECOND, START, STREAMS, Scenario

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [*(name.lower() for name in STREAMS), "valid_from", "valid_to"]


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """How a run's results compare with the independent answer."""

    results: int
    missing: int
    duplicates: int
    unexpected: int

    @property
    def right(self) -> bool:
        """Whether the results are exactly the expected ones."""
        return not (self.missing or self.duplicates or self.unexpected)


def compare(results: pa.Table, batches: Sequence[dict[str, pa.Table]], scenario: Scenario) -> DemoVerdict:
    """Compares every result, with its validity, with the expected ones."""
    import pandas as pd  # heavy, and other commands start without it

    expected = pd.concat([expected_in(second, batches, scenario) for second in range(len(batches))])
    got = pd.DataFrame({name: _numbers(results.column(name)) for name in COLUMNS})
    different = got.drop_duplicates()
    both = expected.merge(different, on=COLUMNS)
    return DemoVerdict(len(got), len(expected) - len(both), len(got) - len(different), len(different) - len(both))


def expected_in(second: int, batches: Sequence[dict[str, pa.Table]], scenario: Scenario) -> pd.DataFrame:
    """The results whose latest part comes in a given second."""
    reach = range(max(0, second - scenario.window), second + 1)
    frames = [_frame(name, [batches[s][name] for s in reach]) for name in STREAMS]
    width = scenario.window * SECOND

    def met(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        pairs = left.merge(right, on="k", suffixes=("", "_right"))
        pairs["first"] = np.minimum(pairs["first"], pairs["first_right"])
        pairs["last"] = np.maximum(pairs["last"], pairs["last_right"])
        return pairs[pairs["last"] - pairs["first"] <= width].drop(columns=["first_right", "last_right"])

    found = reduce(met, sorted(frames, key=len))
    begin = START + second * SECOND
    found = found[(found["last"] >= begin) & (found["last"] < begin + SECOND)]
    found = found.assign(valid_from=found["last"], valid_to=found["first"] + width + 1)
    return found[COLUMNS]


def _frame(name: str, tables: Sequence[pa.Table]) -> pd.DataFrame:
    import pandas as pd

    table = pa.concat_tables(tables)
    ticks = _numbers(table.column("ts"))
    return pd.DataFrame(
        {name.lower(): table.column("id").to_numpy(), "k": table.column("k").to_numpy(), "first": ticks, "last": ticks}
    )


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.cast(pa.int64()))
