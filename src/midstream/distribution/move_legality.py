"""How groups of plans may move between slots, and what they need of a plan for that.

PTLB gives every result exactly once because results are combinations of rows; any other result, such as a distinct
tuple or an aggregate, would be given by both slots. Split-time balancing needs a finite memory: an instant after which
nothing matters that came before the move. MSLB moves state, and needs neither.
"""

from __future__ import annotations

from midstream.algebra import physical as p
from midstream.algebra.windows import Hop, Range
from midstream.errors import MigrationError
from midstream.migration.legality import relational_part, require_all

AUTO, MSLB, SPLIT_TIME, PTLB = "auto", "mslb", "split_time_balancing", "ptlb"
PROTOCOLS = (PTLB, MSLB, SPLIT_TIME)

DOUBLED = frozenset({SPLIT_TIME, PTLB})
"""The protocols by which rows of moving groups go to two slots."""

ENDLESS = "it remembers rows for ever, so there is no instant after which the sender is not needed"


def protocol_named(name: str) -> str:
    """A protocol by the name that people call it; "auto" is the one that is predicted to cost least.

    >>> protocol_named("split_time")
    'split_time_balancing'
    """
    name = SPLIT_TIME if name == "split_time" else name
    if name not in (AUTO, *PROTOCOLS):
        raise MigrationError(f"unknown balancing protocol {name!r}", hint=f"use one of {', '.join(PROTOCOLS)}")
    return name


def require_combinations(plan: p.PhysicalNode) -> None:
    """Raises a MigrationError if results of a plan are not combinations of rows, which marks can tell apart."""
    why = "sender and receiver would both give results for the same instants"
    hint = "use split_time_balancing, or mslb where the plan has no finite memory"
    cannot = "ptlb cannot move groups of this plan"
    require_all(relational_part(plan), lambda node: None if node.keeps_intervals else why, cannot, hint)
    if relational_part(plan) is not plan:
        raise MigrationError(
            "ptlb cannot move groups of this plan: it turns its result into a stream",
            detail="a machine that gives only some of a group's results cannot tell which of them change",
            hint="use split_time_balancing",
        )


def require_memory(protocol: str, plan: p.PhysicalNode) -> None:
    """Raises a MigrationError if there is no instant after which nothing matters that came before a move."""
    hint = "use mslb, which needs no instant after which the sender is not needed"
    require_all(plan, _endless, f"{protocol} cannot move groups of this plan", hint)


def _endless(node: p.PhysicalNode) -> str | None:
    match node:
        case p.SourceNode() if node.longest is None:
            return ENDLESS
        case p.OrderedRows():
            return "its rows count until others come, so nobody knows when the sender is no longer needed"
        case p.FollowedBy(mode="chronicle"):
            return "which rows it has used up depends on all rows before them"
        case p.FollowedBy(within=None):
            return ENDLESS
        case p.AssignWindow() if node.longest is None:
            return ENDLESS
    return None


def node_memory(node: p.PhysicalNode) -> int | None:
    """How far a node looks back by itself; None if there is no bound."""
    match node:
        case p.SourceNode():
            return _reach(node.window, node.longest)
        case p.AssignWindow():
            return _reach(node.spec, node.longest)
        case p.FollowedBy(mode=mode, within=within):
            return None if mode == "chronicle" else within
        case p.OrderedRows():
            return None
        case p.Changes():
            return 1  # a change at an instant is one from the instant before
    return 0


def _reach(window: object, longest: int | None) -> int | None:
    match window:
        case Range(size):
            return size + 1
        case Hop(longest_size=size, longest_slide=slide, zone=zone):
            # A row waits for the next boundary and then stays for the size, rounded up to boundaries; a boundary of
            # wall-clock time may be later than usual.
            return size + (2 if zone is None else 3) * slide
    return longest
