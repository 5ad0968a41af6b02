"""Auto: of the strategies that may take one plan to the other, the one that is predicted to suit best.

What suits is the user's preference: the least silence, the least memory, the new plan as soon as possible, or the least
work, where what the old plan does more than the new one would counts as long as it still runs. Ties go to the strategy
that does less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, cast

from midstream.errors import MigrationError
from midstream.migration.corrections import Prediction
from midstream.migration.costs import Predictor
from midstream.migration.execution import SingleBox
from midstream.migration.protocol import Decision, Functions, Migrating, Situation, Strategy
from midstream.operators.box import Box
from midstream.optimizer.plans import Plan

Preference = Literal["least_silence", "least_memory", "soonest", "cheapest"]

PREFERENCES: dict[str, Callable[[Prediction], tuple[float, ...]]] = {
    "least_silence": lambda p: (p.silence, p.duration, p.work),
    "least_memory": lambda p: (p.rows, p.duration, p.work),
    "soonest": lambda p: (p.duration + p.silence, p.work),
    "cheapest": lambda p: (p.work + p.delayed, p.silence),
}


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """What was chosen, what every legal strategy was predicted to take, and why the others are refused."""

    chosen: str
    preference: str
    predictions: tuple[Prediction, ...]
    refusals: Mapping[str, str]

    def explain(self) -> str:
        """The predictions as a table, the chosen strategy marked."""
        lines = [f"migration by {self.chosen} ({self.preference})"]
        lines.append(f"  {'strategy':24}{'ticks':>22}{'work':>22}{'rows':>22}{'silence':>22}")
        for p in self.predictions:
            mark = "*" if p.strategy == self.chosen else " "
            ranges = [f"{low:.4g} to {high:.4g}" if high else "0" for low, high in p.ranges.values()]
            lines.append(f"{mark} {p.strategy:24}{''.join(f'{each:>22}' for each in ranges)}")
        lines += [f"  {name:24}refused: {reason}" for name, reason in self.refusals.items()]
        return "\n".join(lines)


def preference_named(name: str) -> Preference:
    """The preference of a name; refuses other names."""
    if name not in PREFERENCES:
        raise MigrationError(f"unknown preference {name!r}", hint=f"use one of {', '.join(PREFERENCES)}")
    return cast(Preference, name)


def _allowed(
    strategies: Mapping[str, Strategy], old: Plan, new: Plan, functions: Functions
) -> tuple[list[str], dict[str, str]]:
    """The strategies that may, and why the others may not; at least one must."""
    allowed, refusals = [], {}
    for name, strategy in strategies.items():
        if isinstance(strategy, Auto):
            continue
        try:
            strategy.refuse(old, new, functions)
        except MigrationError as error:
            refusals[name] = error.message
        else:
            allowed.append(name)
    if not allowed:
        raise MigrationError(
            "no strategy can migrate between these plans",
            detail="; ".join(dict.fromkeys(refusals.values())),
        )
    return allowed, refusals


class Auto:
    """Stands for whichever strategy suits best; what it has chosen is part of its decision."""

    name = "auto"

    def __init__(
        self,
        strategies: Mapping[str, Strategy],
        preference: Preference = "least_silence",
        most_silence: float = math.inf,
    ) -> None:
        self.strategies = strategies
        self.preference = preference
        self.most_silence = most_silence

    def refuse(self, old: Plan, new: Plan, functions: Functions) -> None:
        """Asks that some strategy may."""
        _allowed(self.strategies, old, new, functions)

    def decide(self, situation: Situation) -> Decision:
        """The chosen strategy and what it decides."""
        choice = self.choice(situation)
        inner = self.strategies[choice.chosen].decide(situation)
        return {**inner, "strategy": choice.chosen, "predictions": [asdict(p) for p in choice.predictions]}

    def choice(self, situation: Situation, capacity: float | None = None) -> StrategyChoice:
        """Asks every strategy whether it may, predicts what it would take, and picks by the preference.

        Strategies that would be silent for longer than the most come last.
        """
        if situation.old is None or situation.new is None:
            raise MigrationError("auto cannot choose without knowing the plans", hint="name a strategy")
        order = PREFERENCES[preference_named(self.preference)]
        allowed, refusals = _allowed(self.strategies, situation.old, situation.new, situation.functions)
        predictor = Predictor(situation.old, situation.new, situation, capacity)
        predictions = [predictor.predict(name, self.strategies[name].decide(situation)) for name in allowed]
        predictions.sort(key=lambda p: (p.silence > self.most_silence, *order(p)))
        return StrategyChoice(predictions[0].strategy, self.preference, tuple(predictions), refusals)

    def open(self, old: SingleBox, new: Box, decision: Decision) -> Migrating:
        """The chosen strategy's execution."""
        return self.strategies[decision["strategy"]].open(old, new, decision)
