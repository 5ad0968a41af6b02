"""How eager adaptation is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from midstream.errors import QueryError
from midstream.optimizer.cost import Constants

Mode = Literal["off", "suggest", "auto"]
MODES: tuple[Mode, ...] = ("off", "suggest", "auto")


@dataclass(frozen=True, slots=True)
class Policy:
    """When to migrate.

    A plan counts as better from `least_gain` on. It must save `margin` times the migration's cost within `horizon`
    windows, and must already have been better by `evidence` times that cost, in `patience` looks at least. There are
    at most `per_hour` migrations in an hour, none of them silent for more than `silence` windows if there is another
    way. For `watch` windows after a migration, work may exceed what was predicted
    by `tolerance`; beyond, and if the old plan would have done better, there is a way back. With `per_slot` each slot
    decides for itself between plans of the same stages, by what it has seen itself.

    With `verify`, a duration, each migration is rehearsed beside the query and compared for so long before it counts.
    `constants` are what plans are weighed by; None: those of the cluster on which the query runs.
    """

    mode: Mode = "auto"
    least_gain: float = 0.1
    horizon: float = 10.0
    margin: float = 1.5
    evidence: float = 0.5
    patience: int = 2
    per_hour: int = 60
    silence: float = 1.0
    warm_up: int = 4
    check_every: int = 1
    watch: float = 2.0
    tolerance: float = 0.5
    per_slot: bool = False
    constants: Constants | None = None
    verify: int | str | None = None

    def __post_init__(self) -> None:
        mode_of(self.mode)
        if self.per_slot and self.verify is not None:
            raise QueryError("a policy has per_slot or verify, not both", hint="verifying compares whole queries")

    def priced(self, constants: Constants) -> Policy:
        """The policy of a query on a cluster with some constants, unless it has constants of its own."""
        return self if self.constants is not None else replace(self, constants=constants)


def policy_of(wanted: Policy | Mode) -> Policy | None:
    """The policy that is asked for by itself or by its mode; None if adaptivity is off."""
    policy = wanted if isinstance(wanted, Policy) else Policy(wanted)
    return None if policy.mode == "off" else policy


def mode_of(text: str) -> Mode:
    """A mode by its name."""
    for mode in MODES:
        if mode == text:
            return mode
    raise QueryError(f"adaptivity is off, suggest or auto, not {text!r}")
