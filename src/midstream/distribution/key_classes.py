"""Key classes: what is dealt to slots by one table of partition groups.

Rows that meet in a fragment must be dealt alike, whatever it reads them from; fragments of different stages need not
be. So all that a fragment receives by keys is one class, which is named by these keys. All that arrives by a key is one
class too, and so is what travels by the hash by which streams arrive, since it meets windows that lie where rows
arrive. The name of a class is part of manifests: it must not depend on anything but keys and streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from midstream.algebra.expressions import Column
from midstream.algebra.physical import Compute, PhysicalNode, Source, replaced, walk_physical
from midstream.algebra.physical.routed import KeptWindow, OneWayJoin
from midstream.distribution.fragments import Fragment, Received, Staged

ARRIVAL = ""
"""The class of rows as they arrive, and of all that has none of its own."""


def with_key_classes(fragments: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """The fragments of a plan, with the class of each exchange in its route."""
    received = {fragment.number: fragment.received for fragment in fragments}
    readers = Counter(leaf.fragment for several in received.values() for leaf in several)
    found = {f.number: _class_of(f, received[f.number], readers) for f in fragments}
    travelling = {leaf.fragment: (found[number], leaf) for number, several in received.items() for leaf in several}
    return tuple(_named(f, found[f.number], travelling.get(f.number)) for f in fragments)


def key_classes(staged: Staged) -> tuple[str, ...]:
    """The classes of a plan's exchanges, sorted."""
    return tuple(sorted({f.route.key_class for f in staged.fragments} - {ARRIVAL}))


def class_received(fragment: Fragment) -> str:
    """The class by which what a fragment reads is dealt."""
    return next((leaf.route.key_class for leaf in fragment.received if leaf.route.key_class), ARRIVAL)


def in_words(key_class: str) -> str:
    """A class as people read it.

    >>> in_words("B.y = C.y"), in_words(ARRIVAL)
    ('by B.y = C.y', 'as rows arrive')
    """
    return f"by {key_class}" if key_class else "as rows arrive"


def _named(fragment: Fragment, received: str, sent: tuple[str, Received] | None) -> Fragment:
    route = fragment.route if sent is None else _leaf(sent[1], sent[0]).route
    if not received:
        return replace(fragment, route=route)
    plan = replaced(fragment.plan, lambda node: _leaf(node, received) if isinstance(node, Received) else None)
    return replace(fragment, route=route, plan=plan)


def _leaf(leaf: Received, key_class: str) -> Received:
    if not leaf.route.key or not key_class:
        return leaf
    return replace(leaf, route=replace(leaf.route, key_class=key_class, key_text=_key_text(leaf)))


def _class_of(fragment: Fragment, received: Sequence[Received], readers: Mapping[int, int]) -> str:
    keyed = [leaf for leaf in received if leaf.route.key]
    if any(leaf.route.arrival or leaf.route.slots or readers[leaf.fragment] > 1 for leaf in keyed):
        return ARRIVAL
    if keyed and any(isinstance(node, OneWayJoin | KeptWindow) for node in walk_physical(fragment.plan)):
        return ARRIVAL
    return " = ".join(sorted({_key_text(leaf) for leaf in keyed}))


def _key_text(leaf: Received) -> str:
    return ", ".join(_column_text(leaf.producer, name) for name in leaf.route.key or ())


def _column_text(node: PhysicalNode, column: str) -> str:
    """A column by the name that it has in its stream, as far as it is one of a stream."""
    match node:
        case Received(producer=below):
            return _column_text(below, column)
        case Source(stream=stream):
            return f"{stream.name}.{column.removeprefix(f'{stream.alias}.')}"
        case Compute(input=below, columns=columns):
            plain = {c.name: c.expression.name for c in columns if isinstance(c.expression, Column)}
            return _column_text(below, plain[column]) if column in plain else column
    for child in node.inputs:
        if column in child.schema.names:
            return _column_text(child, column)
    return column
