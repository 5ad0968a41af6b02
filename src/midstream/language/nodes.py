"""The syntax nodes that SQL does not have, and the place every node has in the text."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token

Node = exp.Expression

N = TypeVar("N", bound=exp.Expression)


class WindowClause(exp.Expression):
    """`[RANGE …]`, `[ROWS …]`, `[HOP …]` and their kin; `this` is the leading word."""

    arg_types = {
        "this": True,
        "size": False,
        "slide": False,
        "offset": False,
        "zone": False,
        "partition": False,
        "rows": False,
    }


class Duration(exp.Expression):
    """An amount of time as written: a number and perhaps a unit, or a text such as '5 seconds'."""

    arg_types = {"this": True, "unit": False}


class FollowedBy(exp.Expression):
    """A step of a sequence: `FOLLOWED BY source [mode] [ON …] [WITHIN …]`; also what ASOF JOIN is made of."""

    arg_types = {"this": True, "mode": False, "on": False, "within": False, "asof": False, "outer": False}


class TypeName(exp.Expression):
    """The name of a type, its parameters and whether it has a time zone."""

    arg_types = {"this": True, "expressions": False, "zoned": False}


def place(node: exp.Expr | None) -> int | None:
    """Where a node begins in the text, or where the first part of it that knows its place does."""
    if node is None:
        return None
    start = node.meta.get("start")
    if start is not None:
        return int(start)
    starts = [found for child in node.iter_expressions() if (found := place(child)) is not None]
    return min(starts) if starts else None


def at(node: N, token: Token) -> N:
    """The node, placed at a token."""
    node.meta["start"] = token.start
    return node
