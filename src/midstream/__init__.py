"""Midstream: continuous queries over streams, and a change of horses while they run.

Names load when first used: a Spark worker that needs the operators alone pays for nothing else.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midstream.api import (
        AggregateFunction,
        DeadLetters,
        DeadLetterWarning,
        InputError,
        InternalError,
        JobError,
        MidstreamError,
        Migration,
        MigrationError,
        Plan,
        QueryError,
        Result,
        ScalarFunction,
        SqlFunction,
        open,
        plans,
        read_results,
        reference,
        run,
        snapshot_equal,
    )
    from midstream.cluster.sessions import Session
del TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "DeadLetterWarning",
    "DeadLetters",
    "InputError",
    "InternalError",
    "JobError",
    "MidstreamError",
    "Migration",
    "MigrationError",
    "Plan",
    "QueryError",
    "Result",
    "ScalarFunction",
    "Session",
    "SqlFunction",
    "__version__",
    "open",
    "plans",
    "read_results",
    "reference",
    "run",
    "snapshot_equal",
]


_HOMES = {"Session": "midstream.cluster.sessions"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'midstream' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "midstream.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
