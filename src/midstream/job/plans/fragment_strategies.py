"""Strategies for the fragments in which two plans of several stages differ, each inside its tasks."""

from __future__ import annotations

from midstream.algebra.physical import PhysicalNode
from midstream.distribution.alignment import differing_fragments
from midstream.distribution.fragments import Staged
from midstream.errors import InternalError
from midstream.migration.auto import Auto
from midstream.migration.execution import SingleBox
from midstream.migration.protocol import Decision, Functions, Migrating, Situation, Strategy
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
