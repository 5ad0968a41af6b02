"""What a sink is: a place outside the job that has each result of a query once.

Results of a query leave in the order of their starts, so what a target has had of them is one instant: it has all that
start before. A target keeps that instant together with the results, and changes both at once. Then a delivery that was
interrupted is either there as a whole or not at all, and whoever asks the target first, and writes only what starts
later, doubles nothing and leaves nothing out. `deliver` is this law; a sink brings what is peculiar to its target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol

import pyarrow as pa

from midstream.algebra.time import INFINITY
from midstream.connectors.forms import Form, between, in_form
from midstream.connectors.retrying import answered
from midstream.errors import JobError


@dataclass(frozen=True, slots=True)
class RefusedResult:
    """A row that a target does not take, as JSON, and why."""

    row: str
    reason: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """Whose results they are: those of a query that start from `since` to before `until`, in ticks.

    `identity` tells the query from others of its name, `checkpoint` the checkpoint from others. Checkpoints of one
    `history` were restored from copies of each other: what one of them has delivered is not due again from the next.
    By the checkpoint's record the sink has had results that start before `had`, or none. `newest` is the last instant
    of the query's streams, once these have ended. `set_aside` keeps rows that a target refuses, before it has
    others of the delivery, and is told whether it takes no others.
    """

    query: str
    identity: str
    checkpoint: str
    history: str
    batch_id: int
    since: int
    until: int
    schema: pa.Schema
    had: int | None = None
    newest: int | None = None
    set_aside: Callable[[Delivery, Sequence[RefusedResult], bool], None] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def whose(self) -> str:
        """What all deliveries of one history of a query have in common."""
        return f"{self.history}/{self.query}/{self.identity}"

    @property
    def key(self) -> str:
        """The same in sixteen letters."""
        return blake2b(self.whose.encode(), digest_size=8).hexdigest()

    @property
    def now(self) -> int:
        """The last instant for which all results are known: what is valid then is the current relation."""
        return self.newest if self.until == INFINITY and self.newest is not None else self.until - 1

    def keep(self, refused: Sequence[RefusedResult], all_of_them: bool) -> None:
        """Has rows set aside that the target refuses; `all_of_them` if it takes no other."""
        if self.set_aside is None:
            raise JobError(
                f"results of query {self.query} are refused, and nobody keeps them", detail=refused[0].reason
            )
        self.set_aside(self, refused, all_of_them)


class UntakenResults(JobError):
    """A target can have no results like these, however often it is given them."""


class Sink(Protocol):
    """A target that knows what it has had.

    Its `name` is shown and stored: no secret may stand there. `form` says which rows it is given:

    - `rows`: results as they are, with `valid_from` and `valid_to`, or `ts`;
    - `changelog`: two events for each result, its insertion and its deletion (none if it never ends);
    - `current`: of the new results, those that are valid at `delivery.now`; rows that are no longer are to be removed.

    What fails is tried again with growing pauses, but for exceptions among its `refusals`, if it has these: they say
    that the target does not take the rows. It may have a method `require(schema)`, which refuses columns without asking
    the target: before a query gives them.
    """

    form: Form

    @property
    def name(self) -> str:
        """What the record of deliveries calls it."""

    def open(self, schema: pa.Schema) -> None:
        """Prepares the target for rows of these columns; refuses a target that has others."""

    def last(self, delivery: Delivery) -> int | None:
        """Asks the target: before which instant it has had the query's results of this history; None if it has none."""

    def write(self, delivery: Delivery, table: pa.Table) -> None:
        """Adds rows, and remembers `delivery.until`, both at once; refuses if `last` is beyond `since` by now."""


def deliver(sink: Sink, table: pa.Table, delivery: Delivery) -> None:
    """Gives a sink what it has not had of a delivery. It may be repeated as often as one likes."""
    if not table.num_rows and sink.form != "current":
        return  # nothing to remember: what starts before `until` is what starts before `since`
    words = f"sink {sink.name} does not take results of query {delivery.query}"
    answered(lambda: _deliver(sink, table, delivery), words, getattr(sink, "refusals", ()))


def _deliver(sink: Sink, table: pa.Table, delivery: Delivery) -> None:
    sink.open(in_form(table[:0], sink.form, delivery.query, delivery.now).schema)
    had = sink.last(delivery)
    if delivery.had is not None and (had is None or had < delivery.had):
        raise JobError(
            f"sink {sink.name} has lost results of query {delivery.query} that it had",
            detail=f"it was given those that start before tick {delivery.had}, and now "
            + ("knows of none" if had is None else f"has those that start before {had}")
            + ": it was emptied, made anew, or restored from an older copy",
            hint="restore it; or write to another place, which is given what is released from then on",
        )
    if had is not None and had > delivery.since:
        table = between(table, had, delivery.until)
        delivery = replace(delivery, since=min(had, delivery.until))
    if delivery.since < delivery.until:
        sink.write(delivery, in_form(table, sink.form, delivery.query, delivery.now))


def require_taken(sink: Any, query: str, results: pa.Schema, before: Collection[str]) -> None:
    """Refuses results that a sink has no form for, or whose times are others than those that a table has had."""
    schema = in_form(results.empty_table(), getattr(sink, "form", "rows"), query, 0).schema
    if hasattr(sink, "require"):
        sink.require(schema)
    if before and hasattr(sink, "open") and results.names[-1] not in before:
        raise JobError(
            f"sink {sink.name} has results of query {query} with {' and '.join(_times(before))}",
            detail=f"now they have {' and '.join(_times(results.names))}; nothing was written",
            hint="give ISTREAM, DSTREAM or RSTREAM another target than what holds for a time",
        )


def _times(names: Collection[str]) -> list[str]:
    return [name for name in ("valid_from", "valid_to", "ts") if name in names]


def require_named(sink: Sink, what: str, names: Sequence[str], schema: pa.Schema) -> None:
    """Refuses columns that a sink is declared with and that results do not have."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise JobError(
            f"{what} of {sink.name} names {unknown[0]}, which is no column of the results",
            detail=f"they have {', '.join(schema.names)}",
        )


def raced(sink: Sink, delivery: Delivery) -> JobError:
    """The error of a sink that somebody else has given the results of a delivery, or later ones, since it was asked."""
    return JobError(
        f"sink {sink.name} was given results of query {delivery.query} by somebody else at the same time",
        detail="another process runs the same job, or a copy of it",
        hint="stop one of the two; what the sink has had is not doubled",
    )


def arrow(results: Any) -> pa.Table:
    """Results as a table, also if they are a DataFrame of Spark's."""
    return results if isinstance(results, pa.Table) else results.toArrow()
