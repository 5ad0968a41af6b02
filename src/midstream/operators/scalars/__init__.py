"""Scalar functions over columns: one kernel per name in `algebra.functions.SCALAR`.

A maker looks once at a call (its types, its constant arguments) and gives a kernel that is then called per batch with
the arguments' columns, constants as Arrow scalars; at least one argument is a column. Kernels may give another Arrow
type of the same values: whoever calls them casts. What they mean is defined row by row in `algebra`.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.operators.scalars.arithmetic import ARITHMETIC
from midstream.operators.scalars.calendar import CALENDAR
from midstream.operators.scalars.kernels import Maker
from midstream.operators.scalars.logic import LOGIC
from midstream.operators.scalars.text import TEXT

KERNELS: Mapping[str, Maker] = {**LOGIC, **ARITHMETIC, **TEXT, **CALENDAR}
"""The maker of every scalar function's kernel."""
