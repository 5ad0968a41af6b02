"""GenMig with reference points: nothing is mended because nothing is cut (GenMig section 4.5, optimization 1).

The old box's results are given whole, beyond the split too. A result of the new box that covers the split is one of
them, so it is left out: a result belongs to the box in whose time it starts. That is right only if a result that starts
before the split depends on nothing that starts after it, as for selections, projections, unions and inner joins. A
count given out by the old box beyond the split would not know what came later.
"""

from __future__ import annotations

from midstream.migration.coalesce import Joint, ReferencePoint
from midstream.migration.genmig import GenMig
from midstream.migration.legality import require_interval_keeping, require_one_query, require_split_time
from midstream.migration.protocol import Functions
from midstream.migration.split import Split
from midstream.operators.box import Box
from midstream.optimizer.plans import Plan


class GenMigReferencePoint(GenMig):
    """For selections, projections, unions and inner joins."""

    name = "genmig_reference_point"

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks for a split time, and for operators whose results no later element can change."""
        require_one_query(self.name, old, new)
        require_interval_keeping(
            self.name,
            (old, new),
            "results of the old box that reach beyond the split would not know what starts after it",
        )
        require_split_time(self.name, (old, new))

    def joint(self, box: Box, other: Box, split: Split) -> Joint:
        """Takes the old box's results whole."""
        return ReferencePoint(split)
