"""Expressions over columns: compiled once, then one call per batch.

Compiling finds each column's position, turns literals into Arrow scalars, computes what is constant, and picks a kernel
for every call. A compiled expression keeps the expression it came from and is compiled anew where it is unpickled.

Columns are computed whole, so a branch of CASE also sees rows that are not its own. When that fails, the expression is
computed again in the language's order, each part only for the rows that ask for it: an error counts only if a row's own
value needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.borrowed import BORROWED, borrow, columns_among
from midstream.algebra.database import evaluate
from midstream.algebra.declarations import ScalarFunction, UserFunction
from midstream.algebra.expressions import Call, Case, Cast, Column, Expression, Literal, walk
from midstream.errors import InputError, InternalError
from midstream.operators.elements import Mask
from midstream.operators.scalars import KERNELS
from midstream.operators.scalars.casts import cast_kernel
from midstream.operators.scalars.kernels import Constants, Datum, column
from midstream.operators.scalars.masks import mask_node, mask_of

Node = Callable[[pa.RecordBatch], Datum]
Functions = Mapping[str, UserFunction]

_ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], ["nothing"])


class CompiledExpression:
    """An expression ready to run: a batch in, a column of its length and of exactly the expression's type out."""

    __slots__ = ("_node", "expression", "functions", "schema")

    def __init__(self, expression: Expression, schema: pa.Schema, functions: Functions | None = None) -> None:
        self.expression = expression
        self.schema = schema
        self.functions = _needed(expression, functions or {})
        self._node = _compile(expression, schema, self.functions)

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """The expression's value in every row."""
        return column(self._node(batch), batch.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.expression, self.schema, self.functions))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.expression})"


class Predicate(CompiledExpression):
    """A condition ready to run: a batch in, a mask of its length out, false where the condition is null."""

    __slots__ = ("_mask",)

    def __init__(self, expression: Expression, schema: pa.Schema, functions: Functions | None = None) -> None:
        super().__init__(expression, schema, functions)
        self._mask = mask_node(expression, schema, lambda part: _compile(part, schema, self.functions))

    def __call__(self, batch: pa.RecordBatch) -> Mask:
        """Where the condition is true."""
        try:
            return self._mask(batch)
        except InputError:
            # A part failed, perhaps on rows that another part has already decided.
            return mask_of(self._node(batch), batch.num_rows)


def _needed(expression: Expression, functions: Functions) -> dict[str, UserFunction]:
    names = {node.function.lower() for node in walk(expression) if isinstance(node, Call)}
    return {name: function for name, function in functions.items() if name.lower() in names}


class _Constant:
    """A node that is the same in every row."""

    __slots__ = ("value",)

    def __init__(self, value: pa.Scalar) -> None:
        self.value = value

    def __call__(self, batch: pa.RecordBatch) -> Datum:
        return self.value


def _compile(expression: Expression, schema: pa.Schema, functions: Functions) -> Node:
    match expression:
        case Column(name):
            return _column(name, schema)
        case Literal(value, data_type):
            return _Constant(pa.array([value], data_type)[0])
    parts = [_compile(argument, schema, functions) for argument in expression.arguments]
    if isinstance(expression, Call) and expression.function not in KERNELS:
        if expression.function.lower() in functions or expression.function not in BORROWED:
            return _user_call(expression, functions, parts)
        return _borrowed_call(expression, parts)
    constants = tuple(part.value if isinstance(part, _Constant) else None for part in parts)
    if any(constant is None for constant in constants):
        return _computed(expression, parts, constants)
    return _folded(_computed(expression, [_repeated(value) for value in constants], constants), expression.type)


def _computed(expression: Expression, parts: Sequence[Node], constants: Constants) -> Node:
    match expression:
        case Cast(inner, data_type, attempt):
            return _kernel_node(expression, cast_kernel(inner.type, data_type, attempt), parts)
        case Case():
            return _case(expression, parts)
        case Call():
            return _call(expression, parts, constants)
        case _:
            raise InternalError(f"the engine does not know how to compute {expression}")


def _column(name: str, schema: pa.Schema) -> Node:
    position = schema.get_field_index(name)
    if position < 0:
        raise InternalError(f"no column {name} among {', '.join(schema.names)}")
    return lambda batch: batch.column(position)


def _folded(node: Node, kind: pa.DataType) -> Node:
    """A node of constants, computed now; if that fails, it fails whenever there is a row to compute it for."""
    try:
        return _Constant(column(node(_ONE_ROW), 1)[0])
    except InputError as problem:
        failure = problem

    def fail(batch: pa.RecordBatch) -> Datum:
        if batch.num_rows:
            raise failure
        return pa.nulls(0, kind)

    return fail


def _call(call: Call, parts: Sequence[Node], constants: Constants) -> Node:
    eager = _kernel_node(call, KERNELS[call.function](call, constants), parts)
    decided = _DECIDED.get(call.function)
    return eager if decided is None else _patient(eager, lambda batch: _in_order(call.type, decided, parts, batch))


def _repeated(value: pa.Scalar) -> Node:
    return lambda batch: pa.repeat(value, batch.num_rows)


def _kernel_node(expression: Expression, kernel: Callable[..., Datum], parts: Sequence[Node]) -> Node:
    wanted = expression.type

    def evaluate(batch: pa.RecordBatch) -> Datum:
        data = [part(batch) for part in parts]
        try:
            result = kernel(*data)
            return result if result.type == wanted else result.cast(wanted)
        except pa.ArrowInvalid as problem:
            raise _failure(expression, problem) from None

    return evaluate


