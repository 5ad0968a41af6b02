"""What people may ask of a running job: each command is one dataclass, and everything else about it is derived from it.

Programs, the command line, files in the control folder and the dashboard's forms all make these values, by the same
check: only known commands with known fields of the right kind pass. What they mean is for the job to judge, which knows
its queries and streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar

from midstream.checkpoint.command_fields import (
    CQL,
    DURATION,
    FACTORS,
    LINKS,
    NAME,
    NEW_NAME,
    NUMBER,
    PLAN,
    SLOTS,
    STORED_NAME,
    TEXT,
    CommandField,
    FieldKind,
    asked_field,
)
from midstream.errors import InputError


def _command(name: str, value: Any) -> Command:
    command = command_in(value) if isinstance(value, Mapping) else None
    if command is None or not command.forecast:
        raise InputError(f"there is no forecast of {value!r:.80}", hint="name a command that changes something")
    return command


COMMAND = FieldKind("command", _command)


def _strategies() -> Sequence[str]:
    from midstream.migration.registry import STRATEGIES

    return ("auto", *(name for name in STRATEGIES if name != "auto"))


def _protocols() -> Sequence[str]:
    from midstream.distribution.move_legality import PROTOCOLS

    return ("auto", "split_time", *PROTOCOLS)


def _modes() -> Sequence[str]:
    from midstream.adaptation.policy import MODES

    return MODES


@dataclass(frozen=True, slots=True)
class Command:
    """Something that is asked of a job. Its docstring is what people read of it."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    examples: ClassVar[Sequence[str]] = ()
    """What follows the checkpoint on a command line."""
    changes: ClassVar[bool] = True
    """Whether its effect is seen in manifests, so that it is carried out once and never lost."""
    forecast: ClassVar[bool] = True
    """Whether the job can say what it would do without doing it."""
    part_of: ClassVar[str] = ""
    """The command of the command line of which it is an option."""

    @classmethod
    def fields(cls) -> Iterator[tuple[Field[Any], CommandField]]:
        """Its fields, each with what people are told of it."""
        return ((each, each.metadata["asked"]) for each in fields(cls))

    def to_record(self) -> dict[str, Any]:
        """The command as plain values; `command_in` reads it."""
        return {"command": self.name, **{each.name: _plain(getattr(self, each.name)) for each in fields(self)}}


