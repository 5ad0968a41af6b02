"""Split-time balancing: each machine answers for its side of an instant, as GenMig's boxes do for plans.

Rows that arrive during the move go to both machines, unmarked. Once all split operators duplicate, the split time is
chosen later than any instant up to which a row that has gone to the sender alone can matter. The receiver, which
starts without the groups, has by then seen everything that matters from the split time on, so it gives the right
answer for every later instant whatever operators its plan has; the sender gives it for every earlier one. Results are
cut at the split time or, where plans keep intervals, belong to the side on which they start. Both machines learn of the
move by the flags in their queues, and hold results of the groups back until the split time is known. The sender is done
when it has answered up to the split time.

This is not in the paper, which leaves distinct, grouping and other stateful operators to future work. PTLB refuses them
because a sender's distinct or aggregate speaks for instants for which the receiver's speaks as well. It takes the
memory of the plan: a window, or for sequences the window within which they look back.
"""

from __future__ import annotations

from midstream.errors import InternalError
from midstream.lab.papers.partitioned_load_balancing.protocols.messages import (
    DeletePartitions,
    DuplicatePartitions,
    SplitAt,
)
from midstream.lab.papers.partitioned_load_balancing.protocols.phases import COMPUTE, Ask, Move, Phase, Protocol


def duplicate(move: Move) -> tuple[Ask, ...]:
    """All split operators start to duplicate, and say until when earlier rows matter."""
    message = DuplicatePartitions(move.number, move.groups, move.sender, move.receiver, move.splits, marked=False)
    return tuple(Ask(s, message, (s, "Acknowledged DuplicatePartitions by split")) for s in move.splits)


def split(move: Move) -> tuple[Ask, ...]:
    """The split time is announced; the sender says when it has answered up to it."""
    if move.split_at is None:
        raise InternalError(f"move {move.number} has no split time")
    message = SplitAt(move.number, move.groups, move.sender, move.receiver, move.splits, move.split_at)
    return (
        Ask(move.receiver, message, (move.receiver, "Acknowledged SplitAt by processor")),
        Ask(move.sender, message, (move.sender, "AllOldPurged")),
    )


def delete(move: Move) -> tuple[Ask, ...]:
    """Split operators stop to duplicate, the sender forgets the groups, the receiver needs the split no more."""
    message = DeletePartitions(move.number, move.groups, move.sender, move.receiver, move.splits)
    splits = (Ask(s, message, (s, "Acknowledged DeletePartitions by split")) for s in move.splits)
    parties = (move.sender, move.receiver)
    return (*splits, *(Ask(p, message, (p, "Acknowledged DeletePartitions by processor")) for p in parties))


SPLIT_TIME = Protocol(
    "split_time_balancing",
    (COMPUTE, Phase("duplicate", duplicate), Phase("split", split), Phase("delete", delete)),
    handed_over="delete",
    doubled=frozenset({"duplicate", "split", "delete"}),
)
