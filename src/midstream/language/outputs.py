"""The names of output columns: as written, unique, and never those that Midstream adds itself."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from midstream.language.nodes import Node
from midstream.language.scope import Scope


def item_name(item: Node, scope: Scope, position: int) -> str:
    """The name of an item without AS: its column's, its function's, or its place in the list."""
    match item:
        case exp.Column() if (scope.nested(item) if item.args.get("table") else scope.row(item)) is not None:
            return str(item.name)
        case exp.Column():
            return scope.resolve(item)[0]
        case exp.Anonymous():
            return item.name.lower()
        case exp.Cast():
            return item_name(item.this, scope, position)
        case exp.Case():
            return "case"
    return f"column_{position}"


def unique_names(wanted: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """The names, where repeated ones and reserved ones (in any case of letters) get a number.

    >>> unique_names(["k", "v", "k", "ts"], reserved=["ts"])
    ['k', 'v', 'k_1', 'ts_1']
    """
    kept, taken = {name.casefold() for name in reserved}, set[str]()
    counts: dict[str, int] = {}
    names = []
    for name in wanted:
        unique = name
        while unique in taken or unique.casefold() in kept:
            counts[name] = counts.get(name, 0) + 1
            unique = f"{name}_{counts[name]}"
        taken.add(unique)
        names.append(unique)
    return names
