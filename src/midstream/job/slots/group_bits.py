"""How many partition groups a checkpoint has: chosen when it is made, as bits of a hash, and never changed."""

from __future__ import annotations

from midstream.errors import JobError
from midstream.job.task.exchange import FEWEST_BITS, MOST_BITS


def chosen_bits(bits: int) -> int:
    """A number of bits that can be."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not FEWEST_BITS <= bits <= MOST_BITS:
        raise JobError(
            f"keys are hashed into partition groups by {FEWEST_BITS} to {MOST_BITS} bits, not {bits!r}",
            hint=f"{FEWEST_BITS} bits are {2**FEWEST_BITS} groups, {MOST_BITS} bits {2**MOST_BITS}",
        )
    return bits


def require_bits(wanted: int | None, known: int, checkpoint: str) -> None:
    """Refuses another number of bits than a checkpoint was made with."""
    if wanted is not None and chosen_bits(wanted) != known:
        raise JobError(
            f"the checkpoint {checkpoint} has partition groups of {known} bits, not of {wanted}",
            detail="its states are sorted by group, and rows are routed by it",
            hint=f"leave group_bits out, say {known}, or use a new checkpoint",
        )
