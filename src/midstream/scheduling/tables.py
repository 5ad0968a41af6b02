"""Next-operator rules as tables: for each position in the graph, an ordered list of condition and move.

Depth-first takes a tuple as far as it goes, breadth-first empties an input before it moves on, round-robin does so
along a path and leaves at its end, k-tuple batching takes up to k tuples before it moves on. Before a sink there is
nothing to go forward to; before a source there is nothing to go back to, so control returns to the scheduler. A fork
goes forward to each branch that has something, in turn. These are the rules of Bai et al., tables 1 to 3, with k
meaning k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from midstream.errors import QueryError

Move = Literal["forward", "encore", "backtrack", "exit"]
Condition = Literal["yield", "more", "always"]


class TablePosition(Enum):
    """Where an operator stands in its fragment."""

    SOURCE = "source"
    INNER = "inner"
    SINK = "sink"
    SOURCE_SINK = "source-sink"
    FORK = "fork"
    SOURCE_FORK = "source-fork"


@dataclass(frozen=True, slots=True)
class Rule:
    """If the condition holds, the move is made. `most` bounds how many tuples in a row an encore may take."""

    move: Move
    when: Condition
    most: int | None = None

    def __str__(self) -> str:
        bound = "" if self.most is None else f" and fewer than {self.most} taken"
        return f"{self.move} if {self.when}{bound}" if self.when != "always" else self.move


Rules = tuple[Rule, ...]

FORWARD = Rule("forward", "yield")
ENCORE = Rule("encore", "more")
BACKTRACK = Rule("backtrack", "always")
EXIT = Rule("exit", "always")


@dataclass(frozen=True, slots=True)
class Table:
    """The rules of every position; `paths_only` tables need graphs cut into paths by break nodes."""

    name: str
    rules: Mapping[TablePosition, Rules] = field(hash=False)
    paths_only: bool = False

    def __str__(self) -> str:
        lines = [f"{position.value}: {'; else '.join(map(str, rules))}" for position, rules in self.rules.items()]
        return "\n".join([self.name, *(f"  {line}" for line in lines)])


def table(name: str, first: Rule, second: Rule, last: Rule, *, paths_only: bool = False) -> Table:
    """A table from the three rules of an inner operator; the other positions follow from it."""
    inner = (first, second, last)
    before_sink = tuple(rule for rule in inner if rule.move != "forward")
    return Table(
        name,
        {
            TablePosition.SOURCE: (first, second, EXIT),
            TablePosition.INNER: inner,
            TablePosition.SINK: before_sink,
            TablePosition.SOURCE_SINK: (*before_sink[:-1], EXIT),
            TablePosition.FORK: inner,
            TablePosition.SOURCE_FORK: (first, second, EXIT),
        },
        paths_only,
    )


DEPTH_FIRST = table("dfs", FORWARD, ENCORE, BACKTRACK)
BREADTH_FIRST = table("bfs", ENCORE, FORWARD, BACKTRACK)
ROUND_ROBIN = table("rr", ENCORE, FORWARD, EXIT, paths_only=True)


def batching(k: int) -> Table:
    """Depth-first by batches of k tuples."""
    if k < 1:
        raise QueryError(f"a batch needs at least one tuple, not {k}", hint="write for instance batch:10")
    return table(f"batch:{k}", Rule("encore", "more", k), FORWARD, BACKTRACK)


TABLES = {t.name: t for t in (DEPTH_FIRST, BREADTH_FIRST, ROUND_ROBIN)}


def table_named(name: str) -> Table:
    """A table by its name: dfs, bfs, rr or batch:K (also written k=K).

    >>> print(table_named("batch:3").name)
    batch:3
    """
    known = TABLES.get(name)
    if known is not None:
        return known
    word, _, number = name.replace("k=", "batch:").partition(":")
    if word == "batch" and number.strip().isdigit():
        return batching(int(number))
    raise QueryError(f"unknown scheduling strategy {name!r}", hint="use dfs, bfs, rr, batch:K or chain")
