"""Users' functions whose code has changed since the checkpoint was made.

State holds what the old code gave, and no state is ever recomputed. With other code the same query would answer with
a mixture of both, so such a job goes on only if its user says so, and the histories of the queries remember it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from midstream.algebra.code_fingerprints import differ, fingerprint
from midstream.algebra.declarations import ScalarFunction, SqlFunction, UserFunction
from midstream.checkpoint.manifest import Manifest
from midstream.errors import JobError
from midstream.job.queries.faults import Faults
from midstream.job.queries.running_query import RunningQuery

ChangedFunctions = Literal["refuse", "accept"]

CHANGED = "functions changed"
"""What the history of a query calls it that it goes on with other code."""


def fingerprints(functions: Mapping[str, UserFunction]) -> dict[str, str]:
    """What a manifest says of functions."""
    return {name: f"{_returns(f)}; {_identity(f)}" for name, f in functions.items()}


def functions_record(before: Manifest | None, now: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints of all functions that a manifest knows; those not registered now stay known."""
    return {**({} if before is None else before.settings.functions), **now}


def require_same_functions(
    manifest: Manifest | None,
    now: Mapping[str, str],
    queries: Iterable[RunningQuery],
    faults: Faults,
    accepted: bool,
) -> None:
    """Fails if a function that a query of the checkpoint calls has other code; notes it in histories if accepted."""
    if manifest is None:
        return
    recorded = manifest.settings.functions
    changed = [name for name in recorded if name in now and _differ(recorded[name], now[name])]
    for query in queries:
        calls = [name for name in changed if query.name in manifest.queries and _calls(query.cql, name)]
        if calls and not accepted:
            raise _refusal(query.name, calls)
        if calls:
            faults.record(query.name, CHANGED, manifest.batch_id + 1, f"accepted other code of {', '.join(calls)}")


def _refusal(query: str, calls: list[str]) -> JobError:
    return JobError(
        f"query {query} calls {', '.join(calls)}, whose code has changed since the checkpoint was made",
        detail="its state holds what the old code gave: results would be a mixture of both",
        hint='replace the query, accept it by Session(..., changed_functions="accept"), or, if the function gives '
        "the same as before, give it a version, which then says alone whether it has changed",
    )


def _differ(old: str, new: str) -> bool:
    (old_kind, _, old_code), (kind, _, code) = old.partition("; "), new.partition("; ")
    return old_kind != kind or differ(old_code, code)


def _calls(cql: str, name: str) -> bool:
    """Whether a query calls a function; a text that only mentions it counts too."""
    return re.search(rf"\b{re.escape(name)}\W*\(", cql, re.IGNORECASE) is not None


def _identity(function: UserFunction) -> str:
    if function.version is not None:
        return f"version:{function.version}"
    if isinstance(function, SqlFunction):
        return f"{', '.join(function.parameters)}: {function.sql}"
    return fingerprint(function.function if isinstance(function, ScalarFunction) else function.make)


def _returns(function: UserFunction) -> str:
    return f"{type(function).__name__} {'' if isinstance(function, SqlFunction) else function.returns}"
