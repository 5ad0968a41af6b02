"""How a query of a job goes over to another plan: inside its tasks, side by side, or by moving its state.

Two plans of one stage whose streams arrive alike meet in the same slots, and any strategy runs inside the tasks. So do
the fragments of two plans in the same stages, by strategies of which later stages notice nothing. Any other two lie in
different slots: either both run, each for its own side of a split, or the state of the one is moved
to where the other needs it.
"""

from __future__ import annotations

from dataclasses import replace

from midstream.algebra.physical import PhysicalNode
from midstream.algebra.statistics import Statistics
from midstream.checkpoint.records import DoubledMove
from midstream.distribution.alignment import differing_fragments
from midstream.distribution.fragments import Staged
from midstream.distribution.moves import plan_move
from midstream.errors import InternalError, MigrationError, is_permitted
from midstream.job.queries.running_query import MigrationUnderWay, RunningQuery
from midstream.migration.auto import Auto
from midstream.migration.execution import SingleBox
from midstream.migration.in_part import way, way_decided
from midstream.migration.legality import emission_class, is_to_stream
from midstream.migration.moving_state_replayed import MovingStateReplayed
from midstream.migration.predict import predicted
from midstream.migration.protocol import Decision, Functions, Migrating, Situation, Strategy
from midstream.migration.registry import strategy_named
from midstream.operators.box import Box
from midstream.optimizer.fixed_plan import fixed
from midstream.optimizer.plans import Plan


