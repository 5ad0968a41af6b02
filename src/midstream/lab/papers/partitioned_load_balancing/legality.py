"""Which protocol may move groups between machines that run by some plans.

MSLB needs every state of the receiver's plan to follow from those of the sender's; PTLB and split-time balancing need
what `distribution/move_legality.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.algebra import physical as p
from midstream.algebra.declarations import UserFunction
from midstream.distribution.fragments import Staged
from midstream.distribution.move_legality import node_memory, require_combinations, require_memory
from midstream.distribution.stages import cut
from midstream.errors import MigrationError
from midstream.lab.papers.partitioned_load_balancing.protocols.registry import PROTOCOLS, protocol_of
from midstream.migration.contents import Contents
from midstream.migration.state_move import StateMove
from midstream.operators.box import Box


def require_movable(
    protocol: str,
    sender: p.PhysicalNode,
    receiver: p.PhysicalNode,
    functions: Mapping[str, UserFunction] | None = None,
) -> None:
    """Raises a MigrationError if a protocol cannot move groups from a machine with one plan to one with another."""
    protocol_of(protocol)
    for plan in (sender, receiver):
        _require_one_group(protocol, cut(plan))
        if protocol == "ptlb":
            require_combinations(plan)
        if protocol != "mslb":
            require_memory(protocol, plan)
    if protocol == "mslb":
        StateMove(Contents(Box(sender, functions)), Box(receiver, functions), dict(functions or {}), follows=False)


def legal_protocols(
    sender: p.PhysicalNode, receiver: p.PhysicalNode, functions: Mapping[str, UserFunction] | None = None
) -> tuple[str, ...]:
    """The protocols that can move groups between machines with these plans."""
    found = []
    for name in PROTOCOLS:
        try:
            require_movable(name, sender, receiver, functions)
        except MigrationError:
            continue
        found.append(name)
    return tuple(found)


def _require_one_group(protocol: str, staged: Staged) -> None:
    """All rows that meet must be of one group, where groups of a plan run on machines of their own."""
    routes = [route for route in staged.routes.values() if not route.key]
    if staged.stages > 1 or routes:
        raise MigrationError(
            f"{protocol} cannot move groups of this plan: rows of different groups meet in it",
            detail=str(staged),
            hint="move groups of each stage on their own",
        )


def memory(plan: p.PhysicalNode) -> int | None:
    """How long after its start a row can matter, in ticks; None if there is no bound.

    Sequences and windows over sub-queries look back from their inputs' results, so their reach adds up.
    """
    inputs = [memory(child) for child in plan.inputs]
    own = node_memory(plan)
    known = [reach for reach in inputs if reach is not None]
    if own is None or len(known) < len(inputs):
        return None
    return own + max(known, default=0)
