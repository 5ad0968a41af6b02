"""Jobs that are struck from outside."""

from __future__ import annotations

from midstream.lab.bench.chaos import bench_chaos


def struck(on: str, kills: int, seed: int) -> dict[str, float]:
    """The figures of a job that is struck, none of which may be wrong."""
    figures = {figure.name.removeprefix(f"{on}: "): figure for figure in bench_chaos(kills, seed, on).figures}
    assert figures["queries that differ"].holds
    assert figures["ends not told in words"].holds
    assert figures["strikes"].value == kills
    return {name: figure.value for name, figure in figures.items()}
