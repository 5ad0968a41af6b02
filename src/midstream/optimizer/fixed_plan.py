"""Plans whose physical form is settled otherwise than by lowering their logical form."""

from __future__ import annotations

from dataclasses import dataclass, field

from midstream.algebra.physical import PhysicalNode
from midstream.optimizer.plans import Plan


@dataclass(frozen=True)
class FixedPlan(Plan):
    """A plan whose physical form is settled: parts of it run already, or it selects from a core."""

    fixed: PhysicalNode | None = field(default=None, repr=False)

    @property
    def physical(self) -> PhysicalNode:
        """The physical plan as it is settled."""
        assert self.fixed is not None
        return self.fixed


def fixed(plan: Plan, physical: PhysicalNode) -> FixedPlan:
    """A plan in a settled physical form."""
    return FixedPlan(plan.query, plan.logical, plan.emission, physical)
