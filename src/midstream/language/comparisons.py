"""Comparisons of rows, of lists, structs and maps, and of a value with all elements of a list."""

from __future__ import annotations

import pyarrow.types as kind
from sqlglot import exp

from midstream.algebra.borrowed_forms import QUANTIFIED
from midstream.algebra.expressions import Call, Expression, Literal
from midstream.algebra.types import BOOLEAN, TEXT, show_type
from midstream.errors import QueryError
from midstream.language.nested import ORDERINGS, told_apart
from midstream.language.nodes import Node, at_same
from midstream.language.operator_tables import OPERATORS
from midstream.language.values import ValueBinder

SIGNS = {sign: type_ for type_, sign in OPERATORS.items()}


def rows_compared(binder: ValueBinder, operator: str, left: list[Node], right: list[Node], node: Node) -> Expression:
    """`(a, b) < (c, d)`: by the first parts that differ."""
    if len(left) != len(right):
        raise binder.binding.error(f"rows of {len(left)} and of {len(right)} values cannot be compared", node)

    def first_parts(sign: str) -> Expression:
        return binder.bind(at_same(SIGNS[sign](this=left[0], expression=right[0]), node))

    if len(left) == 1:
        return first_parts(operator)
    first = first_parts(operator[0] if operator in ("<=", ">=") else operator)
    rest = rows_compared(binder, operator, left[1:], right[1:], node)
    if operator in ("=", "<>"):
        return Call("and" if operator == "=" else "or", (first, rest), BOOLEAN)
    same = first_parts("=")
    return Call("or", (first, Call("and", (same, rest), BOOLEAN)), BOOLEAN)


def fields_of(binder: ValueBinder, node: Node, like: Node) -> list[Node] | None:
    """The parts of a row, or of a struct or the columns of a sub-query that are compared with one; else None."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Subquery) and isinstance(like, exp.Tuple) and isinstance(node.this, exp.Select):
        node = node.copy()
        if len(node.this.expressions) > 1:
            node.this.set("expressions", [exp.Tuple(expressions=[item.unalias() for item in node.this.expressions])])
    struct = binder.bind(node).type if isinstance(like, exp.Tuple) else None
    if struct is None or not kind.is_struct(struct):
        return None
    return [exp.Anonymous(this="field", expressions=[node, exp.Literal.string(f.name)]) for f in struct]


def nested_compared(binder: ValueBinder, function: str, arguments: list[Expression], node: Node) -> Call:
    """A comparison of lists, structs or maps."""
    if function in ORDERINGS:
        return _ordered(binder, ORDERINGS[function], arguments, node)
    if all(a.type == arguments[0].type or kind.is_null(a.type) for a in arguments):
        told = [Literal(None, TEXT) if kind.is_null(a.type) else told_apart(a) for a in arguments]
        return Call(function, tuple(told), BOOLEAN)
    if function == "in":
        parts = tuple(nested_compared(binder, "=", [arguments[0], other], node) for other in arguments[1:])
        return parts[0] if len(parts) == 1 else Call("or", parts, BOOLEAN)
    names = {tuple(f.name.casefold() for f in a.type) for a in arguments if kind.is_struct(a.type)}
    if function not in ("=", "<>") or len(names) > 1:
        shown, what = " and ".join(show_type(a.type) for a in arguments), function.replace("_", " ").upper()
        hint = "compare with a row: s = (1, 2)" if len(names) > 1 else None
        raise binder.binding.error(f"{what} needs values of one type, not {shown}", node, hint=hint)
    equal = _ordered(binder, "nested_equal", arguments, node)
    return equal if function == "=" else Call("not", (equal,), BOOLEAN)


def _ordered(binder: ValueBinder, function: str, arguments: list[Expression], node: Node) -> Call:
    try:
        return binder.borrowed(function, arguments, node)
    except QueryError:
        shown = " with ".join(show_type(a.type) for a in arguments)
        raise binder.binding.error(f"cannot compare {shown}", node, hint="cast one side with CAST(x AS …)") from None


def list_compared(binder: ValueBinder, operator: str, node: Node) -> Call:
    """`x > ANY (list)` or `x > ALL (list)`."""
    if operator not in QUANTIFIED:
        raise binder.binding.error("ANY and ALL stand behind a comparison", node.expression)
    word = "all" if isinstance(node.expression, exp.All) else "any"
    arguments = [binder.bind(node.this), binder.bind(node.expression.this)]
    return binder.borrowed(f"{word}_{QUANTIFIED[operator]}", arguments, node)
