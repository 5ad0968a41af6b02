"""What migrations are predicted to take, for every strategy: duration, work, rows held, silence.

The predictions extend CAPE's cost models (`lab/experiments/cape_costs.py`) to all strategies, with the optimizer's
estimates in place of the global window: how many tuples each stored input holds, and what a plan does per tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

from midstream.algebra.plan import (
    Aggregate,
    Difference,
    Distinct,
    Intersect,
    Join,
    MultiJoin,
    Relation,
    RowFunctions,
    aliases,
    walk_plan,
)
from midstream.algebra.time import BEGINNING
from midstream.migration.corrections import UNMEASURED, Prediction
from midstream.migration.moving_state_paced import LEAST_WORK, SHARE
from midstream.migration.moving_state_replayed import REPLAY
from midstream.migration.protocol import Decision, Situation
from midstream.optimizer.estimates import Estimator
from midstream.optimizer.plans import Plan

"""A join tree over the names of streams."""


class Predictor:
    """Predicts what going from one plan to another takes; `capacity` is the rows the machine handles per tick.

    Without a measured capacity it is taken to be twice what the running plan needs. What is below a part that migrates
    is there anyway and counts for nothing.
    """

    def __init__(self, old: Plan, new: Plan, situation: Situation, capacity: float | None = None) -> None:
        self.old, self.new, self.situation = old, new, situation
        self.estimator = Estimator(situation.statistics, old.emission)
        self.load = max(self._handled(old.logical), 1e-9)
        self.own_load = max(self.load - sum(map(self._handled, situation.unchanged)), 1e-9)
        self.excess = max(0.0, self.load - self._handled(new.logical))
        self.capacity = capacity or 2 * self.load
        self.batch_ticks = situation.statistics.batch_ticks or 1.0

    def predict(self, strategy: str, decision: Decision) -> Prediction:
        """What one strategy takes, with what it would decide now, corrected by what was measured of it."""
        correction = self.situation.corrections.get(strategy, UNMEASURED)
        return self._modelled(strategy, decision).corrected(correction, self.batch_ticks)

    def _modelled(self, strategy: str, decision: Decision) -> Prediction:
        match strategy:
            case "moving_state":
                # A row that goes to another slot is read, sent and stored again.
                work = self._filling + 2 * self.situation.shipped
                return Prediction(strategy, 0.0, work, self._missing_rows, self._silence(work))
            case "moving_state_paced":
                return self._replayed() if decision.get(REPLAY) else self._paced()
            case "parallel_track":
                return self._side_by_side(strategy, decision["old_until"], joint=1.0)
            case "genmig_reference_point":
                return self._side_by_side(strategy, decision["split_after"] + 1, joint=0.0)
        return self._side_by_side(strategy, decision["split_after"] + 1, joint=2.0)

    def _side_by_side(self, strategy: str, until: int, joint: float) -> Prediction:
        """Two boxes: the new one's work on the way, from nothing to full states, and what joins their results."""
        duration = float(max(0, until - self._now(until)))
        below = sum(map(self._growing, self.situation.unchanged))
        growing = duration * max(0.0, self._growing(self.new.logical) - below)
        results = duration * self.estimator.flow(self.new.logical).rate * joint
        elsewhere = {name for relation in self.situation.unchanged for name in stored_inputs(relation)}
        stored = stored_inputs(self.new.logical)
        rows = sum(self._held(relation) for name, relation in stored.items() if name not in elsewhere)
        return Prediction(strategy, duration, growing + results, rows, 0.0, duration * self.excess)

    def _now(self, otherwise: int) -> int:
        """Where time is: at the frontier, or while some stream has not come yet, at the earliest of the others."""
        if self.situation.frontier > BEGINNING:
            return self.situation.frontier
        return min(self.situation.starts.values(), default=otherwise)

    def _paced(self) -> Prediction:
        budget = max(LEAST_WORK, SHARE * self.own_load * self.batch_ticks)
        batches = -(-self._filling // budget)
        per_batch = min(self._filling, budget)
        heard = batches * self.batch_ticks * self.own_load
        return Prediction(
            "moving_state_paced",
            batches * self.batch_ticks,
            self._filling + heard,
            2 * self._missing_rows,
            self._silence(per_batch),
            batches * self.batch_ticks * self.excess,
        )

    def _replayed(self) -> Prediction:
        """All that is kept of streams is read, sent and goes through the new plan, some of it with each batch."""
        stored = stored_inputs(self.new.logical)
        leaves = [relation for (names, _), relation in stored.items() if len(names) == 1]
        sent, held = (sum(map(self._held, some)) for some in (leaves, stored.values()))
        arriving = sum(self.estimator.flow(leaf).rate for leaf in leaves) * self.batch_ticks
        batches = -(-sent // max(LEAST_WORK, SHARE * arriving))
        duration, work = batches * self.batch_ticks, 2 * sent + 2 * held
        return Prediction(
            "moving_state_paced",
            duration,
            work + duration * self._handled(self.new.logical),
            sent + held,
            self._silence(work / max(1, batches)),
            duration * self.excess,
        )

    def _silence(self, work: float) -> float:
        ticks = work / self.capacity
        return ticks if ticks > self.batch_ticks else 0.0

    @cached_property
    def _filling(self) -> float:
        """Equations 1 and 3 for hash joins: what is below is probed once, what is found is stored once."""
        return sum(
            self._held(relation) * 2 + sum(self._held(child) for child in computed_from(relation))
            for relation in self._missing
        )

    @cached_property
    def _missing_rows(self) -> float:
        return sum(self._held(relation) for relation in self._missing)

    @cached_property
    def _missing(self) -> list[Relation]:
        there = stored_inputs(self.old.logical)
        return [relation for name, relation in stored_inputs(self.new.logical).items() if name not in there]

    def _held(self, relation: Relation) -> float:
        return self.estimator.flow(relation).population

    def _growing(self, plan: Relation) -> float:
        """What a plan does per tick on the way from nothing to full states."""
        cost = self.estimator.cost(plan)
        return cost.probed + cost.inserted + (cost.matched + cost.evaluated) / 2

    def _handled(self, plan: Relation) -> float:
        cost = self.estimator.cost(plan)
        return cost.probed + cost.inserted + cost.matched + cost.evaluated


Stored = tuple[frozenset[str], str]
"""A stored input: its streams, and the operators other than joins below it."""


@lru_cache(maxsize=256)
def stored_inputs(plan: Relation) -> Mapping[Stored, Relation]:
    """What a plan's operators keep, named so that equal contents have equal names in whatever order they are joined."""
    found: dict[Stored, Relation] = {}
    for node in walk_plan(plan):
        if isinstance(node, Join | MultiJoin | Distinct | Aggregate | RowFunctions | Difference | Intersect):
            for child in node.inputs:
                others = sorted(n.label for n in walk_plan(child) if not isinstance(n, Join | MultiJoin))
                found.setdefault((aliases(child), "; ".join(others)), child)
    return found


def computed_from(relation: Relation) -> Iterator[Relation]:
    """What a stored input is computed from when it is missing."""
    node = relation
    while len(node.inputs) == 1:
        node = node.inputs[0]
    yield from node.inputs
