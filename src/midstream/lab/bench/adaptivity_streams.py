"""Recorded streams whose rates and keys change from phase to phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Tables = dict[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Phase:
    """Ticks, rows per tick and stream, and for each column the number of values it takes."""

    ticks: int
    rates: Mapping[str, float]
    values: Mapping[str, float]


def record(columns: Mapping[str, Sequence[str]], phases: Sequence[Phase], seed: int, noise: float = 0.0) -> Tables:
    """The streams' rows over all phases; `values` are given per `stream.column`, or per column for all streams."""
    rng = np.random.default_rng(seed)
    parts: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in columns}
    start = 0
    for phase in phases:
        for name, own in columns.items():
            ticks = _arrivals(rng, phase, name, noise) + start
            part = {"ts": ticks}
            for column in own:
                values = phase.values.get(f"{name}.{column}", phase.values.get(column, 1000.0))
                part[column] = np.floor(rng.random(len(ticks)) * values).astype(np.int64)
            parts[name].append(part)
        start += phase.ticks
    return {
        name: pa.table({key: np.concatenate([p[key] for p in found]) for key in found[0]})
        for name, found in parts.items()
    }


def _arrivals(rng: np.random.Generator, phase: Phase, name: str, noise: float) -> np.ndarray:
    """Arrival times: as many per hundred ticks as the rate says, give or take the noise."""
    blocks = max(1, phase.ticks // 100)
    wobble = 1 + noise * (2 * rng.random(blocks) - 1)
    counts = rng.poisson(phase.rates[name] * phase.ticks / blocks * wobble)
    width = phase.ticks / blocks
    ticks = np.repeat(np.arange(blocks) * width, counts) + rng.random(int(counts.sum())) * width
    return np.sort(ticks.astype(np.int64))


def chain_query(names: str, window: int) -> str:
    """A chain of joins: neighbours have one column in common."""
    sources = ", ".join(f"{name} [RANGE {window}]" for name in names)
    links = [f"{a}.{a.lower()}{b.lower()} = {b}.{a.lower()}{b.lower()}" for a, b in zip(names, names[1:], strict=False)]
    return f"SELECT {names[0]}.ts AS first, {names[-1]}.ts AS last FROM {sources} WHERE {' AND '.join(links)}"


def chain_columns(names: str) -> dict[str, list[str]]:
    """The columns of the streams of a chain."""
    links = [f"{a.lower()}{b.lower()}" for a, b in zip(names, names[1:], strict=False)]
    return {name: [link for link in links if name.lower() in link] for name in names}


def hot_chain(
    names: str, hot: Sequence[tuple[int, ...]], ticks: int, rate: float, window: int, fan: float, cold: float = 0.1
) -> list[Phase]:
    """Phases in each of which some links of a chain multiply and the others are selective; rates change as well."""
    links = [f"{a.lower()}{b.lower()}" for a, b in zip(names, names[1:], strict=False)]
    phases = []
    for number, hot_links in enumerate(hot):
        rates = {name: rate * (1.5 if (i + number) % 3 == 0 else 1.0) for i, name in enumerate(names)}
        values = {link: window * rate / (fan if i in hot_links else cold) for i, link in enumerate(links)}
        phases.append(Phase(ticks, rates, values))
    return phases
