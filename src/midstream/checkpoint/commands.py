"""What people may ask of a running job: each command is one dataclass, and everything else about it is derived from it.

Programs, the command line, files in the control folder and the dashboard's forms all make these values, by the same
check: only known commands with known fields of the right kind pass. What they mean is for the job to judge, which knows
its queries and streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, ClassVar

from midstream.algebra.names import check_name
from midstream.errors import InputError

LONGEST_TEXT = 100_000
"""How many characters a query or a plan has at most."""


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What a field of a command holds. Its check takes plain values as JSON has them, or a text as people write it."""

    name: str
    check: Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class CommandField:
    """What people are told of a field, and what it must be; `choices` are found when they are needed."""

    kind: FieldKind
    help: str
    choices: Callable[[], Sequence[str]] | None = None

    def checked(self, name: str, value: Any) -> Any:
        """The value of a field of this name; refuses one that it cannot have."""
        if self.choices is None:
            return self.kind.check(name, value)
        known = self.choices()
        if value not in known:
            near = get_close_matches(str(value), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
            raise InputError(f"unknown {name} {value!r:.80}", hint=hint)
        return str(value)


def _stored_name(name: str, value: Any) -> str:
    """The name of a query, or of one that was replaced with a batch."""
    query, _, batch = value.partition("@") if isinstance(value, str) else (value, "", "")
    check_name(name, query if batch.isdecimal() else value)
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
        raise InputError(f"{name} must be a text of at most {LONGEST_TEXT:,} characters")
    return value


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number above zero, not {value!r:.80}")
    return value


def _slots(name: str, value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    numbers: list[Any] = [int(p) if isinstance(p, str) and p.strip().isdecimal() else p for p in parts]
    if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise InputError(
            f"{name} must be a list of slots, not {value!r:.80}", hint="name them by their numbers, such as 1 or 0,2"
        )
    return tuple(numbers)


def _duration(name: str, value: Any) -> str | int:
    """A stretch of stream time: a number of ticks, or a number with a unit."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 100:
        raise InputError(f"{name} must be a duration, not {value!r:.80}", hint='write for instance "10 minutes"')
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _links(name: str, value: Any) -> Mapping[str, str]:
    """Links by the sites they are between, or each as one text; what they mean is for the job to judge."""
    from midstream.optimizer.sites.links import HINT, link_texts

    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        value = link_texts(value)
    if not isinstance(value, Mapping) or not value or len(value) > 1000:
        raise InputError(f"{name} must be a table of links, not {value!r:.80}", hint=HINT)
    return {_text("a link", ends): _text("a link", link) for ends, link in value.items()}


def _command(name: str, value: Any) -> Command:
    command = command_in(value) if isinstance(value, Mapping) else None
    if command is None or not command.forecast:
        raise InputError(f"there is no forecast of {value!r:.80}", hint="name a command that changes something")
    return command


NAME, STORED_NAME = FieldKind("query", check_name), FieldKind("query", _stored_name)
NEW_NAME, TEXT, CQL = FieldKind("name", check_name), FieldKind("text", _text), FieldKind("cql", _text)
PLAN, NUMBER, SLOTS = FieldKind("plan", _text), FieldKind("number", _number), FieldKind("slots", _slots)
DURATION, LINKS, COMMAND = FieldKind("duration", _duration), FieldKind("links", _links), FieldKind("command", _command)


def _asked(
    kind: FieldKind, help: str, default: Any = MISSING, choices: Callable[[], Sequence[str]] | None = None
) -> Any:
    return field(default=default, metadata={"asked": CommandField(kind, help, choices)})


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
class ShowStatus(Command):
    """Show the progress of a job; from its checkpoint if it does not run."""

    name, title, examples, changes, forecast = "status", "Status", ("",), False, False


@dataclass(frozen=True, slots=True)
class ShowPlan(Command):
    """Show the current plan of a query of a job; from its checkpoint if it does not run."""

    name, title, examples, changes, forecast = "plan", "Plan", ("hot",), False, False
    query: str = _asked(NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class OfferPlans(Command):
    """Show equivalent plans of a running query with their costs, the cheapest first."""

    name, title, examples, changes, forecast = "plans", "Plans", ("hot",), False, False
    query: str = _asked(NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class Migrate(Command):
    """Migrate a query of a running job to another plan while results keep flowing."""

    name, title = "migrate", "Migrate"
    examples = (
        'hot "(A (B C))" --strategy genmig',
        'hot "(A (B C))" --slots 1',
        'hot "(A (B C))" --verify "10 minutes"',
    )
    query: str = _asked(NAME, "The query's name.")
    plan: str = _asked(PLAN, "The plan to migrate to, such as '((A B) C)'.")
    strategy: str = _asked(TEXT, "The migration strategy.", "auto", _strategies)
    part: str = _asked(
        TEXT,
        "What migrates: auto (where plans differ), smallest, whole.",
        "auto",
        lambda: ("auto", "smallest", "whole"),
    )
    slots: tuple[int, ...] | None = _asked(
        SLOTS, "The slots that migrate, such as 1 or 0,2, each by itself; all by default.", None
    )
    verify: str | int | None = _asked(
        DURATION, "First let a copy migrate, and compare both for so much stream time: '10 minutes'.", None
    )


@dataclass(frozen=True, slots=True)
class CancelMigration(Command):
    """Go back to the plan before the migration under way; nothing is lost or doubled."""

    name, title, examples, part_of = "cancel", "Cancel a migration", ("hot --cancel",), "migrate"
    query: str = _asked(NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class ScheduleOperators(Command):
    """Run the operators of all queries in another order."""

    name, title, examples, part_of = "schedule", "Scheduling", ("--scheduling bfs",), "migrate"
    scheduling: str = _asked(TEXT, "Which operator runs when, for all queries: dfs, bfs, rr, batch:10 or chain.")


@dataclass(frozen=True, slots=True)
class Adapt(Command):
    """Change the adaptivity of a query of a running job: off, suggestions only, or automatic."""

    name, title, examples = "adapt", "Adaptivity", ("hot suggest",)
    query: str = _asked(NAME, "The query's name.")
    mode: str = _asked(TEXT, "off, suggest or auto.", choices=_modes)


@dataclass(frozen=True, slots=True)
class AddQuery(Command):
    """Add a query to a running job."""

    name, title = "add", "Add a query"
    examples = ('big "SELECT * FROM orders [NOW] WHERE amount > 100"',)
    query: str = _asked(NEW_NAME, "The query's name.")
    cql: str = _asked(CQL, "The query; @FILE reads it from a file, - from standard input.")
    plan: str | None = _asked(TEXT, "The plan that it starts with, such as '((A B) C)'; the best one by default.", None)
    adaptive: str = _asked(TEXT, "Adaptivity: off, suggest or auto.", "off", _modes)
    since: str = _asked(
        TEXT, "From when on it answers: now, retained (as far back as rows are kept) or an instant.", "now"
    )


@dataclass(frozen=True, slots=True)
class ReplaceQuery(Command):
    """Put another text in the place of a query of a running job; it starts with what follows from kept windows."""

    name, title = "replace", "Replace a query"
    examples = ("hot @hot.sql --dry-run", "hot @hot.sql --incomplete withhold", "hot @hot.sql --verify '1 hour'")
    query: str = _asked(NAME, "The query's name.")
    cql: str = _asked(CQL, "Its new text; @FILE reads it from a file, - from standard input.")
    plan: str | None = _asked(TEXT, "The plan that it starts with, such as '((A B) C)'.", None)
    incomplete: str = _asked(
        TEXT, "What becomes of results that lack rows: emit or withhold.", "emit", lambda: ("emit", "withhold")
    )
    verify: str | int | None = _asked(
        DURATION, "First run beside the old text, and compare both for so much stream time: '1 hour'.", None
    )
    columns: str | None = _asked(TEXT, "The columns that are compared, such as 'k, n'; all that both have.", None)


@dataclass(frozen=True, slots=True)
class DropQuery(Command):
    """Drop a query of a job, running or not, with its state."""

    name, title, examples = "drop", "Drop a query", ("big",)
    query: str = _asked(STORED_NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class ResumeQuery(Command):
    """Resume a query that was stopped by a bad value, without the rows that arrived since."""

    name, title, examples = "resume", "Resume a query", ("big",)
    query: str = _asked(NAME, "The query's name.")


@dataclass(frozen=True, slots=True)
class Rebalance(Command):
    """Reassign partition groups to balance load between the slots of a running job."""

    name, title = "rebalance", "Rebalance"
    examples = ("", "--protocol split_time", "--by items.product")
    protocol: str = _asked(TEXT, "How groups move: auto, mslb, split_time or ptlb.", "auto", _protocols)
    by: str | None = _asked(TEXT, "Only what later stages exchange by this key, such as B.y.", None)
    routing: tuple[int, ...] | None = _asked(
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
    slots: int = _asked(NUMBER, "How many slots share the work of a batch.")


@dataclass(frozen=True, slots=True)
class ChangeLinks(Command):
    """Show the links between the sites of a job, or tell a running one that some have become others."""

    name, title = "links", "Links between sites"
    examples = ("", '"eu -> us: 2 s, 100 KB/s"', '"eu <-> us: 80 ms, 10 MB/s" --dry-run')
    links: Mapping[str, str] = _asked(LINKS, "A link, such as 'eu -> us: 2 s, 100 KB/s'.")


@dataclass(frozen=True, slots=True)
class StopJob(Command):
    """Stop a running job between two batches, and wait for its end."""

    name, title, examples, changes = "stop", "Stop", ("",), False


@dataclass(frozen=True, slots=True)
class ForecastOf(Command):
    """Show what a command would do and cost, without doing it."""

    name, title, changes, forecast = "forecast", "Forecast", False, False
    of: Command = _asked(COMMAND, "The command.")


COMMANDS: Mapping[str, type[Command]] = {
    kind.name: kind
    for kind in (
        *(ShowStatus, ShowPlan, OfferPlans, Migrate, CancelMigration, ScheduleOperators, Adapt, AddQuery),
        *(ReplaceQuery, DropQuery, ResumeQuery, Rebalance, CancelRebalance, Rescale, ChangeLinks, StopJob, ForecastOf),
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
