"""The syntax nodes that SQL does not have, and the place every node has in the text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token

Node = exp.Expression

N = TypeVar("N", bound=exp.Expression)


# These have parts that sqlglot does not know. Its compiled form (`sqlglot[c]`) allows no subclasses of its nodes.

WindowClause = exp.WindowSpec
"""`[RANGE …]`, `[ROWS …]`, `[HOP …]` and their kin.

`this` is the leading word; `size`, `slide`, `offset`, `zone`, `partition` and `rows` are there as the word wants them.
"""

Duration = exp.IntervalSpan
"""An amount of time as written: `this` is a number and there may be a `unit`, or a text such as '5 seconds'."""

FollowedBy = exp.MatchRecognize
"""A step of a sequence: `FOLLOWED BY this [mode] [ON on] [WITHIN within]`; `asof` and `outer` are for ASOF JOIN.

The mode of NOT FOLLOWED BY is `none`.
"""

JoinedSources = exp.From
"""Sources joined in parentheses: `this` is the first, `joins` are the others."""

TypeName = exp.DataType
"""The name of a type, its parameters (`expressions`) and whether it is `zoned`."""


def place(node: exp.Expr | None) -> int | None:
    """Where a node begins in the text, or where the first part of it that knows its place does."""
    if node is None:
        return None
    start = node.meta.get("start")
    if start is not None:
        return int(start)
    starts = [found for child in node.iter_expressions() if (found := place(child)) is not None]
    return min(starts) if starts else None


def everything_of(source: Node, **clauses: Node | Sequence[Node] | None) -> exp.Select:
    """`SELECT * FROM source …`."""
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=source), **clauses)


def lateral(rows: Node, source: Node, name: Node | None) -> Node:
    """A sub-query in the place of a source, which may name what stands to its left."""
    made = exp.Subquery(this=rows, lateral=True, alias=name)
    made.meta.update(source.meta)
    return made


def column_named(name: str, table: str | None = None) -> exp.Column:
    """A column by its exact name."""
    quoted = [None if text is None else exp.Identifier(this=text, quoted=True) for text in (name, table)]
    return exp.Column(this=quoted[0], table=quoted[1])


def at(node: N, token: Token) -> N:
    """The node, placed at a token."""
    node.meta["start"] = token.start
    return node


def at_same(made: Node, node: Node) -> Node:
    """A node in the place of another."""
    made.meta["start"] = place(node)
    return made


def with_arguments(body: Node, parameters: Sequence[str], arguments: Sequence[Node]) -> Node:
    """A value with arguments in place of its parameters."""
    given = {name.casefold(): argument for name, argument in zip(parameters, arguments, strict=True)}

    def argument(part: exp.Expr) -> exp.Expr:
        bare = isinstance(part, exp.Column) and not part.args.get("table")
        return given[part.name.casefold()].copy() if bare and part.name.casefold() in given else part

    changed = body.copy().transform(argument)
    assert isinstance(changed, Node)
    return changed


def all_of(parts: Sequence[Node], connector: type[Node] = exp.And) -> Node:
    """One or more conditions as one."""
    return reduce(lambda whole, part: connector(this=whole, expression=part), parts)


def is_known(node: Node) -> Node:
    """`node IS NOT NULL`."""
    return exp.Not(this=exp.Is(this=node, expression=exp.Null()))


def counting(call: exp.Anonymous, of: Node, conditions: Sequence[Node]) -> exp.Anonymous:
    """A count of something else where conditions hold, besides those that it has."""
    made, own = call.copy(), call.args.get("filter")
    made.set("expressions", [of])
    made.set("filter", all_of([*conditions, *([] if own is None else [own])]))
    return made


def bounds_of(between: Node) -> list[Node]:
    """The two conditions of a BETWEEN."""
    low, high = (between.args[side] for side in ("low", "high"))
    return [exp.GTE(this=between.this, expression=low), exp.LTE(this=between.this.copy(), expression=high)]


def flatten(node: Node, connector: type[Node]) -> list[Node]:
    """The parts of a chain of ANDs or ORs, left to right."""
    parts: list[Node] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if type(top) is connector:
            stack += [top.expression, top.this]
        else:
            parts.append(top)
    return parts


def is_joined(source: Node) -> bool:
    """Whether others stand beside a source, so that nobody asks in which order its rows come."""
    around = source.parent
    return around is not None and (
        not isinstance(around, exp.From) or bool(around.parent and around.parent.args.get("joins"))
    )
