"""Moving state between slots, paced: what the old plan has kept of its streams goes through the new plan, bit by bit.

Plans of several stages hold their states in different slots, so the new plan cannot listen to the old one as it does
within a box. It starts empty instead, beside the old plan, and takes all that comes; besides, with every batch it is
given some of what the old plan had kept of each stream when the migration began. Nothing that it gives leaves it: the
old plan answers. When it has been given everything, it goes on alone.

Why this is right. The new plan has then had every element of every stream that still counts, once, in some order. What
inner joins and duplicate eliminations hold and have given when their inputs have come completely does not depend on the
order. Operators that answer by slices keep their inputs; what they have answered meanwhile lies before their frontier,
where nothing is valid that counts later, so operators above them hold nothing that is wrong. What a plan has kept of a
stream may stand for all of it (`contents.py`).

Row windows, sequences, streams of changes and windows over sub-queries depend on order, or on what is no longer kept:
they are refused.
"""

from __future__ import annotations

from midstream.algebra import physical as p
from midstream.errors import InternalError, MigrationError
from midstream.migration.contents import Contents
from midstream.migration.execution import SingleBox
from midstream.migration.legality import require_all, require_one_query
from midstream.migration.moving_state import require_one_emission
from midstream.migration.protocol import Decision, Functions, Migrating, Situation
from midstream.operators.box import Box
from midstream.optimizer.plans import Plan

REPLAYED = (
    p.SourceNode,
    p.Filter,
    p.Compute,
    p.Unnest,
    p.WindowBounds,
    p.OverlappingBounds,
    p.Concatenate,
    p.HashJoin,
    p.MultiwayJoin,
    p.Deduplicate,
    p.GroupAggregate,
    p.OverPartition,
    p.OuterJoin,
    p.SetOperation,
)
"""The operators whose states do not depend on the order in which their inputs come."""

REPLAY = "replay"
"""What a decision says if windows go through the new plan."""


class MovingStateReplayed:
    """For plans that lie in different slots, over windows of time that the old plan has kept."""

    name = "moving_state_paced"

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks for operators that do not mind the order, and that what comes of each stream is kept."""
        require_one_query(self.name, old, new)
        require_one_emission(self.name, old, new)
        why = "what that holds depends on more than the rows that are still kept, or on their order"
        cannot = f"{self.name} cannot migrate this plan between slots"
        hint = "use strategy moving_state, which moves it at once"
        for plan in (old, new):
            require_all(plan.physical, lambda node: None if type(node) in REPLAYED else why, cannot, hint)
        contents = Contents(Box(old.physical, functions))
        for source in (node for node in p.walk_physical(new.physical) if isinstance(node, p.SourceNode)):
            if contents.leaf(source) is None:
                raise MigrationError(
                    f"{self.name} cannot migrate to this plan: it needs the window of {source.stream.alias}, "
                    "which the old plan has not kept",
                    detail="the old plan keeps only some columns, or only a result, of what the new plan reads",
                    hint="use strategy moving_state, which can take over results too, or genmig",
                )

    def decide(self, situation: Situation) -> Decision:
        """That windows go through the new plan."""
        return {REPLAY: True}

    def open(self, old: SingleBox, new: Box, decision: Decision) -> Migrating:
        """Never: the plans do not meet in a task."""
        raise InternalError("plans that lie in different slots do not migrate inside a task")
