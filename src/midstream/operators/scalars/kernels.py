"""What kernels are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.algebra.expressions import Call
from midstream.operators.elements import Mask
from midstream.operators.ordering import group_rows
from midstream.operators.vectors import validity_of

Datum = Any
"""A column, or an Arrow scalar that stands for a constant one."""

Kernel = Callable[..., Datum]
Constants = tuple[pa.Scalar | None, ...]
Maker = Callable[[Call, Constants], Kernel]
OnColumn = Callable[[pa.Array], pa.Array]


COMPARISONS = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
"""What Arrow and numpy call the comparisons."""


def arrow(name: str, options: pc.FunctionOptions | None = None) -> Kernel:
    """One of Arrow's own functions, looked up once."""
    function = pc.get_function(name)
    call = function.call

    def kernel(*data: Datum) -> Datum:
        return call(list(data), options)

    return kernel


def always(kernel: Kernel) -> Maker:
    """A maker that gives the same kernel whatever the call."""
    return lambda call, constants: kernel


def column(datum: Datum, length: int) -> pa.Array:
    """A constant repeated, or the column itself."""
    return pa.repeat(datum, length) if isinstance(datum, pa.Scalar) else datum


def length_of(data: Sequence[Datum]) -> int:
    """The number of rows of data among which is a column."""
    return next(len(d) for d in data if not isinstance(d, pa.Scalar))


def with_parameters(build: Callable[..., OnColumn], subject: int = 0) -> Maker:
    """A function of one column whose other arguments are settings, as Arrow's own functions want them.

    `build` takes the call and the settings as Python values. Constant settings are built in once; otherwise rows are
    taken together by equal settings.
    """

    def make(call: Call, constants: Constants) -> Kernel:
        settings = [c for i, c in enumerate(constants) if i != subject]
        if any(s is not None and not s.is_valid for s in settings):
            return lambda *data: pa.nulls(length_of(data), call.type)
        if all(s is not None for s in settings):
            apply = build(call, *[s.as_py() for s in settings if s is not None])
            return lambda *data: apply(column(data[subject], length_of(data)))
        return lambda *data: _by_settings(build, call, subject, data)

    return make


def _by_settings(build: Callable[..., OnColumn], call: Call, subject: int, data: Sequence[Datum]) -> pa.Array:
    length = length_of(data)
    columns = [column(d, length) for d in data]
    values = columns.pop(subject)
    groups, first = group_rows(columns)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(first)))
    parts, start = [pa.nulls(0, call.type)], 0
    for end, row in zip(ends.tolist(), first.tolist(), strict=True):
        settings: list[Any] = [c[row].as_py() for c in columns]
        rows = values.take(pa.array(order[start:end]))
        missing = any(s is None for s in settings)
        part = pa.nulls(len(rows), call.type) if missing else build(call, *settings)(rows)
        parts.append(part if part.type == call.type else part.cast(call.type))
        start = end
    place = np.empty(length, dtype=np.int64)
    place[order] = np.arange(length)
    return pa.concat_arrays(parts).take(pa.array(place))


def defined(inside: Mask, *arguments: pa.Array) -> Mask | None:
    """The validity of a result: inside the function's domain, of arguments that are known."""
    for argument in arguments:
        valid = validity_of(argument)
        if valid is not None:
            inside = inside & valid
    return None if inside.all() else inside
