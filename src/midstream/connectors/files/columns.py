"""Which columns of a file are those of a stream."""

from __future__ import annotations

from collections.abc import Sequence


def declared_names(present: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    """The declared name of each column of a file that has one, which may differ in case, as Spark has it.

    >>> declared_names(["TS", "k", "more"], ["ts", "k", "v"])
    {'TS': 'ts', 'k': 'k'}
    """
    found = {name: name for name in present if name in set(declared)}
    twice = sorted(name for name in found if present.count(name) > 1)
    if twice:
        raise ValueError(f"the column {twice[0]} is there twice")
    for name in set(declared) - set(found):
        alike = [other for other in present if other.lower() == name.lower() and other not in found]
        if len(alike) > 1:
            raise ValueError(f"the columns {', '.join(alike)} differ in case only")
        found |= dict.fromkeys(alike, name)
    return {name: found[name] for name in present if name in found}
