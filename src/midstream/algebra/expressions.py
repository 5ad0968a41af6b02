"""Scalar and aggregate expressions: typed, frozen, printable.

An expression is bound: every column is a unique name of its input relation (`A.k`), every node knows its type, every
implicit cast is written out. What a function computes is defined twice, on purpose: row by row in `semantics`, column
by column in `operators`; its name and type are defined once, in `functions`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Expression:
    """Something that has one value per tuple."""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the value."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """The expressions this one is made of."""
        return ()

    def with_arguments(self, arguments: tuple[Expression, ...]) -> Expression:
        """The same node over other arguments."""
        return self


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A column of the input, by its unique name."""

    name: str
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant. The value is a plain Python value (None, bool, int, float, Decimal, str, bytes, date, …)."""

    value: Any
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    def __str__(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case bool():
                return str(self.value).upper()
            case str():
                return "'" + self.value.replace("'", "''") + "'"
            case bytes():
                return f"X'{self.value.hex()}'"
            case dt.datetime():
                return f"TIMESTAMP '{self.value.isoformat(sep=' ')}'"
            case dt.date():
                return f"DATE '{self.value.isoformat()}'"
            case dt.timedelta():
                return f"INTERVAL '{self.value // dt.timedelta(microseconds=1)} microseconds'"
            case _:
                return str(self.value)


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function or operator applied to arguments; `function` is a name in `functions.SCALAR` or user-defined."""

    function: str
    args: tuple[Expression, ...]
    data_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    @property
    def arguments(self) -> tuple[Expression, ...]:
        return self.args

    def with_arguments(self, arguments: tuple[Expression, ...]) -> Expression:
        return replace(self, args=arguments)

    def __str__(self) -> str:
        a = [str(x) for x in self.args]
        if self.function in INFIX and len(a) >= 2:
            return "(" + f" {self.function.upper()} ".join(a) + ")"
        match self.function:
            case "not":
                return f"(NOT {a[0]})"
            case "negate":
                return f"(- {a[0]})" if a[0].startswith("-") else f"(-{a[0]})"
            case "is_null":
                return f"({a[0]} IS NULL)"
            case "in":
                return f"({a[0]} IN ({', '.join(a[1:])}))"
        return f"{self.function}({', '.join(a)})"


INFIX = frozenset({"+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">=", "and", "or"})


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """A value in another type; `attempt` gives null where the value does not fit, otherwise that is an error."""

    input: Expression
    data_type: pa.DataType
    attempt: bool = False

    @property
    def type(self) -> pa.DataType:
        return self.data_type

    @property
    def arguments(self) -> tuple[Expression, ...]:
        return (self.input,)

    def with_arguments(self, arguments: tuple[Expression, ...]) -> Expression:
        return replace(self, input=arguments[0])

    def __str__(self) -> str:
        return f"{'TRY_' if self.attempt else ''}CAST({self.input} AS {self.data_type})"


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """The value of the first branch whose condition is true, else the default."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression

    @property
    def type(self) -> pa.DataType:
        return self.default.type

    @property
    def arguments(self) -> tuple[Expression, ...]:
        return (*(part for branch in self.branches for part in branch), self.default)

    def with_arguments(self, arguments: tuple[Expression, ...]) -> Expression:
        pairs = tuple(zip(arguments[:-1:2], arguments[1:-1:2], strict=True))
        return Case(pairs, arguments[-1])

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {c} THEN {v}" for c, v in self.branches)
        return f"CASE {whens} ELSE {self.default} END"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the tuples of a group; no argument means `count(*)`; `where` is the FILTER clause.

    `form` is the SQL of an aggregate that another engine computes, over its arguments as `{0}`, `{1}` and so on.
    """

    function: str
    args: tuple[Expression, ...]
    data_type: pa.DataType
    distinct: bool = False
    where: Expression | None = None
    form: str = ""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the result."""
        return self.data_type

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.args)) or "*"
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{inside})"
        if self.form:
            text = filled(self.form, [str(a) for a in self.args])
        return text if self.where is None else f"{text} FILTER (WHERE {self.where})"


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the unique name its values get."""

    name: str
    expression: Expression

    def __str__(self) -> str:
        text = str(self.expression)
        return text if text == self.name else f"{text} AS {self.name}"


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """An aggregate and the unique name its values get."""

    name: str
    call: AggregateCall

    def __str__(self) -> str:
        text = str(self.call)
        return text if text == self.name else f"{text} AS {self.name}"


def filled(template: str, texts: Sequence[str]) -> str:
    """A template with texts in place of `{0}`, `{1}` and so on.

    >>> filled("arg_max({0}, {1})", ["name", "price"])
    'arg_max(name, price)'
    """
    for i, text in enumerate(texts):
        template = template.replace(f"{{{i}}}", text)
    return template


TRUE = Literal(True, pa.bool_())


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it, parents first."""
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.arguments))


def columns_of(expression: Expression) -> frozenset[str]:
    """The names of the columns an expression reads."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Column))


def rewrite(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with `change` applied to every node, children first."""
    arguments = expression.arguments
    changed = tuple(rewrite(a, change) for a in arguments)
    return change(expression if changed == arguments else expression.with_arguments(changed))


def substitute(expression: Expression, by_name: dict[str, Expression]) -> Expression:
    """The expression with columns replaced."""
    return rewrite(expression, lambda e: by_name.get(e.name, e) if isinstance(e, Column) else e)


def conjuncts(predicate: Expression | None) -> tuple[Expression, ...]:
    """The parts of a conjunction, flattened.

    >>> [str(c) for c in conjuncts(conjunction([TRUE, Literal(False, pa.bool_())]))]
    ['FALSE']
    """
    if predicate is None or predicate == TRUE:
        return ()
    if isinstance(predicate, Call) and predicate.function == "and":
        return tuple(part for a in predicate.args for part in conjuncts(a))
    return (predicate,)


def conjunction(parts: list[Expression] | tuple[Expression, ...]) -> Expression:
    """The conjunction of the parts; true when there are none."""
    kept = [p for p in parts if p != TRUE]
    if not kept:
        return TRUE
    if len(kept) == 1:
        return kept[0]
    return Call("and", tuple(kept), pa.bool_())


def call(function: str, *args: Expression, type: pa.DataType | None = None) -> Call:
    """A call, boolean unless told otherwise.

    >>> str(call("=", Column("A.k", pa.int64()), Column("B.k", pa.int64())))
    '(A.k = B.k)'
    """
    return Call(function, args, type or pa.bool_())