def _plain(value: Any) -> Any:
    if isinstance(value, Command):
        return value.to_record()
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class AboutQuery(Command):
    """A command about a query of the job."""

    query: str = asked_field(NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class ShowStatus(Command):
    """Show the progress of a job; from its checkpoint if it does not run."""

    name, title, examples, changes, forecast = "status", "Status", ("",), False, False


@dataclass(frozen=True, slots=True)
class ShowPlan(AboutQuery):
    """Show the current plan of a query of a job; from its checkpoint if it does not run."""

    name, title, examples, changes, forecast = "plan", "Plan", ("hot",), False, False


@dataclass(frozen=True, slots=True)
class OfferPlans(AboutQuery):
    """Show equivalent plans of a running query with their costs, the cheapest first."""

    name, title, examples, changes, forecast = "plans", "Plans", ("hot",), False, False


@dataclass(frozen=True, slots=True)
class Migrate(AboutQuery):
    """Migrate a query of a running job to another plan while results keep flowing."""

    name, title = "migrate", "Migrate"
    examples = (
        'hot "(A (B C))" --strategy genmig',
        'hot "(A (B C))" --slots 1',
        'hot "(A (B C))" --verify "10 minutes"',
    )
    plan: str = asked_field(PLAN, "The plan to migrate to, such as '((A B) C)'.")
    strategy: str = asked_field(TEXT, "The migration strategy.", "auto", _strategies)
    part: str = asked_field(
        TEXT,
        "What migrates: auto (where plans differ), smallest, whole.",
        "auto",
        lambda: ("auto", "smallest", "whole"),
    )
    slots: tuple[int, ...] | None = asked_field(
        SLOTS, "The slots that migrate, such as 1 or 0,2, each by itself; all by default.", None
    )
    verify: str | int | None = asked_field(
        DURATION, "First let a copy migrate, and compare both for so much stream time: '10 minutes'.", None
    )


@dataclass(frozen=True, slots=True)
class CancelMigration(AboutQuery):
    """Go back to the plan before the migration under way; nothing is lost or doubled."""

    name, title, examples, part_of = "cancel", "Cancel a migration", ("hot --cancel",), "migrate"


@dataclass(frozen=True, slots=True)
class ScheduleOperators(Command):
    """Run the operators of all queries in another order."""

    name, title, examples, part_of = "schedule", "Scheduling", ("--scheduling bfs",), "migrate"
    scheduling: str = asked_field(TEXT, "Which operator runs when, for all queries: dfs, bfs, rr, batch:10 or chain.")


@dataclass(frozen=True, slots=True)
class Adapt(AboutQuery):
    """Change the adaptivity of a query of a running job: off, suggestions only, or automatic."""

    name, title, examples = "adapt", "Adaptivity", ("hot suggest",)
    mode: str = asked_field(TEXT, "off, suggest or auto.", choices=_modes)


FROM_SOURCE = "Read rows that nobody keeps again from the source, so many a batch."


@dataclass(frozen=True, slots=True)
class AddQuery(Command):
    """Add a query to a running job."""

    name, title = "add", "Add a query"
    examples = ('big "SELECT * FROM orders [NOW] WHERE amount > 100"',)
    query: str = asked_field(NEW_NAME, "The query's name.")
    cql: str = asked_field(CQL, "The query; @FILE reads it from a file, - from standard input.")
    plan: str | None = asked_field(
        TEXT, "The plan that it starts with, such as '((A B) C)'; the best one by default.", None
    )
    adaptive: str = asked_field(TEXT, "Adaptivity: off, suggest or auto.", "off", _modes)
    since: str = asked_field(
        TEXT, "From when on it answers: now, retained (as far back as rows are kept) or an instant.", "now"
    )
    backfill_rate: int | None = asked_field(NUMBER, FROM_SOURCE, None)


@dataclass(frozen=True, slots=True)
class ReplaceQuery(AboutQuery):
    """Put another text in the place of a query of a running job; it starts with what follows from kept windows."""

    name, title = "replace", "Replace a query"
    examples = (
        "hot @hot.sql --dry-run",
        "hot @hot.sql --incomplete withhold",
        "hot @hot.sql --verify '1 hour' --where 'n > 3' --then wait",
    )
    cql: str = asked_field(CQL, "Its new text; @FILE reads it from a file, - from standard input.")
    plan: str | None = asked_field(TEXT, "The plan that it starts with, such as '((A B) C)'.", None)
    incomplete: str = asked_field(
        TEXT, "What becomes of results that lack rows: emit or withhold.", "emit", lambda: ("emit", "withhold")
    )
    verify: str | int | None = asked_field(
        DURATION, "First run beside the old text, and compare both for so much stream time: '1 hour'.", None
    )
    columns: str | None = asked_field(TEXT, "The columns that are compared, such as 'k, n'; all that both have.", None)
    where: str | None = asked_field(TEXT, "Compare only results of which this holds, such as 'n > 3'.", None)
    then: str = asked_field(
        TEXT,
        "After that: switch if nothing differed, or wait for a request (--switch, or migrate --cancel).",
        "switch",
        lambda: ("switch", "wait"),
    )
    backfill_rate: int | None = asked_field(NUMBER, FROM_SOURCE, None)


@dataclass(frozen=True, slots=True)
class SwitchQuery(AboutQuery):
    """Let the other text that runs beside a query take its place now, whatever it waits for."""

    name, title, examples, part_of = "switch", "Switch to the new text", ("hot --switch",), "replace"


@dataclass(frozen=True, slots=True)
class DropQuery(Command):
    """Drop a query of a job, running or not, with its state."""

    name, title, examples = "drop", "Drop a query", ("big",)
    query: str = asked_field(STORED_NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class ResumeQuery(AboutQuery):
    """Resume a query that was stopped by a bad value, without the rows that arrived since."""

    name, title, examples = "resume", "Resume a query", ("big",)


@dataclass(frozen=True, slots=True)
class Rebalance(Command):
    """Reassign partition groups to balance load between the slots of a running job."""

    name, title = "rebalance", "Rebalance"
    examples = ("", "--protocol split_time", "--by items.product")
    protocol: str = asked_field(TEXT, "How groups move: auto, mslb, split_time or ptlb.", "auto", _protocols)
    by: str | None = asked_field(TEXT, "Only what later stages exchange by this key, such as B.y.", None)
    routing: tuple[int, ...] | None = asked_field(
        SLOTS, "The slot of each partition group, such as 0,1,0,1; by load if not given.", None
    )


@dataclass(frozen=True, slots=True)
class CancelRebalance(Command):
    """Keep groups that are on their way in the slots they have; nothing is lost or doubled."""

    name, title, examples, part_of = "cancel_rebalance", "Cancel a move", ("--cancel",), "rebalance"


@dataclass(frozen=True, slots=True)
class Rescale(Command):
    """Change the number of slots of a running job; its state moves before the next batch that permits it."""

    name, title, examples = "rescale", "Rescale", ("8",)
    slots: int = asked_field(NUMBER, "How many slots share the work of a batch.")


@dataclass(frozen=True, slots=True)
class ChangeLinks(Command):
    """Show the links between the sites of a job, or tell a running one that some have become others."""

    name, title = "links", "Links between sites"
    examples = ("", '"eu -> us: 2 s, 100 KB/s"', '"eu <-> us: 80 ms, 10 MB/s" --dry-run')
    links: Mapping[str, str] = asked_field(LINKS, "A link, such as 'eu -> us: 2 s, 100 KB/s'.")


@dataclass(frozen=True, slots=True)
class CorrectCosts(Command):
    """Correct what plans of a job are weighed by, as midstream try does by what it has measured."""

    name, title, examples = "costs", "Cost constants", ('"probe 1.2, second 0.5"', "reset")
    factors: Mapping[str, float] = asked_field(
        FACTORS, "By what costs are multiplied, such as 'probe 1.2, second 0.5'; reset: as at first."
    )


@dataclass(frozen=True, slots=True)
class StopJob(Command):
    """Stop a running job between two batches, and wait for its end."""

    name, title, examples, changes = "stop", "Stop", ("",), False


@dataclass(frozen=True, slots=True)
class ForecastOf(Command):
    """Show what a command would do and cost, without doing it."""

    name, title, changes, forecast = "forecast", "Forecast", False, False
    of: Command = asked_field(COMMAND, "The command.")


COMMANDS: Mapping[str, type[Command]] = {
    kind.name: kind
    for kind in (
        *(ShowStatus, ShowPlan, OfferPlans, Migrate, CancelMigration, ScheduleOperators, Adapt, AddQuery),
        *(ReplaceQuery, SwitchQuery, DropQuery, ResumeQuery, Rebalance, CancelRebalance, Rescale, ChangeLinks),
        *(CorrectCosts, StopJob, ForecastOf),
    )
}
"""The commands by name, as people are shown them."""

CHANGING = frozenset(name for name, kind in COMMANDS.items() if kind.changes)
"""The commands whose effect is seen in manifests."""


def command_in(record: Mapping[str, Any]) -> Command:
    """The command that plain values say, of known fields only; refuses any other.

    >>> command_in({"command": "rescale", "slots": 3})
    Rescale(slots=3)
    """
    name = record.get("command")
    kind = COMMANDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(f"unknown command {name!r:.80}", hint=f"use one of {', '.join(COMMANDS)}")
    return command_of(kind, {key: value for key, value in record.items() if key != "command"})


def command_of(kind: type[Command], values: Mapping[str, Any]) -> Command:
    """A command of a kind; a field that is None, or an empty text, counts as not given where it need not be."""
    known = dict(kind.fields())
    unknown = sorted(set(values) - {each.name for each in known})
    if unknown:
        raise InputError(f"{kind.name} does not take {', '.join(map(str, unknown))[:80]}")
    found = {}
    for each, asked in known.items():
        value = values.get(each.name)
        if each.default is not MISSING and (value is None or (isinstance(value, str) and not value.strip())):
            continue
        if each.name not in values:
            raise InputError(f"{kind.name} needs {each.name}")
        found[each.name] = asked.checked(each.name, value)
    return kind(**found)


def form_of(kind: type[Command]) -> dict[str, Any]:
    """A command as a form shows it: its title, what it does, and its fields."""
    shown = [
        {
            "name": each.name,
            "kind": asked.kind.name,
            "help": asked.help,
            "choices": None if asked.choices is None else list(asked.choices()),
            "required": each.default is MISSING,
            "initial": None if each.default is MISSING else each.default,
        }
        for each, asked in kind.fields()
    ]
    return {"command": kind.name, "title": kind.title, "note": (kind.__doc__ or "").strip(), "fields": shown}
