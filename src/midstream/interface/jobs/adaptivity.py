"""What a job file says about adaptivity: a mode, or a table with a mode and what else a policy says."""

from __future__ import annotations

from typing import Any

from midstream.adaptation.policy import MODES, Policy
from midstream.errors import JobError, instead_of
from midstream.interface.jobs.keys import ADAPTIVITY_KEYS

OFF = Policy("off")


def policy_in(wanted: Any, place: str, usual: Policy = OFF) -> Policy:
    """The policy at a place of a job file; the usual one if nothing is said there."""
    if wanted is None:
        return usual
    said = {"mode": wanted} if isinstance(wanted, str) else wanted
    if not isinstance(said, dict):
        raise JobError(f"{place} must be a mode or a table, not {wanted!r}", hint=f"use one of {', '.join(MODES)}")
    for key, value in said.items():
        _check(key, value, place)
    mode = said.get("mode", "auto")
    if mode not in MODES:
        raise JobError(f"{place} cannot be {mode!r}", hint=f"use one of {', '.join(MODES)}")
    return Policy(**{**said, "mode": mode})


def _check(key: str, value: Any, place: str) -> None:
    if key not in ADAPTIVITY_KEYS:
        raise JobError(f"unknown key {place}.{key}", hint=instead_of(key, ADAPTIVITY_KEYS))
    if key == "verify":
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise JobError(f"{place}.verify must be a duration, not {value!r}", hint='write for instance "10 minutes"')
    elif key == "per_slot":
        if not isinstance(value, bool):
            raise JobError(f"{place}.{key} must be true or false, not {value!r}")
    elif key != "mode" and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise JobError(f"{place}.{key} must be a number that is not negative, not {value!r}")
