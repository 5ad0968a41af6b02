"""`nos-messages`: how many messages a change of plans takes, by both ways of modification (Tran and Lee, table 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from midstream.lab.experiments.nos_protocol import Tally, change
from midstream.lab.experiments.nos_workload import CHANGING, HIGH, LOW, setting, settings, statistics
from midstream.lab.experiments.plots import Plot, Series
from midstream.lab.experiments.report import Figure, Report
from midstream.lab.papers.node_operator_sets.cost import way_cost
from midstream.lab.papers.node_operator_sets.greedy import greedy_plan
from midstream.lab.papers.node_operator_sets.printed_update import Printed, Reading, printed_update, readings

SIZES = (4, 8, 16, 32)
MODES = ("centralized", "distributed")


@dataclass(frozen=True, slots=True)
class Published:
    """A row of table 3 for one direction: messages of modification, migration and synchronisation."""

    modification: int
    migration: int
    synchronisation: int


TABLE = {
    (4, "centralized", True): Published(4, 34, 24),
    (4, "centralized", False): Published(4, 27, 24),
    (4, "distributed", True): Published(65, 61, 44),
    (4, "distributed", False): Published(59, 55, 32),
    (8, "centralized", True): Published(8, 131, 112),
    (8, "centralized", False): Published(8, 115, 112),
    (8, "distributed", True): Published(561, 181, 152),
    (8, "distributed", False): Published(283, 83, 48),
}

DOWN_DIFFERS = (
    "by the sets, {} windows are kept at nodes that did not keep them, {} of which are the nodes' own streams; the "
    "published count has {}"
)


def nos_messages(sizes: Sequence[int] = SIZES) -> Report:
    """Table 3, and curves to many nodes."""
    report = Report("nos-messages", "Messages of plan modification and migration (Tran and Lee, table 3)", settings())
    tallies = {(n, mode, up): change(n, mode, up).tally for n in sizes for mode in MODES for up in _directions(n)}
    for (count, mode, up), published in TABLE.items():
        if count in sizes:
            if mode == "centralized":
                _centralized(report, count, up, published, tallies[count, mode, up])
            else:
                _distributed(report, count, up, published, tallies[count, mode, up])
    _complexity(report, sizes, tallies)
    _curves(report, sizes, tallies)
    return report


def _directions(count: int) -> tuple[bool, ...]:
    """Both directions for the published sizes; beyond them one is enough."""
    return (True, False) if count <= 8 else (True,)


def _way(up: bool) -> str:
    return "rate increases" if up else "rate decreases"


def _centralized(report: Report, count: int, up: bool, published: Published, tally: Tally) -> None:
    report.verdict(
        f"centralized, {count} nodes, {_way(up)}: modification takes n messages",
        f"{published.modification}",
        f"{tally.modification}: {tally.messages['Report']} report and {tally.messages['Prepare']} new sets",
        tally.modification == published.modification == count,
        kind="check",
    )
    report.verdict(
        f"centralized, {count} nodes, {_way(up)}: synchronisation takes 2n(n - 1) messages",
        f"{published.synchronisation}",
        f"{tally.synchronisation}",
        tally.synchronisation == published.synchronisation == 2 * count * (count - 1),
        kind="check",
    )
    moved = tally.migration - tally.synchronisation
    own = tally.messages["Contents"] - tally.messages["Wanted"]
    report.verdict(
        f"centralized, {count} nodes, {_way(up)}: migration messages",
        f"{published.migration}, {published.migration - published.synchronisation} of them requests for windows",
        f"{tally.migration}, {moved} of them requests for windows",
        tally.migration == published.migration,
        DOWN_DIFFERS.format(moved, own, published.migration - published.synchronisation),
    )


def _distributed(report: Report, count: int, up: bool, published: Published, tally: Tally) -> None:
    """Each cell against every reading of the printed algorithm; what the protocol that runs sends stands beside it."""
    printed = [as_printed(count, up, reading) for reading in readings()]
    running = {
        "modification": tally.modification,
        "synchronisation": tally.synchronisation,
        "migration": tally.migration,
    }
    parts = ", ".join(f"{kind} {number}" for kind, number in printed[0].messages.most_common())
    for part, runs in running.items():
        wanted, counts = getattr(published, part), sorted({getattr(form, part) for form in printed})
        report.verdict(
            f"distributed, {count} nodes, {_way(up)}: {part} messages as published, by a reading of Algorithm 3",
            f"{wanted}",
            f"as printed {' or '.join(map(str, counts))} by {len(printed)} readings; {runs} by the protocol that runs",
            wanted in counts,
            f"the most literal reading has {printed[0].swaps} swaps and sends {parts}; the paper does not say what one "
            "message carries, nor how often nodes are synchronised",
            value=min(counts, key=lambda n: abs(n - wanted)) / wanted,
        )
    _same_plan(report, count, up, printed)


def as_printed(count: int, up: bool, reading: Reading) -> Printed:
    """The printed algorithm after a change of the rate."""
    chosen = setting(count)
    old, new = (statistics(count, rate) for rate in ((LOW, HIGH) if up else (HIGH, LOW)))
    plan = greedy_plan(chosen.conditions, old, chosen.costs)
    return printed_update(plan, old, new, CHANGING, chosen, reading)


def _same_plan(report: Report, count: int, up: bool, printed: Sequence[Printed]) -> None:
    """Whether the printed algorithm ends where Algorithm 1 does, equal costs apart, and which ways differ."""
    chosen, known = setting(count), statistics(count, HIGH if up else LOW)
    greedy = greedy_plan(chosen.conditions, known, chosen.costs)
    ended = printed[0].plan
    assert ended is not None
    costs = {way.head: way_cost(way, known, chosen.costs) for way in greedy}
    dearer = [way.head for way in ended if way_cost(way, known, chosen.costs) > costs[way.head] * (1 + 1e-9)]
    report.verdict(
        f"{count} nodes, {_way(up)}: Algorithm 3 as printed ends in a plan as good as Algorithm 1's",
        "both approaches always generate the same plan",
        "as good a plan" if not dearer else f"the way of {', '.join(dearer)} costs more",
        not dearer,
        f"it repairs ways by the one-way join to {CHANGING}, and the way of {CHANGING}'s own rows has none; with the "
        "triggers that the protocol here adds, both end in the same plan",
    )


def _complexity(report: Report, sizes: Sequence[int], tallies: dict[tuple[int, str, bool], Tally]) -> None:
    central = {n: tallies[n, "centralized", True].modification for n in sizes}
    spread = {n: tallies[n, "distributed", True].modification for n in sizes}
    report.verdict(
        "centralized modification takes O(n) messages",
        "n",
        ", ".join(f"{n}: {count}" for n, count in central.items()),
        all(count <= n + 1 for n, count in central.items()),
        kind="check",
    )
    report.verdict(
        "distributed modification takes O(n³) messages",
        "O(n³)",
        ", ".join(f"{n}: {count} ({count / n**3:.2f} n³)" for n, count in spread.items()),
        all(count <= n**3 for n, count in spread.items()),
    )
    report.verdict(
        "distributed modification takes more messages than centralized",
        "65 against 4, 561 against 8",
        ", ".join(f"{n}: {spread[n]} against {central[n]}" for n in sizes),
        all(spread[n] > central[n] for n in sizes),
        kind="check",
    )


def _curves(report: Report, sizes: Sequence[int], tallies: dict[tuple[int, str, bool], Tally]) -> None:
    xs = [math.log2(n) for n in sizes]

    def series(value: str) -> list[Series]:
        found = []
        for mode in MODES:
            chosen = [tallies[n, mode, True] for n in sizes]
            values: dict[str, list[float]] = {
                "messages": [t.modification + t.migration for t in chosen],
                "bytes": [sum(t.bytes.values()) for t in chosen],
                "time": [t.switched for t in chosen],
            }
            ys = values[value]
            found.append(Series(mode, xs, [math.log10(y) for y in ys]))
        return found

    facts = {
        "messages": ("4 nodes: 38 centralized, 126 distributed", "8 nodes: 139 and 742"),
        "bytes": ("not published",),
        "time": ("not published per change; figure 5 has the sum over nodes",),
    }
    units = {"messages": "messages", "bytes": "bytes", "time": "seconds until all have switched"}
    for value, unit in units.items():
        plot = Plot(f"A change of plans: {value}", "log2 of nodes", f"log10 of {unit}", series(value))
        report.figures.append(Figure(plot, "Table 3", facts[value]))
