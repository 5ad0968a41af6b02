"""Whether verdicts stay when seeds and settings change.

An experiment is a function of keyword arguments that all have defaults. One of them may be `seed`; without it a run is
the same every time. The settings whose published values are not known span a map, which its module gives beside it. A
report over several seeds has, for each verdict, in how many runs of each kind it held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from inspect import signature
from itertools import product
from multiprocessing import get_context
from typing import Any

from midstream.errors import JobError
from midstream.lab.experiments.report import MapRow, Report, Stable

SEED = "seed"
Arguments = Mapping[str, Any]
Axes = Mapping[str, Sequence[Any]]
"""The settings of a map: the values of each argument that varies."""

Point = Mapping[str, Any]


def defaults(function: Callable[..., Report]) -> dict[str, Any]:
    """The arguments of an experiment, with the values that they have unless others are set."""
    return {name: parameter.default for name, parameter in signature(function).parameters.items()}


def parsed(function: Callable[..., Report], texts: Sequence[str]) -> dict[str, Any]:
    """Arguments from texts such as `window=30`, read as the default's type; several numbers are set off by commas."""
    known, found = defaults(function), {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            listed = ", ".join(f"{key}={_shown(default)}" for key, default in known.items())
            raise JobError(f"this experiment has no setting {text!r}", hint=f"set one of: {listed or 'none'}")
        found[name] = _read(name, value, known[name])
    return found


def _shown(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, (tuple, range)) else str(default)


def _read(name: str, text: str, default: Any) -> Any:
    try:
        if isinstance(default, (tuple, range)):
            return tuple(type(default[0])(part) for part in text.split(","))
        return {"true": True, "false": False}[text.lower()] if isinstance(default, bool) else type(default)(text)
    except (ValueError, KeyError):
        raise JobError(
            f"{name} is not a {type(default).__name__}: {text!r}", hint=f"{name}={_shown(default)}"
        ) from None


@dataclass(frozen=True, slots=True)
class Trial:
    """One run to be made: of a function, in the plain setting (None) or one of its map."""

    function: Callable[..., Report]
    arguments: Arguments
    point: Point | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Tells runs apart: the values of all arguments."""
        return tuple({**defaults(self.function), **self.arguments}.values())

    def run(self) -> Report:
        """Makes the run."""
        return self.function(**self.arguments)


def trials(function: Callable[..., Report], arguments: Arguments, seeds: int, axes: Axes) -> list[Trial]:
    """The runs for so many seeds, the plain setting first; one seed says nothing of a map, and is run without it."""
    first = arguments.get(SEED, defaults(function).get(SEED))
    chosen: list[dict[str, Any]] = [{}] if first is None else [{SEED: first + number} for number in range(seeds)]
    return [
        Trial(function, {**arguments, **(point or {}), **seed}, point)
        for point in (None, *(points(axes) if seeds > 1 else ()))
        for seed in chosen
    ]


def points(axes: Axes) -> list[Point]:
    """Every setting of a map.

    >>> points({"window": (30, 60), "end": (80,)})
    [{'window': 30, 'end': 80}, {'window': 60, 'end': 80}]
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())] if axes else []


def run_trials(chosen: Sequence[Trial], processes: int) -> list[Report]:
    """Makes runs, several at a time; those with the same arguments are one."""
    apart = list({trial.key: trial for trial in chosen}.values())
    if processes <= 1 or len(apart) == 1:
        made = [trial.run() for trial in apart]
    else:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            made = list(pool.map(Trial.run, apart))
    found = {trial.key: report for trial, report in zip(apart, made, strict=True)}
    return [found[trial.key] for trial in chosen]


def judged(chosen: Sequence[Trial], reports: Sequence[Report]) -> Report:
    """The first run's report, each verdict with how stable it is, and the map; one run says nothing of that."""
    if len(reports) == 1:
        return reports[0]
    found = [(trial.point, report) for trial, report in zip(chosen, reports, strict=True)]
    plain = [report for point, report in found if point is None]
    mapped = [report for point, report in found if point is not None]
    first = plain[0]
    first.verdicts = [replace(verdict, stable=_stable(verdict.claim, plain, mapped)) for verdict in first.verdicts]
    for point in points_of(chosen):
        there = [report for other, report in found if other == point]
        judged_there = {v.claim: _stable(v.claim, there, ()) for v in first.verdicts}
        first.map.append(MapRow(point, {claim: found for claim, found in judged_there.items() if found.seeds}))
    return first


def points_of(chosen: Sequence[Trial]) -> list[Point]:
    """The settings of some runs, each once, in their order."""
    kept: list[Point] = []
    for trial in chosen:
        if trial.point is not None and trial.point not in kept:
            kept.append(trial.point)
    return kept


def _stable(claim: str, seeds: Sequence[Report], settings: Sequence[Report]) -> Stable:
    """In how many of the reports that judge a claim it holds."""
    here, there = ([v for r in reports for v in r.verdicts if v.claim == claim] for reports in (seeds, settings))
    values = tuple(verdict.value for verdict in here if verdict.value is not None)
    return Stable(sum(v.holds for v in here), len(here), sum(v.holds for v in there), len(there), values)
