"""State that nothing ever frees: which parts of a plan remember their input without end, said before memory says it.

These plans are legal: the input may be finite, or short enough. `[UNBOUNDED]` asks for it in so many words; a sequence
without WITHIN does so by leaving a word out.
"""

from __future__ import annotations

from collections.abc import Iterator

from midstream.algebra import physical as p
from midstream.algebra.windows import Unbounded


def growth(plan: p.PhysicalNode) -> tuple[str, ...]:
    """What of a plan's state may or will grow without bound, one sentence each."""
    return tuple(dict.fromkeys(_growing(plan)))


def _growing(plan: p.PhysicalNode) -> Iterator[str]:
    for node in p.walk_physical(plan):
        if isinstance(node, p.FollowedBy) and node.within is None and (node.mode != "recent" or node.waits):
            yield _sequence(node)
        elif isinstance(node, p.MatchRows) and node.match.within is None:
            yield (
                f"MATCH_RECOGNIZE without WITHIN remembers tuples of {_readers(node)} while a match is open: "
                "the state grows without bound if one never ends"
            )
        elif node.keeps_valid_input:
            for child in node.inputs:
                if child.longest is None:
                    yield from _unbounded(child)


def _sequence(node: p.FollowedBy) -> str:
    firsts, seconds = _readers(node.left), _readers(node.right)
    if node.waits:
        return (
            f"ASOF JOIN with a later match and without WITHIN remembers tuples of {seconds} until one of {firsts} "
            "follows: the state grows without bound if none does"
        )
    if node.mode == "all":
        return f"ALL without WITHIN remembers every tuple of {firsts} for ever: the state grows without bound"
    return (
        f"CHRONICLE without WITHIN remembers tuples of {firsts} until they are used: the state grows without bound "
        "if they come faster than they are used"
    )


def _readers(node: p.PhysicalNode) -> str:
    return ", ".join(dict.fromkeys(n.stream.alias for n in p.walk_physical(node) if isinstance(n, p.SourceNode)))


def _unbounded(node: p.PhysicalNode) -> Iterator[str]:
    for source in p.walk_physical(node):
        if isinstance(source, p.SourceNode) and isinstance(source.window, Unbounded):
            yield f"{source.stream.alias} [UNBOUNDED] is remembered for ever: the state grows without bound"
