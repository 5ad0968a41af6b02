"""Partition groups that several slots share, because one of their keys is hotter than a slot.

Of one stream, each row of such a group goes to one of the slots; the rows of all streams that it is joined with go to
each of them. Joining distributes over union, so every result is made in exactly one slot. Which rows of the spread
stream lie where does not matter: what came before stays in the group's home, and only the copied streams' state is
given to the other slots. To undo it, what was spread goes home, and the copies are forgotten.

An operator may be given both kinds of input where it answers for each row of the spread input by itself, from all of
the copied one: inner joins, and outer, semi and anti joins that keep the spread side. Operators for which rows of the
spread stream must meet each other cannot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from midstream.algebra import physical as p
from midstream.distribution.fragments import Fragment, Received, Route, SpreadGroup, Staged, class_received
from midstream.distribution.moves import StateName, input_of
from midstream.errors import JobError
from midstream.migration.contents import held_states
from midstream.operators.box import Box

Kind = Literal["spread", "copied"]
"""Whether each row of a group lies in one of its slots, or in every one."""

_KEPT = {"left": ("left", "semi", "anti"), "right": ("right",)}
"""The kinds of joins that answer for each row of a side by itself."""


def copied_streams(plans: Iterable[tuple[str, Staged]], spread: str, others: bool = False) -> tuple[str, ...]:
    """The streams that must be copied where another is spread; refuses what would not give the same results.

    `plans` are those of all queries, by their names. Fragments that read copied streams alone take no copies; where
    `other` streams are spread in other groups they could not be told apart, and are refused.
    """
    plans = list(plans)
    for name, staged in plans:
        _require_routes(name, staged, spread)
    reading = [f for _, staged in plans for f in staged.fragments if spread in _streams(f)]
    copied = frozenset[str]().union(*map(_streams, reading)) - {spread}
    for name, staged in plans:
        for fragment in staged.fragments:
            if spread in _streams(fragment):
                _require_spread(name, fragment, spread)
            elif others and _streams(fragment) & copied:
                _refuse_alone(name, fragment, spread)
    return tuple(sorted(copied))


def copied_leaves(plans: Iterable[tuple[str, Staged]], key_class: str, spread: str) -> tuple[str, ...]:
    """The keys by which rows are copied where those that fragments receive by another are spread.

    All fragments of a key class receive by the same keys. Refuses what would not give the same results.
    """
    copied, plans = set[str](), list(plans)
    if not any(class_received(fragment) == key_class for _, staged in plans for fragment in staged.fragments):
        raise JobError(f"nothing is exchanged by {key_class}")
    for name, staged in plans:
        for fragment in (f for f in staged.fragments if class_received(f) == key_class):
            keys = [leaf.route.key_text for leaf in fragment.received]
            if keys.count(spread) != 1 or "" in keys:
                raise JobError(
                    f"query {name} receives rows by {spread} several times, or others without a key",
                    detail="its rows would have to be spread and copied",
                )
            copied |= {*keys} - {spread}
            _require_kinds(name, fragment, spread)
    return tuple(sorted(copied))


def kinds_of_states(fragment: Fragment, box: Box, spread: str, key_class: str = "") -> dict[StateName, Kind]:
    """Which states of a fragment are spread where a stream is, and which are copied; empty if it does not read it."""
    if class_received(fragment) != key_class if key_class else spread not in _streams(fragment):
        return {}
    found: dict[StateName, Kind] = {}
    for held in (held for held in held_states(box) if not held.state.rests):
        if held.state.grouping is None:
            raise JobError("a state does not say of which partition group its rows are", detail=held.state.id)
        found[held.state.id, held.state.key] = _kind(input_of(box, held), spread)
    return found


def _streams(fragment: Fragment) -> frozenset[str]:
    return frozenset(source.stream.name for source in fragment.sources)


def _require_routes(name: str, staged: Staged, spread: str) -> None:
    """Refuses plans in which the stream's rows have no partition group, or in which they travel by probes."""
    if spread in staged.routes and not staged.routes[spread].key:
        raise JobError(
            f"the rows of {spread} arrive in {_arrival(staged.routes[spread])}", detail="they have no partition group"
        )
    if spread in staged.routes and staged.windows:
        raise JobError(f"query {name} joins by routes of its own", detail="one-way joins read the windows of one slot")


def _arrival(route: Route) -> str:
    return "any slot" if route.key is None else "one slot"


def _require_spread(name: str, fragment: Fragment, spread: str) -> None:
    both = [source.stream.name for source in fragment.sources if source.stream.name == spread]
    if len(both) > 1:
        raise JobError(f"query {name} joins {spread} with itself", detail="its rows would have to be spread and copied")
    _require_kinds(name, fragment, spread)


def _require_kinds(name: str, fragment: Fragment, spread: str) -> None:
    try:
        _kind(fragment.plan, spread)
    except JobError as error:
        raise JobError(f"query {name} cannot have {spread} spread: {error.message}", detail=error.detail) from None


def _refuse_alone(name: str, fragment: Fragment, spread: str) -> None:
    alone = ", ".join(sorted(_streams(fragment)))
    raise JobError(
        f"query {name} reads {alone} without {spread}, and other groups spread other streams",
        detail=f"where {spread} is spread, rows of {alone} are copied, and copies would count several times",
    )


def reads_alone(staged: Staged, groups: Iterable[SpreadGroup]) -> bool:
    """Whether a fragment of a plan reads streams that are copied, without the one that is spread."""
    shared = [group for group in groups if group.active and not group.key_class]
    read = [_streams(fragment) for fragment in staged.fragments]
    return any(streams & set(g.copied) and g.spread not in streams for g in shared for streams in read)


def _kind(node: p.PhysicalNode, spread: str) -> Kind:
    """How the output of a node lies; refuses a node that would not give its output as a whole."""
    if isinstance(node, Received):
        return "spread" if node.route.key_text == spread else "copied"
    if isinstance(node, p.SourceNode):
        return "spread" if node.stream.name == spread else "copied"
    below = [_kind(child, spread) for child in node.inputs]
    if "spread" not in below:
        return "copied"
    match node:
        case (
            p.Filter()
            | p.Compute()
            | p.Unnest()
            | p.AssignWindow()
            | p.WindowBounds()
            | p.PartialAggregate()
            | p.PartialDistinct()
        ):
            return "spread"
        case p.HashJoin() | p.MultiwayJoin() if below.count("spread") == 1:
            return "spread"
        case p.OuterJoin(kind=kind) if below.count("spread") == 1:
            side = "left" if below[0] == "spread" else "right"
            if kind == "inner" or kind in _KEPT[side]:
                return "spread"
        case p.Concatenate() if "copied" not in below:
            return "spread"
    raise JobError(f"{node.label} needs all rows of a key in one slot", detail=f"it is above {spread}")
