"""What we ask for a case: our CQL, how its result is compared, and where meanings differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.conformance.comparisons import Bag, Comparison


@dataclass(frozen=True)
class Asked:
    """A query for a case.

    Time is a timestamp unless `integer_time`; then it counts milliseconds. With a `lateness` the engine is given all
    rows and must itself find those that the source drops as late; without, they are left out beforehand. `clock` adds a
    stream `clock` with a row at every full second, for windows that advance in steps.
    """

    cql: str
    compare: Comparison = field(default_factory=Bag)
    note: str = ""
    integer_time: bool = False
    lateness: str | int | Mapping[str, str | int] | None = None
    clock: bool = False