class WithinFragments:
    """A strategy asked about some fragments, given as pairs of their old and their new plan."""

    def __init__(self, strategy: Strategy, pairs: tuple[tuple[PhysicalNode, PhysicalNode], ...]) -> None:
        self.strategy, self.pairs = strategy, pairs
        self.name = strategy.name

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks the strategy about each fragment."""
        for mine, its in self.pairs:
            self.strategy.refuse(fixed(old, mine), fixed(new, its), functions)

    def decide(self, situation: Situation) -> Decision:
        """What the strategy decides for all fragments."""
        return self.strategy.decide(situation)

    def open(self, old: SingleBox, new: Box, decision: Decision) -> Migrating:
        """Never: tasks open the strategy itself, for one fragment each."""
        raise InternalError("a plan of several stages does not migrate inside one task")


def within_fragments(strategy: Strategy, old: Staged, new: Staged) -> WithinFragments | None:
    """The strategy for the fragments in which two plans differ; None if these are not in the same stages."""
    differing = differing_fragments(old, new)
    if differing is None:
        return None
    return WithinFragments(strategy, tuple((old.fragment(n).plan, new.fragment(n).plan) for n in differing))


def is_within(strategy: Strategy, name: str) -> bool:
    """Whether a strategy, or the one of this name that `auto` has chosen, runs inside the tasks of fragments."""
    chosen = strategy.strategies[name] if isinstance(strategy, Auto) else strategy
    return isinstance(chosen, WithinFragments)


INSIDE_FRAGMENTS = ("moving_state", "moving_state_paced")
"""The strategies by which fragments of a plan of several stages migrate inside their tasks: both give, after every
batch, what the old plan would have given, so that later stages notice nothing."""

BETWEEN_SLOTS: dict[str, Strategy] = {
    "genmig": strategy_named("genmig"),
    "genmig_reference_point": strategy_named("genmig_reference_point"),
    "moving_state_paced": MovingStateReplayed(),
    "moving_state": strategy_named("moving_state"),
}
"""The strategies for plans that lie in different slots, as `auto` prefers them while streams are not watched."""


def fit_tasks(query: RunningQuery, target: RunningQuery) -> bool:
    """Whether all that two plans need meets in the same slots, so that both can run in the same tasks."""
    return differing_fragments(query.staged, target.staged) is not None


def legal_strategy(
    query: RunningQuery,
    target: RunningQuery,
    asked: str,
    part: str = "auto",
    alone: bool = False,
    moving: bool = False,
) -> tuple[Strategy, bool]:
    """The strategy to go from one plan to the other, and whether they lie apart; refuses what would be wrong.

    `alone` says that a slot migrates by itself, which it can inside its tasks only; `moving` that groups of the query
    move to two slots.
    """
    strategy = strategy_named(asked)
    if fit_tasks(query, target) and query.staged.stages == 1:
        return way(strategy, query.plan, target.plan, query.functions, part), False
    known = _known(query, target, alone, moving)
    usable = [name for name in known if is_permitted(_require, query, target, known[name])]
    if asked == "auto":
        preferred = [name for name in usable if name != "genmig_reference_point"]
        if len(preferred) > 1:
            return Auto({name: known[name] for name in preferred}), not alone
        # Where none is legal, the refusal of moving_state says why.
        asked = preferred[0] if preferred else "moving_state"
    if asked not in known:
        raise MigrationError(
            f"{strategy.name} cannot migrate {'a slot of ' if alone else ''}query {query.name}: its plans have several "
            "stages, or need rows in other slots",
            detail=str(target.staged),
            hint=f"use {' or '.join(usable)}" if usable else "no strategy can migrate between these plans",
        )
    _require(query, target, known[asked])
    return known[asked], not isinstance(known[asked], WithinFragments)


def _known(query: RunningQuery, target: RunningQuery, alone: bool, moving: bool) -> dict[str, Strategy]:
    """The strategies for plans of several stages; where these are the same, fragments migrate inside their tasks.

    A slot `alone` can go over inside its tasks only. While groups are `moving`, no state of a whole plan is in one
    place: plans migrate inside tasks, or by a lane that opens empty.
    """
    made = [within_fragments(strategy_named(name), query.staged, target.staged) for name in INSIDE_FRAGMENTS]
    within = {strategy.name: strategy for strategy in made if strategy is not None}
    if alone:
        return {**within}
    if moving:
        return {**within, **{name: BETWEEN_SLOTS[name] for name in ("genmig", "genmig_reference_point")}}
    paced = [s for s in made[1:] if s is not None and is_permitted(_require, query, target, s)]
    return {**BETWEEN_SLOTS, **{strategy.name: strategy for strategy in paced}}


def _require(query: RunningQuery, target: RunningQuery, strategy: Strategy) -> None:
    if isinstance(strategy, WithinFragments):
        strategy.refuse(query.plan, target.plan, query.functions)
        return
    way(strategy, query.plan, target.plan, query.functions, "whole")
    if strategy.name == "moving_state":
        plan_move(query.staged, query.plan.physical, target.staged, query.functions)
    elif strategy.name != "moving_state_paced" and any(is_to_stream(plan.plan.physical) for plan in (query, target)):
        raise MigrationError(
            f"{strategy.name} cannot migrate query {query.name}: it gives a stream, and its plans have several stages",
            detail="ISTREAM, DSTREAM and RSTREAM must see one relation, and each side has only its own part of it",
            hint="use strategy moving_state",
        )


def decide(strategy: Strategy, apart: bool, situation: Situation, observed: Statistics | None) -> Decision:
    """What a strategy decides, with what it is predicted to take."""
    known = situation if observed is None else replace(situation, statistics=observed)
    if apart and isinstance(strategy, Auto) and observed is None:
        # Nothing is known of how much a batch can carry: both plans run, which is never silent.
        strategy = next(iter(strategy.strategies.values()))
    decision = strategy.decide(known)
    if apart:
        decision.setdefault("strategy", strategy.name)
    if "predictions" not in decision:
        record = predicted(strategy.name, decision, known)
        if record is not None:
            decision["predictions"] = [record]
    return decision


def require_cancellable(query: RunningQuery, move: DoubledMove | None) -> MigrationUnderWay:
    """The migration of a query, if it can go back to the old plan; `move` is that of its groups to two slots."""
    migration = query.migration
    if migration is None:
        raise MigrationError(f"query {query.name} is not migrating")
    if migration.begun is None:
        return migration
    paced = migration.chosen == "moving_state_paced"
    if migration.replays or (paced and query.staged.stages > 1):
        return migration
    if not migration.apart:
        # Boxes without state cancel as those with state do, or refuse as they would.
        strategy = way_decided(strategy_named(migration.strategy), dict(migration.decision))
        old = SingleBox(Box(query.plan.physical, query.functions), lambda _: None)
        strategy.open(old, Box(migration.target.plan.physical, query.functions), dict(migration.decision)).cancel()
        return migration
    if migration.done:
        raise MigrationError(
            f"the migration of query {query.name} is over",
            detail="the new plan answers from now on",
            hint="migrate back",
        )
    if move is not None and move.split_at is not None and migration.split_at <= move.split_at:
        raise MigrationError(
            f"the migration of query {query.name} cannot be cancelled while its groups move by {move.target.protocol}",
            detail="the old plan does not run in the slots that they go to",
            hint="cancel the move first, or let both end",
        )
    mine, its = (emission_class(q.plan.physical) for q in (query, migration.target))
    if mine != its:
        raise MigrationError(
            f"the migration of query {query.name} cannot be cancelled",
            detail=f"beyond the frontier the old plan gives {mine}, the new one {its}",
            hint="let it end, then migrate back",
        )
    return migration
