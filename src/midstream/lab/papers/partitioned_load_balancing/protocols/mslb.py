"""Moving State Load Balancing: the groups stop, their states are sent, and they go on at the receiver (section 4).

Rows of the groups are held back at the split operators, and what is under way is processed first: a flag in every
queue says where the held-back rows begin. Then no row of the groups is anywhere but in states and in those buffers. The
receiver takes states that match its own plan's by state id, discards the others, and recomputes what is missing from
the bottom up. So the two machines' plans may differ. Nothing is processed twice and nothing is marked.

What the paper leaves open. Time must not pass the rows that are held back: a split operator that holds rows back holds
back its promise about time, too, in all its queues. Then sender and receiver come to stand at the same instant, and
operators that answer for stretches of time neither skip nor repeat one. The receiver installs states when its own time
has come to that of the states. `ReactivatePartitions` is acknowledged, and goes to the sender as well, which keeps its
copy until then.
"""

from __future__ import annotations

from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    DeactivatePartitions,
    ReactivatePartitions,
    SendPartitions,
)
from midstream.lab.papers.partitioned_load_balancing.protocols.phases import COMPUTE, Ask, Move, Phase, Protocol


def deactivate(move: Move) -> tuple[Ask, ...]:
    """Steps 3 and 4."""
    message = DeactivatePartitions(move.number, move.groups, move.sender, move.receiver, move.splits)
    splits = (Ask(s, message, (s, "Deactivated split")) for s in move.splits)
    return (*splits, Ask(move.sender, message, (move.sender, "Deactivated sender")))


def send(move: Move) -> tuple[Ask, ...]:
    """Steps 5 to 7: the answer comes from the receiver."""
    message = SendPartitions(move.number, move.groups, move.receiver)
    return (Ask(move.sender, message, (move.receiver, "Received")),)


def reactivate(move: Move) -> tuple[Ask, ...]:
    """Step 8."""
    message = ReactivatePartitions(move.number, move.groups, move.sender, move.receiver, move.splits)
    splits = (Ask(s, message, (s, "Acknowledged ReactivatePartitions by split")) for s in move.splits)
    return (*splits, Ask(move.sender, message, (move.sender, "Acknowledged ReactivatePartitions by processor")))


MSLB = Protocol(
    "mslb",
    (COMPUTE, Phase("deactivate", deactivate), Phase("send", send), Phase("reactivate", reactivate)),
    handed_over="reactivate",
)
