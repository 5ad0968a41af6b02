"""Conditions as masks.

Only true counts, so AND and OR of masks are those of conditions whatever is null, and comparing numbers without nulls
is a comparison of vectors. Everything else is computed as a column first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pyarrow as pa

from midstream.algebra.expressions import Call, Column, Expression, Literal
from midstream.operators.elements import Mask
from midstream.operators.scalars.kernels import COMPARISONS, Datum
from midstream.operators.vectors import numbers_of, storage_of, validity_of

MaskNode = Callable[[pa.RecordBatch], Mask]
Compile = Callable[[Expression], Callable[[pa.RecordBatch], Datum]]


def mask_of(truth: Datum, length: int) -> Mask:
    """Where a column of truths, or a constant one, is true."""
    if isinstance(truth, pa.Scalar):
        return np.full(length, truth.as_py() is True)
    if truth.null_count:
        truth = truth.fill_null(False)
    return truth.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def mask_node(expression: Expression, schema: pa.Schema, compile: Compile) -> MaskNode:
    """A condition as a function from batches to masks."""
    match expression:
        case Call("and", args):
            return _combined(np.logical_and, [mask_node(a, schema, compile) for a in args])
        case Call("or", args):
            return _combined(np.logical_or, [mask_node(a, schema, compile) for a in args])
        case Call("not", (Call("is_null", (Column(name),)),)):
            return _present(schema.get_field_index(name))
        case Call(function, (Column(), Column() | Literal())) if function in COMPARISONS:
            return _comparison(expression, schema, compile) or _column_mask(expression, compile)
        case _:
            return _column_mask(expression, compile)


def _column_mask(expression: Expression, compile: Compile) -> MaskNode:
    node = compile(expression)
    return lambda batch: mask_of(node(batch), batch.num_rows)


def _combined(operation: np.ufunc, masks: list[MaskNode]) -> MaskNode:
    return lambda batch: reduce(operation, [mask(batch) for mask in masks])


def _present(position: int) -> MaskNode:
    def present(batch: pa.RecordBatch) -> Mask:
        valid = validity_of(batch.column(position))
        return np.ones(batch.num_rows, dtype=np.bool_) if valid is None else valid

    return present


def _comparison(call: Call, schema: pa.Schema, compile: Compile) -> MaskNode | None:
    """A comparison of two number columns or of one with a constant, if that is what it is."""
    left, right = call.args
    if storage_of(left.type) is None or left.type != right.type or (isinstance(right, Literal) and right.value is None):
        return None
    compare: Callable[..., Mask] = getattr(np, COMPARISONS[call.function])
    general = _column_mask(call, compile)
    here = schema.get_field_index(str(left))
    constant = numbers_of(pa.array([right.value], right.type))[0] if isinstance(right, Literal) else None
    there = here if constant is not None else schema.get_field_index(str(right))

    def compared(batch: pa.RecordBatch) -> Mask:
        a, b = batch.column(here), batch.column(there)
        if a.null_count or b.null_count:
            return general(batch)
        return compare(numbers_of(a), numbers_of(b) if constant is None else constant)

    return compared
