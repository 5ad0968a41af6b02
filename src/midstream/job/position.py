"""Where a batch stands: on a checkpoint, at a number, after the manifest of another batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.algebra.time import BEGINNING
from midstream.checkpoint.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Position:
    """A batch's checkpoint, who counts it, its number, and the manifest before it (None: it is the first)."""

    checkpoint: str
    query_id: str
    batch_id: int
    before: Manifest | None = None

    @property
    def registers(self) -> Mapping[str, int]:
        """What the streams had promised by the manifest before."""
        return {} if self.before is None else self.before.streams.registers

    def advanced_to(self, query: str) -> int:
        """The frontier a query had been advanced to by the last batch."""
        return BEGINNING if self.before is None else self.before.advanced_to.get(query, BEGINNING)

    @property
    def set_aside(self) -> frozenset[str]:
        """The queries for which rows of the last batch were set aside."""
        if self.before is None:
            return frozenset()
        known, last = self.before.accounts, self.before.batch_id
        return frozenset(name for name, a in known.items() if a.set_aside is not None and a.set_aside.batch == last)
