"""Functions of one's own in a job file: `[functions.NAME]` names something in Python, or writes SQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from midstream.algebra.declarations import AggregateFunction, ScalarFunction, SqlFunction, UserFunction
from midstream.connectors.function import imported
from midstream.errors import JobError
from midstream.language.literals import arrow_type
from midstream.language.text import type_named


def function_of(name: str, entry: Mapping[str, Any], folder: Path) -> UserFunction:
    """The function that a table describes; modules are looked for beside the job file too."""
    python, sql = entry.get("python"), entry.get("sql")
    if (python is None) == (sql is None):
        raise JobError(
            f"functions.{name} needs either python or sql",
            hint='python = "package.module:function", or sql = "price * (1 - tax)" and parameters = ["price", "tax"]',
        )
    if sql is not None:
        return SqlFunction(name, tuple(entry.get("parameters") or ()), sql)
    found, returns, version = (
        imported(str(python), folder, f"functions.{name}.python"),
        entry.get("returns"),
        entry.get("version"),
    )
    if isinstance(found, ScalarFunction | AggregateFunction):
        return type(found)(name, *vars_of(found), version or found.version)
    if not callable(found):
        raise JobError(f"functions.{name}.python is a {type(found).__name__}, which cannot be called")
    if returns is None:
        raise JobError(f"functions.{name}.returns is missing", hint='name the type of its values: returns = "DOUBLE"')
    kind = AggregateFunction if entry.get("aggregate") else ScalarFunction
    return kind(name, found, arrow_type(type_named(returns)), version)


def vars_of(function: ScalarFunction | AggregateFunction) -> tuple[Any, pa.DataType]:
    """What a function does, and the type of its values."""
    does = function.function if isinstance(function, ScalarFunction) else function.make
    return does, function.returns