def _failure(expression: Expression, problem: Exception) -> InputError:
    text = str(problem)
    if "overflow" in text:
        return InputError(f"integer overflow in {expression}", hint="cast to DOUBLE before calculating")
    if "does not fit in precision" in text:
        return InputError(f"decimal overflow in {expression}", detail=text, hint="cast to DOUBLE before calculating")
    return InputError(f"cannot compute {expression}", detail=text)


def _user_call(call: Call, functions: Functions, parts: Sequence[Node]) -> Node:
    function = functions.get(call.function.lower())
    if not isinstance(function, ScalarFunction):
        raise InternalError(f"there is no scalar function {call.function}")
    name, compute, wanted = function.name, function.function, function.returns

    def evaluate(batch: pa.RecordBatch) -> Datum:
        length = batch.num_rows
        arguments = [column(part(batch), length) for part in parts]
        try:
            result = compute(*arguments)
        except Exception as error:
            raise InputError(f"function {name} failed", detail=f"{type(error).__name__}: {error}") from error
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise InputError(f"function {name} gave a {type(result).__name__}, not an Arrow array")
        if len(result) != length:
            raise InputError(f"function {name} gave {len(result)} values for {length} rows")
        if result.type != wanted:
            raise InputError(
                f"function {name} gave {result.type}, but it is declared to return {wanted}",
                hint="cast its result, or declare another type",
            )
        return result

    return evaluate


def _borrowed_call(call: Call, parts: Sequence[Node]) -> Node:
    sql, needed = borrow(call.function, call.args).sql, [parts[i] for i in columns_among(call.args)]
    if not needed:
        return _folded(lambda batch: evaluate(sql, (), call.type, str(call)), call.type)

    def compute(batch: pa.RecordBatch) -> Datum:
        length = batch.num_rows
        if not length:
            return pa.nulls(0, call.type)
        return evaluate(sql, [column(part(batch), length) for part in needed], call.type, str(call))

    return compute


def _case(case: Case, parts: Sequence[Node]) -> Node:
    conditions, values, default = parts[:-1:2], parts[1:-1:2], parts[-1]
    names = [str(i) for i in range(len(conditions))]

    def choose(batch: pa.RecordBatch) -> Datum:
        length = batch.num_rows
        truths = pa.StructArray.from_arrays([column(c(batch), length) for c in conditions], names)
        result = pc.case_when(truths, *[v(batch) for v in values], default(batch))
        return result if result.type == case.type else result.cast(case.type)

    return _patient(choose, lambda batch: _case_in_order(case.type, conditions, values, default, batch))


def _patient(eager: Node, in_order: Node) -> Node:
    """Tries the whole columns first, and goes row by asking row only if that fails."""

    def evaluate(batch: pa.RecordBatch) -> Datum:
        try:
            return eager(batch)
        except InputError:
            return in_order(batch)

    return evaluate


def _case_in_order(
    kind: pa.DataType, conditions: Sequence[Node], values: Sequence[Node], default: Node, batch: pa.RecordBatch
) -> pa.Array:
    asking, given = np.arange(batch.num_rows), _Gathered(kind, batch.num_rows)
    for condition, value in zip(conditions, values, strict=True):
        rest = batch.take(pa.array(asking))
        true = mask_of(condition(rest), len(asking))
        given.put(asking[true], value(rest.filter(pa.array(true))))
        asking = asking[~true]
    given.put(asking, default(batch.take(pa.array(asking))))
    return given.column()


def _in_order(
    kind: pa.DataType, decided: Callable[[pa.Array], pa.Array], parts: Sequence[Node], batch: pa.RecordBatch
) -> pa.Array:
    """AND, OR and coalesce: each part only where the ones before it have not decided."""
    length = batch.num_rows
    asking, given = np.arange(length), _Gathered(kind, length)
    doubtful = np.zeros(length, dtype=np.bool_)
    for part in parts:
        value = column(part(batch.take(pa.array(asking))), len(asking))
        done = mask_of(decided(value), len(asking))
        given.put(asking[done], value.filter(pa.array(done)))
        doubtful[asking[value.is_null().to_numpy(zero_copy_only=False)]] = True
        asking = asking[~done]
    if pa.types.is_boolean(kind):
        unanimous = decided is _DECIDED["and"]
        given.put(asking, pa.array([None if d else unanimous for d in doubtful[asking].tolist()], kind))
    return given.column()


_DECIDED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "and": lambda truth: pc.invert(truth),
    "or": lambda truth: truth,
    "coalesce": lambda value: value.is_valid(),
}


class _Gathered:
    """A column put together from values for some of its rows at a time; null where nothing was put."""

    __slots__ = ("_parts", "_place", "_size", "_type")

    def __init__(self, kind: pa.DataType, length: int) -> None:
        self._parts: list[pa.Array] = [pa.nulls(1, kind)]
        self._place = np.zeros(length, dtype=np.int64)
        self._size = 1
        self._type = kind

    def put(self, rows: Any, values: Datum) -> None:
        """Gives these rows these values."""
        part = column(values, len(rows))
        self._place[rows] = np.arange(self._size, self._size + len(rows))
        self._parts.append(part if part.type == self._type else part.cast(self._type))
        self._size += len(rows)

    def column(self) -> pa.Array:
        """All rows."""
        return pa.concat_arrays(self._parts).take(pa.array(self._place))
