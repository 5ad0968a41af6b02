"""The site at which the stream lives that a relation reads."""

from __future__ import annotations

from midstream.algebra.plan import Relation, Stream


def site_of(relation: Relation) -> str | None:
    """Where the stream lives whose window a relation is; None for any slot, or for more than a stream."""
    while len(relation.inputs) == 1:
        relation = relation.inputs[0]
    return relation.site if isinstance(relation, Stream) else None
