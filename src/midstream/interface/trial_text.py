"""What a trial found, as a table: a figure a line, before and after the change, and how many times as much it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from midstream.algebra.time import amount, plural, seconds, size

Record = Mapping[str, Any]


def trial_text(found: Record) -> str:
    """What a trial found, for people."""
    rows, where = plural(sum(found["rows"].values()), "row"), "Spark" if found["on"] == "spark" else "local threads"
    head = f"{plural(found['batches'], 'batch', 'batches')} with {rows} on {where}"
    before, after = found["before"], found["after"]
    lines = [f"{head:<42} {'before':>12} {'after':>12}", _line("slots", before["slots"], after["slots"], str)]
    lines += [
        _line(f"{part}, a batch", took, after["seconds"][part], seconds) for part, took in before["seconds"].items()
    ]
    for name in after["queries"]:
        lines += _query_lines(found, name)
    return "\n".join([*lines, *_cost_lines(found)])


def _query_lines(found: Record, name: str) -> Iterator[str]:
    old, new = (found[side]["queries"].get(name) for side in ("before", "after"))
    told = found["forecast"][name]
    yield f"query {name}"
    if old is None or old["plan"] != new["plan"]:
        yield f"  by {new['plan'] or 'its only plan'}" + ("" if old is None else f" instead of {old['plan']}")

    yield from (f"  {text}" for text in found["short_windows"].get(name, ()))

    def line(title: str, of: Callable[[Record], float], shown: Callable[[Any], str]) -> str:
        return _line(title, None if old is None else of(old), of(new), shown)

    def forecast(of: Callable[[Record], float], shown: Callable[[Any], str]) -> str:
        return _line("  forecast", None if told["before"] is None else of(told["before"]), of(told["after"]), shown)

    yield line("state", lambda side: side["state_bytes"], size)
    yield line("rows of state", lambda side: side["state_rows"], amount)
    yield forecast(lambda side: side["state_rows"], amount)
    yield line("rows looked up or stored", lambda side: side["probed"] + side["inserted"], amount)
    yield forecast(lambda side: side["work"] * found["ticks"], amount)
    yield line("candidate pairs", lambda side: side["matched"], amount)
    yield line("operators, a batch", lambda side: side["seconds"], seconds)
    yield forecast(lambda side: side["seconds"], seconds)
    yield line("results", lambda side: side["results"], amount)
    if name in found["differences"]:
        yield from (f"  {line}" for line in difference_lines(found["differences"][name]))


def difference_lines(found: Record) -> Iterator[str]:
    """Where results differ first, and the rows that only one side has there."""
    if found["equal"]:
        yield "results are the same"
        return
    yield str(found["reason"])
    for side in ("before", "after"):
        yield from (f"only {side}: {row}" for row in found[f"only_{side}"][:5])


def costs_text(constants: Mapping[str, Record]) -> str:
    """What constants are, and what was measured."""
    return ", ".join(f"{name} {amount(c['used'])} (measured {amount(c['measured'])})" for name, c in constants.items())


def _cost_lines(found: Record) -> Iterator[str]:
    if found["factors"] is None:
        yield "too few rows came to hold the cost constants against what they took"
    else:
        yield f"cost constants: {costs_text(found['constants'])}"


def _line(title: str, before: float | None, after: float, shown: Callable[[Any], str]) -> str:
    values = ["–" if before is None else shown(before), shown(after)]
    times = f"  {after / before:.2f} times" if before and after != before else ""
    return f"  {title:<40} {values[0]:>12} {values[1]:>12}{times}"
