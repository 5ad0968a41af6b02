"""What the demonstration shows while it runs: rates, the plan, state, work, and the migration."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from midstream.interface.demo.streams import STREAMS, Scenario
from midstream.interface.tables import plain_table
from midstream.interface.top.drawing import bars

SHOWN = 60


class View:
    """Draws a batch after another on standard error: live on a terminal, else a line each; or nothing at all."""

    def __init__(self, scenario: Scenario, quiet: bool) -> None:
        self.scenario = scenario
        self.console = Console(file=sys.stderr, highlight=False, quiet=quiet, soft_wrap=not sys.stderr.isatty())
        self.live = Live(console=self.console, refresh_per_second=4) if self.console.is_terminal and not quiet else None
        self.work: deque[int] = deque(maxlen=SHOWN)
        self.results = 0
        self.decision: str | None = None
        self.note = "starting Spark"

    def __enter__(self) -> View:
        if self.live is not None:
            self.live.start()
            self.live.update(Text(f"{self.note} …"))
        else:
            self.console.print(f"{self.note} …")
        return self

    def __exit__(self, *_: Any) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, note: str) -> None:
        """Says what is going on."""
        self.note = note
        if self.live is None:
            self.console.print(note)

    def batch(self, event: dict[str, Any], plan: str, tree: str, migrating: str | None) -> None:
        """Shows a batch."""
        query = event["queries"]["matches"]
        self.work.append(work_of(event))
        self.results += query["results"]
        decision = event["decisions"].get("matches")
        if decision is not None:
            self.decision = f"after batch {event['batch_id']}: {decision['reason']}"
        if self.live is None:
            moving = f", migrating to {migrating}" if migrating else ""
            self.console.print(
                f"batch {event['batch_id']:>2}: {sum(event['rows'].values()):,} rows, {query['results']:,} results, "
                f"{self.work[-1]:,} rows of work in {seconds_of(event):.2f} s, plan {plan}{moving}"
            )
            if decision is not None:
                self.console.print(f"  decided {self.decision}")
        else:
            self.live.update(self._drawn(event, plan, tree, migrating))

    def _drawn(self, event: dict[str, Any], plan: str, tree: str, migrating: str | None) -> Group:
        query = event["queries"]["matches"]
        rates = plain_table()
        for heading in ("stream", "rows", ""):
            rates.add_column(heading, justify="right" if heading == "rows" else "left")
        for name in STREAMS:
            rows = event["rows"].get(name, 0)
            rates.add_row(name, f"{rows:,}", "█" * (rows * 30 // self.scenario.fast))
        moving = Text(f"migrating to {migrating}", style="bold yellow") if migrating else Text(self.note, style="dim")
        facts = Text(
            f"batch {event['batch_id'] + 1} of {self.scenario.seconds}, {seconds_of(event):.2f} s    "
            f"results {self.results:,}    state {query['state_rows']:,} rows, {query['state_bytes'] / 1e6:.1f} MB"
        )
        why = Text(self.decision or "nothing decided yet", style="" if self.decision else "dim")
        decided = Panel(why, title="last decision", title_align="left")
        work = Text(f"work    {bars(self.work)}  {self.work[-1]:,} rows probed, matched and stored")
        return Group(facts, rates, work, Panel(tree, title=f"plan {plan}", title_align="left"), decided, moving)


def work_of(event: dict[str, Any]) -> int:
    """A batch's work in rows: what was probed, matched and stored."""
    query = event["queries"]["matches"]
    return int(query["probed"] + query["matched"] + query["inserted"])


def seconds_of(event: dict[str, Any]) -> float:
    """What a batch took by the clock, with what Spark takes."""
    return float(event["seconds"]["batch"])
