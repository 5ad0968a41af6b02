"""Windows of streams that operators keep: several operators, of several queries, may keep the same."""

from __future__ import annotations

from midstream.algebra.physical import PhysicalNode, Source, walk_physical
from midstream.algebra.physical.routed import KeptWindow
from midstream.distribution.fragments import Received, leaves
from midstream.operators.base import Operator
from midstream.operators.join import SymmetricJoin
from midstream.operators.state.sorted_state import SortedState


def has_null_keys(operator: Operator, state: SortedState) -> bool:
    """Whether rows with a null key are kept too: a join by equality drops them."""
    return not isinstance(operator, SymmetricJoin) or operator.nulls_equal or not state.key


def probed_alias(node: KeptWindow) -> str:
    """The stream whose window is kept for one-way joins."""
    return next(leaves(node.input.producer if isinstance(node.input, Received) else node.input)).stream.alias


def probed_token(node: KeptWindow) -> tuple[object, ...]:
    """What a window for one-way joins holds and in which slots, but for when it began: equal tokens, equal windows."""
    route = node.input.route if isinstance(node.input, Received) else None
    return node.name, route, tuple(node.schema.names)


def window_alias(node: PhysicalNode) -> str | None:
    """The one stream below a node that remembers nothing; what comes through an exchange is none."""
    nodes = list(walk_physical(node))
    sources = [n for n in nodes if isinstance(n, Source)]
    plain = not any(n.stateful for n in nodes)
    one = sources[0] if plain and len(sources) == 1 else None
    return None if one is None or isinstance(one, Received) else one.stream.alias
