"""What a migration would be like: which part of the plans migrates, and what each strategy is predicted to take."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from midstream.errors import MigrationError
from midstream.migration.auto import Auto, preference_named
from midstream.migration.costs import Predictor
from midstream.migration.in_part import confined, require_part
from midstream.migration.plan_part import part_of
from midstream.migration.protocol import Decision, Situation
from midstream.migration.registry import STRATEGIES


def prediction_text(situation: Situation, part: str = "auto", preference: str = "least_silence") -> str:
    """The part, and the table of predictions for it; the strategy that `auto` would choose is marked."""
    require_part(part)
    if situation.old is None or situation.new is None:
        raise MigrationError("a forecast needs two plans")
    old, new = situation.old, situation.new
    line = "migrates: the whole plan"
    if part != "whole" and not part_of(old.physical, new.physical).whole:
        situation, found = confined(situation)
        line = f"migrates: {found.text}"
    return f"{line}\n{Auto(STRATEGIES, preference_named(preference)).choice(situation).explain()}"


def predicted(strategy: str, decision: Decision, situation: Situation) -> dict[str, Any] | None:
    """What a strategy that has decided is predicted to take, also if the user has named it; None if it is unknown."""
    record = next((p for p in decision.get("predictions", ()) if p["strategy"] == strategy), None)
    if record is not None or strategy not in STRATEGIES:
        return record
    here = confined(situation)[0] if decision.get("part") else situation
    if here.old is None or here.new is None:
        return None
    return asdict(Predictor(here.old, here.new, here).predict(strategy, decision))
