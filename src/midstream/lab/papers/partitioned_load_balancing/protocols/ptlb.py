"""Parallel Track Load Balancing: both machines process the groups until the sender holds nothing old (section 3).

Rows that arrive during the move go to both machines; only the sender's copies are marked new. A combined row is new if
all its parts are. At the sender's root, combinations of only new parts are left out: the receiver has all of these
parts and gives the result. Any other combination has a part that the receiver never got. So each result is given once,
whenever each split operator starts to duplicate. When every row that has an old part is purged the sender is not
needed any more.

What the paper leaves open. A sender whose states happen to hold nothing old may report `AllOldPurged` before a slow
split operator has started to duplicate, and later rows of it would be lost: here split operators put
`StartOfDuplicates` into their queues, and the sender waits for all of them. The end of the move is known to the
paper's sender alone: here `DeletePartitions` is acknowledged, by the sender once `EndOfPartitions` has come in all its
queues and the groups are gone.

The paper finds that this takes W if the join tree has height 1, and 2W above, because a combined row is purged a window
after the latest of its parts. Where rows are kept for the intersection of their parts' intervals, as Midstream's boxes
do, a combined row ends with the first of its parts, and W is enough for every tree.
"""

from __future__ import annotations

from midstream.lab.papers.partitioned_load_balancing.protocols.messages import DeletePartitions, DuplicatePartitions
from midstream.lab.papers.partitioned_load_balancing.protocols.phases import COMPUTE, Ask, Move, Phase, Protocol


def duplicate(move: Move) -> tuple[Ask, ...]:
    """Steps 3 and 4."""
    message = DuplicatePartitions(move.number, move.groups, move.sender, move.receiver, move.splits, marked=True)
    splits = (Ask(s, message, (s, "Acknowledged DuplicatePartitions by split")) for s in move.splits)
    return (*splits, Ask(move.sender, message, (move.sender, "AllOldPurged")))


def delete(move: Move) -> tuple[Ask, ...]:
    """Step 5."""
    message = DeletePartitions(move.number, move.groups, move.sender, move.receiver, move.splits)
    splits = (Ask(s, message, (s, "Acknowledged DeletePartitions by split")) for s in move.splits)
    return (*splits, Ask(move.sender, message, (move.sender, "Acknowledged DeletePartitions by processor")))


PTLB = Protocol(
    "ptlb",
    (COMPUTE, Phase("duplicate", duplicate), Phase("delete", delete)),
    handed_over="delete",
    doubled=frozenset({"duplicate", "delete"}),
)
