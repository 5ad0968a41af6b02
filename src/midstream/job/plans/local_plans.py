"""Plans per slot: inside a fragment a slot may run its own plan, because all plans of a query give the same.

Rows meet in slots by the keys of the streams' routes, whatever plan a slot runs, and what a query has given depends on
the input and the frontier alone. So plans over the same routes, of one stage or of the same stages, may differ from
slot to slot, and each slot may go over to another one by itself. A query's own plan is that of all slots that have
none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from midstream.checkpoint.records import PlansAtWork, SlotPlan
from midstream.distribution.alignment import differing_fragments
from midstream.distribution.plan_texts import plans_text, slots_text
from midstream.errors import MigrationError
from midstream.job.plans.migration_choice import fit_tasks
from midstream.job.queries.running_query import MigrationUnderWay, RunningQuery
from midstream.optimizer.plans import Plan


def plans_by_slot(query: RunningQuery, slots: int) -> dict[int, Plan]:
    """The plan that each slot runs."""
    return {slot: query.in_slot(slot).plan for slot in range(slots)}


class SlotPlans(Mapping[int, Plan]):
    """The plans of slots that differ, by slot."""

    def __init__(self, plans: Mapping[int, Plan]) -> None:
        self._plans = dict(plans)

    def __getitem__(self, slot: int) -> Plan:
        return self._plans[slot]

    def __iter__(self) -> Iterator[int]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)

    @property
    def text(self) -> str:
        """All of them in one line."""
        return plans_text({slot: plan.text for slot, plan in self.items()})

    def __repr__(self) -> str:
        return f"SlotPlans({self.text!r})"


def migrating_to(query: RunningQuery) -> str | None:
    """The plan that a query goes over to, or those that some of its slots do; None if it does not migrate."""
    if query.migration is not None:
        return query.migration.target.plan.text
    going = {slot: own.migration.target.plan.text for slot, own in query.local.items() if own.migration is not None}
    return plans_text(going) if going else None


def require_still(query: RunningQuery, slot: int | None = None) -> None:
    """Raises a MigrationError if a query, here by the plan of a slot, goes over to another plan already."""
    if query.migration is not None:
        where = "" if slot is None else f" in slot {slot}"
        raise MigrationError(
            f"query {query.name} is migrating already{where}, to {query.migration.target.plan.text}",
            hint="wait for the end of that migration, or cancel it",
        )


def explained(query: RunningQuery, slots: int) -> str:
    """Every plan that runs, in fragments, with its slots."""
    by_plan: dict[str, tuple[RunningQuery, list[int]]] = {}
    for slot in range(slots):
        own = query.in_slot(slot)
        by_plan.setdefault(own.plan.text, (own, []))[1].append(slot)
    shown = []
    for text, (own, its) in by_plan.items():
        shape = f" {text}" if text else ""
        where = "" if len(by_plan) == 1 else f" in {slots_text(its)}"
        shown.append(f"Plan{shape}{where}\n\n{own.staged}")
    return "\n\n".join(shown)


def resumed(query: RunningQuery, known: PlansAtWork, by_plan: Callable[[str], RunningQuery]) -> RunningQuery:
    """The query with the migration and the plans of slots that a manifest tells of; `by_plan` gives it by a plan."""
    local = {
        slot: _migrating(query if own.plan == query.plan.text else by_plan(own.plan), own, by_plan)
        for slot, own in known.local.items()
    }
    return replace(_migrating(query, known, by_plan), local=local)


def _migrating(
    query: RunningQuery, known: PlansAtWork | SlotPlan, by_plan: Callable[[str], RunningQuery]
) -> RunningQuery:
    going = known.migration
    return replace(query, migration=None if going is None else MigrationUnderWay.to(by_plan(going.plan), going))


def require_slots_of(query: RunningQuery, target: RunningQuery, wanted: Sequence[int], slots: int) -> None:
    """Raises a MigrationError if some slots cannot go over to a plan by themselves."""
    if not wanted or not all(isinstance(slot, int) and 0 <= slot < slots for slot in wanted):
        raise MigrationError(
            f"query {query.name} cannot migrate in slots {list(wanted)}",
            detail=f"the slots are 0 to {slots - 1}",
            hint="leave slots out to migrate in all of them",
        )
    require_still(query)
    for slot in wanted:
        own = query.in_slot(slot)
        require_still(own, slot)
        if not fit_tasks(own, target):
            raise MigrationError(
                f"query {query.name} cannot run by different plans in its slots: its plans have different stages, "
                "or need rows in other slots",
                detail=str(target.staged),
                hint="migrate all slots at once",
            )


def require_seen(query: RunningQuery, target: RunningQuery) -> None:
    """Raises a MigrationError if a slot sees nothing of what decides between two plans.

    A slot sees the rows of streams that arrive in it: they tell about the fragments that read them there, and nothing
    about those that read what all slots have sent.
    """
    differing = differing_fragments(query.staged, target.staged) or ()
    if any(query.staged.fragment(number).received for number in differing):
        raise MigrationError(
            f"a slot cannot choose {target.plan.text or 'another plan'} for query {query.name} by what it sees itself",
            detail="the plans differ in a stage that reads what other slots send",
            hint="ask for it: migrate(plan, slots=[...])",
        )
