"""What a query may refer to: streams and the functions a user brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import pyarrow as pa

from midstream.algebra.time import TimeDomain
from midstream.errors import InputError, QueryError

Timestamps = Literal["external", "internal", "latent"]

MaxAhead = int | Literal["clock", "any"]
"""How far ahead times are believed: so many ticks after the latest, a day after the clock, or without a bound."""


ARRIVAL = "#arrival"
"""The column, hidden and first, that tells in which order rows came; other columns decide what it leaves open.

Whoever takes in rows numbers them, unless they bring the column; queries that need no order do not read it.
"""

SINCE = "#since"
"""The hidden time column of a table that has none."""


@dataclass(frozen=True)
class StreamDeclaration:
    """A stream's name, columns and time column; `lateness` and `skew` in ticks.

    `on_demand`: whether the stream, while silent, says how far it is by what others have; by its skew, if external.
    """

    name: str
    columns: pa.Schema
    time: str
    lateness: int = 0
    timestamps: Timestamps = "external"
    skew: int = 0
    on_demand: bool = False
    max_ahead: MaxAhead = "clock"
    site: str | None = None
    """The named set of slots in which its rows come in; None: any slot."""

    def __post_init__(self) -> None:
        if self.time not in self.columns.names:
            raise InputError(
                f"stream {self.name} has no time column {self.time!r}",
                detail=f"its columns are {', '.join(self.columns.names) or 'none'}",
                hint="name the time column: time= in Python, --time on the command line, the key time in a job file",
            )
        if len(set(self.columns.names)) != len(self.columns.names):
            raise InputError(f"stream {self.name} has two columns of the same name")

    @cached_property
    def visible(self) -> pa.Schema:
        """The columns that queries can name."""
        return pa.schema([f for f in self.columns if f.name not in (ARRIVAL, SINCE)])

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The types of its columns, in words."""
        return {field.name: str(field.type) for field in self.columns}

    @cached_property
    def domain(self) -> TimeDomain:
        """What the stream's ticks mean."""
        return TimeDomain(self.columns.field(self.time).type)


class Accumulator(Protocol):
    """A user-defined aggregate's life, as Stream Mill's: initialize, iterate, terminate."""

    def initialize(self) -> Any:
        """A fresh state."""

    def iterate(self, state: Any, *columns: pa.Array) -> Any:
        """The state after some more rows, given as Arrow arrays of equal length."""

    def terminate(self, state: Any) -> Any:
        """The aggregate's value as a Python value."""


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A user's scalar function: Arrow arrays in, one Arrow array of equal length and of type `returns` out.

    A checkpoint refuses a function whose code has changed. With a `version` that alone says whether it has.
    """

    name: str
    function: Callable[..., pa.Array] = field(compare=False)
    returns: pa.DataType
    version: str | None = None

    def __post_init__(self) -> None:
        _require_function(self.name, self.function, self.returns)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A user's aggregate: `make()` gives an accumulator. A `version` is as that of a scalar function."""

    name: str
    make: Callable[[], Accumulator] = field(compare=False)
    returns: pa.DataType
    version: str | None = None

    def __post_init__(self) -> None:
        _require_function(self.name, self.make, self.returns)


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A value of the language with parameters, put in place of its calls: `net(price, tax)` for `price * (1 - tax)`."""

    name: str
    parameters: tuple[str, ...]
    sql: str
    version: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name and isinstance(self.sql, str) and self.sql.strip()):
            raise QueryError(f"a function of SQL has a name and a text, not {self.name!r} and {self.sql!r}")
        if not all(isinstance(p, str) and p.isidentifier() for p in self.parameters):
            raise QueryError(f"function {self.name} needs names for its parameters, not {self.parameters!r}")


def _require_function(name: str, function: object, returns: pa.DataType) -> None:
    if not isinstance(name, str) or not name:
        raise QueryError(f"the name of a function is a text, not {name!r}")
    if not callable(function):
        raise QueryError(f"function {name} cannot be called: it is a {type(function).__name__}")
    if not isinstance(returns, pa.DataType):
        raise QueryError(f"function {name} returns an Arrow type such as pyarrow.int64(), not {returns!r}")


UserFunction = ScalarFunction | AggregateFunction | SqlFunction


class Fixpoint(Protocol):
    """Makes a table of all that two queries give, of which the second reads what it gave before."""

    def __call__(
        self,
        name: str,
        first: Any,
        columns: pa.Schema,
        step: Callable[[Catalog, StreamDeclaration], Any],
        time_type: pa.DataType,
        distinct: bool,
    ) -> StreamDeclaration:
        """The table's declaration."""


@dataclass(frozen=True)
class Catalog:
    """The streams and functions a query is bound against, by lower-cased name for functions."""

    streams: Mapping[str, StreamDeclaration]
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    finite: bool = False
    """Whether the streams are whole tables, so that a query is answered once."""
    timeless: frozenset[str] = frozenset()
    """The tables whose rows have always been there: their time, the last column, is not theirs."""
    fixpoint: Fixpoint | None = None
    """Answers queries that read themselves, if the streams are whole tables."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """The texts of other queries, which one may read in FROM."""

    def function(self, name: str) -> UserFunction:
        """A user's function by name."""
        try:
            return self.functions[name.lower()]
        except KeyError:
            raise QueryError(f"unknown function {name}") from None


def functions_by_name(functions: tuple[UserFunction, ...] | list[UserFunction]) -> dict[str, UserFunction]:
    """User functions keyed as a catalog wants them."""
    for function in functions:
        if not isinstance(function, UserFunction):
            raise QueryError(
                f"{function!r} is not a function that a query can call",
                hint="wrap it: ScalarFunction(name, function, returns) or AggregateFunction(name, make, returns)",
            )
    known = {f.name.lower(): f for f in functions}
    if len(known) < len(functions):
        names = [f.name.lower() for f in functions]
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise QueryError(f"there are two functions of the same name: {', '.join(repeated)}")
    return known
